/* The core of check and bench with the stand-in: correct results pass, every defect is detected. */
#include <math.h>

#include "../unit/test.h"
#include "harness/attention.h"
#include "harness/bench.h"
#include "harness/check.h"
#include "harness/option_text.h"
#include "ops/sparse_attn_table.h"
#include "stand_in.h"

static uint64_t seed;
static smelt_context *context;

static int make_context(void **state) {
    (void)state;
    return smelt_context_create(&context, NULL) == SMELT_OK ? 0 : -1;
}

static int drop_context(void **state) {
    (void)state;
    smelt_context_destroy(&context);
    return 0;
}

static int restore(void **state) {
    (void)state;
    stand_in_defect = STAND_IN_CORRECT;
    return 0;
}

/* All options, so that every defect has an effect. */
static struct smelt__check_options everything(void) {
    struct smelt__check_options options = {
        .spec = "sparse_attn:heads=4,dqk=128,dv=64,topk=24,sink=1", .sample = 100};
    options.problem.seed = seed;
    options.problem.batches = 2;
    options.problem.tokens = 10;
    options.problem.rows = 50;
    options.problem.lists = SMELT__LISTS_ADVERSARIAL;
    options.problem.query_list = SMELT__QUERY_LIST_NONE;
    options.problem.topk_length = 1;
    options.problem.strided = 1;
    options.problem.max_logits = 1;
    return options;
}

TEST(test_correct_passes) {
    struct smelt__check_result result;
    for (int i = 0; i < 4 * 5 * 4; i++) {
        struct smelt__check_options options = everything();
        options.problem.seed = seed + (uint64_t)i;
        options.problem.lists = (enum smelt__lists)(i % 4);
        options.problem.query_list = (enum smelt__query_list)(i / 4 % 5);
        options.problem.strided = i / 20 % 2;
        options.problem.spiky = i / 40;
        options.sample = i % 3 == 0 ? 3 : 100;
        if (smelt__check_run(context, &options, &result) != 0)
            print_message("%s\n", result.message);
        assert_true(result.passed);
        assert_true(result.compared <= options.sample && result.compared <= 20);
        assert_true(result.compared > 0 || i / 4 % 5 == SMELT__QUERY_LIST_EMPTY);
        const double largest = smelt__check_value(&result, "", "largest_score");
        assert_true(!options.problem.spiky || result.compared == 0 || largest >= 100 ||
                    largest == 0);
    }
}

TEST_WITH(test_defects_are_caught, NULL, restore) {
    for (int defect = 1; defect < STAND_IN_DEFECTS; defect++) {
        struct smelt__check_options options = everything();
        struct smelt__check_result result;
        if (defect == STAND_IN_COMPUTES_UNLISTED)
            options.problem.query_list = SMELT__QUERY_LIST_PARTIAL;
        if (defect == STAND_IN_DROPS_LAST_SLOT)
            options.problem.topk_length = options.problem.strided = 0;
        stand_in_defect = (enum stand_in_defect)defect;
        if (smelt__check_run(context, &options, &result) == 0)
            print_message("defect %d was not caught\n", defect);
        assert_false(result.passed);
        assert_non_null(strstr(result.message, "reproduce: smelt check sparse_attn:heads=4"));
        assert_non_null(strstr(result.message, " --seed "));
    }
}

/* The command that a failure prints gives the same problem when parsed. */
TEST(test_command_round_trip) {
    struct smelt__check_options options = everything();
    struct smelt__problem_options parsed = {0};
    const struct smelt__harness_operator *op = smelt__harness_find(options.spec);
    char text[768], words[768], message[256], *rest = NULL;
    options.problem.query_list = SMELT__QUERY_LIST_CLAMPED;
    options.problem.spiky = 1;
    options.problem.width = 7;
    options.problem.scale = 0.1F;
    smelt__problem_command("check", options.spec, &options.problem, text, sizeof text);
    strcpy(words, text);
    char *word = strtok_r(words, " ", &rest);
    for (int i = 0; i < 3; i++) /* smelt check SPEC */
        word = strtok_r(NULL, " ", &rest);
    while (word) {
        const char *name = word + 2;
        const char *value = smelt__option_find(op, name)->kind != SMELT__OPTION_FLAG
                                ? strtok_r(NULL, " ", &rest)
                                : NULL;
        assert_int_equal(
            smelt__problem_option_set(op, &parsed, name, value, message, sizeof message), 1);
        word = strtok_r(NULL, " ", &rest);
    }
    smelt__problem_command("check", options.spec, &parsed, words, sizeof words);
    assert_string_equal(words, text);
    assert_true(parsed.seed == seed && parsed.width == 7 && parsed.scale == 0.1F);
    assert_true(parsed.lists == SMELT__LISTS_ADVERSARIAL && parsed.spiky && parsed.strided);
}

TEST(test_bad_options) {
    static const char *const bad[][2] = {
        {"rows", "0"},      {"rows", "-5"},    {"rows", "x"},   {"rows", "4294967296"},
        {"rows", ""},       {"lists", "fast"}, {"seed", "-1"},  {"seed", "1x"},
        {"scale", "0"},     {"scale", "nan"},  {"width", NULL}, {"query-list", "some"},
        {"batches", "1e3"},
    };
    struct smelt__problem_options options = {0};
    char message[256];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(smelt__problem_option_set(&smelt__harness_sparse_attn, &options, bad[i][0],
                                                   bad[i][1], message, sizeof message),
                         -1);
        assert_non_null(strstr(message, bad[i][0]));
    }
    assert_int_equal(smelt__problem_option_set(&smelt__harness_sparse_attn, &options, "colour", "1",
                                               message, sizeof message),
                     0);
    assert_string_equal(message, "sparse_attn has no option --colour");
    assert_null(smelt__option_find(NULL, "colour"));
}

TEST(test_bad_spec) {
    struct smelt__check_options options = {.spec = "sparse_attn:heads=none"};
    struct smelt__check_result result;
    assert_int_equal(smelt__check_run(context, &options, &result), -1);
    assert_int_equal(result.status, SMELT_ERROR_INVALID_SPEC);
}

TEST(test_bench_arithmetic) {
    struct smelt__bench_item items[10];
    struct smelt__bench_result results[10];
    memset(items, 0, sizeof items);
    for (int i = 0; i < 10; i++) {
        strcpy(items[i].spec, "sparse_attn:heads=2,dqk=128,dv=64,topk=16");
        items[i].problem.seed = seed;
        items[i].problem.tokens = 8;
        items[i].problem.rows = 100;
        items[i].problem.valid = i < 5 ? 0 : 4;
    }
    assert_int_equal(smelt__bench_run(context, items, 10, 4, results), 0);
    for (int i = 0; i < 10; i++) {
        int64_t slots = i < 5 ? 8 * 16 : 8 * 4;
        assert_int_equal(results[i].valid_slots, slots);
        assert_true(results[i].ms_median == 0.5);
        assert_int_equal(results[i].rate_count, 2);
        assert_string_equal(results[i].rates[0].name, "tflops");
        assert_string_equal(results[i].rates[1].name, "gather_tbs");
        const double tflops = smelt__bench_rate(&results[i], 0);
        const double gather_tbs = smelt__bench_rate(&results[i], 1);
        assert_true(fabs(tflops - 2.0 * (double)slots * 2 * 192 / 0.5e9) < 1e-12);
        assert_true(fabs(gather_tbs - (double)slots * 256 / 0.5e9) < 1e-12);
    }
    strcpy(items[1].spec, "no spec");
    assert_int_equal(smelt__bench_run(context, items, 3, 4, results), 1);
    assert_int_equal(results[1].status, SMELT_ERROR_INVALID_SPEC);
    assert_int_equal(results[2].status, SMELT_OK);
}

TEST(test_peer_items) {
    struct smelt__bench_item items[96];
    int count = smelt__bench_peer_items(NULL, 0);
    assert_int_equal(count, 24 + 4 + 3 + 25);
    assert_int_equal(smelt__bench_peer_items(items, 96), count);
    assert_string_equal(items[3].spec, "sparse_attn:heads=64,dqk=576,dv=512,topk=2048");
    assert_true(items[3].problem.rows == 8192);
    assert_string_equal(items[23].spec, "sparse_attn:heads=128,dqk=576,dv=512,topk=2048");
    assert_true(items[23].problem.rows == 131072);
    assert_string_equal(items[27].spec, "sparse_attn:heads=128,dqk=512,dv=512,topk=1152,sink=1");
    assert_string_equal(items[30].spec, "sparse_attn:heads=32,dqk=576,dv=512,topk=2048");
    assert_string_equal(items[31].spec,
                        "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,passes=backward");
    assert_true(items[31].problem.tokens == 4096 && items[31].problem.rows == 4096);
    assert_true(items[38].problem.lists == SMELT__LISTS_DRIFT && items[38].problem.rows == 8192);
    assert_true(items[52].problem.valid == 1024);
}

TESTS("check", .group_setup = make_context, .group_teardown = drop_context, .seed = &seed)
