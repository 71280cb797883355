/* check and bench of sparse_attn's backward pass with the stand-in: correct results pass, every
 * defect is detected. */
#include <math.h>

#include "../unit/test.h"
#include "harness/attention.h"
#include "harness/bench.h"
#include "harness/check.h"
#include "harness/grad_rows.h"
#include "ops/sparse_attn_table.h"
#include "reference/operators.h"
#include "smelt/kernels.h"
#include "sparse_attn_calls.h"
#include "stand_in.h"

#define TENSOR(name) SMELT__SPARSE_ATTN_GRAD_##name

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

/* ---- check ----------------------------------------------------------------------------------- */

/* All options, so that every defect has an effect. */
static struct smelt__check_options everything(void) {
    struct smelt__check_options options = {
        .spec = "sparse_attn:heads=4,dqk=128,dv=64,topk=24,sink=1,passes=backward", .sample = 100};
    options.problem.seed = seed;
    options.problem.batches = 2;
    options.problem.tokens = 10;
    options.problem.rows = 50;
    options.problem.lists = SMELT__LISTS_ADVERSARIAL;
    options.problem.topk_length = 1;
    options.problem.strided = 1;
    return options;
}

TEST(test_correct_passes) {
    struct smelt__check_result result;
    for (int i = 0; i < 4 * 6 * 4; i++) {
        struct smelt__check_options options = everything();
        options.problem.seed = seed + (uint64_t)i;
        options.problem.lists = (enum smelt__lists)(i % 4);
        options.problem.query_list = (enum smelt__query_list)(i / 4 % 6);
        options.problem.strided = i / 24 % 2;
        options.problem.spiky = i / 48;
        options.problem.dkv = (enum smelt__dkv)(i % 3);
        options.problem.topk_length = i % 7 < 4;
        options.sample = i % 3 == 0 ? 3 : 100;
        if (smelt__check_run(context, &options, &result) != 0)
            print_message("%s\n", result.message);
        assert_true(result.passed);
        assert_string_equal(result.pass, "backward");
        assert_true(result.compared <= options.sample && result.compared <= 20);
        assert_true(result.compared > 0 || i / 4 % 6 == SMELT__QUERY_LIST_EMPTY);
    }
}

/* The largest rounding errors, and dp nearly equal to delta. */
TEST(test_few_slots_pass) {
    static const char *const specs[] = {"sparse_attn:heads=4,dqk=128,dv=64,topk=24,passes=backward",
                                        "sparse_attn:heads=4,dqk=128,dv=64,topk=24,sink=1,"
                                        "passes=backward"};
    struct smelt__check_result result;
    for (int i = 0; i < 48; i++) {
        struct smelt__check_options options = {.spec = specs[i % 2], .sample = 100};
        options.problem.seed = seed + (uint64_t)i;
        options.problem.tokens = 12;
        options.problem.rows = 20;
        options.problem.valid = 1 + i / 2 % 3;
        options.problem.spiky = i % 5 == 0;
        options.problem.dkv = (enum smelt__dkv)(i % 3);
        if (smelt__check_run(context, &options, &result) != 0)
            print_message("%s\n", result.message);
        assert_true(result.passed);
    }
}

/* Options with which a defect has an effect. */
static struct smelt__check_options options_for(enum stand_in_defect defect) {
    struct smelt__check_options options = everything();
    switch ((int)defect) {
    case STAND_IN_GRAD_COMPUTES_UNLISTED:
        options.problem.query_list = SMELT__QUERY_LIST_PARTIAL;
        break;
    case STAND_IN_GRAD_REPEATED_ONCE:
        options.problem.query_list = SMELT__QUERY_LIST_REPEATED;
        options.problem.lists = SMELT__LISTS_RANDOM;
        options.problem.topk_length = 0;
        break;
    case STAND_IN_GRAD_OVERWRITES:
        options.problem.dkv = SMELT__DKV_ADD;
        break;
    case STAND_IN_GRAD_COARSE_DELTA: /* one key and a sink with a small share */
        options.problem.lists = SMELT__LISTS_RANDOM;
        options.problem.topk_length = 0;
        options.problem.valid = 1;
        options.problem.scale = 0.35F;
        break;
    case STAND_IN_GRAD_SKIPS_LAST_SLOT:
    case STAND_IN_GRAD_SKIPS_LAST_QUERY:
    case STAND_IN_GRAD_DSINK_WHOLE:
        options.problem.lists = SMELT__LISTS_RANDOM;
        options.problem.topk_length = 0;
        break;
    default:
        break;
    }
    if (defect == STAND_IN_GRAD_DKV_ROW_OFF)
        options.spec = "sparse_attn:heads=4,dqk=128,dv=64,topk=24,passes=backward";
    return options;
}

TEST_WITH(test_defects_are_caught, NULL, restore) {
    for (int defect = STAND_IN_GRAD_DEFECTS + 1; defect < STAND_IN_GRAD_ALL_DEFECTS; defect++) {
        const struct smelt__check_options options = options_for((enum stand_in_defect)defect);
        struct smelt__check_result result;
        stand_in_defect = (enum stand_in_defect)defect;
        if (smelt__check_run(context, &options, &result) == 0)
            print_message("defect %d was not caught\n", defect - STAND_IN_GRAD_DEFECTS);
        assert_false(result.passed);
        assert_non_null(strstr(result.message, "reproduce: smelt check sparse_attn:heads=4"));
    }
}

/* Few of many keys are compared; a stray gradient among the others is detected nevertheless. */
TEST_WITH(test_small_samples, NULL, restore) {
    static const enum stand_in_defect defects[] = {
        STAND_IN_GRAD_UNSELECTED_NOT_ZERO, STAND_IN_GRAD_DKV_ROW_OFF, STAND_IN_GRAD_OTHER_BATCH};
    for (int i = 0; i < 9; i++) {
        struct smelt__check_options options = options_for(defects[i / 3]);
        struct smelt__check_result result;
        options.problem.rows = 5000;
        options.problem.dkv = (enum smelt__dkv)(i % 3);
        options.sample = 8;
        stand_in_defect = STAND_IN_CORRECT;
        assert_int_equal(smelt__check_run(context, &options, &result), 0);
        stand_in_defect = defects[i / 3];
        assert_int_equal(smelt__check_run(context, &options, &result), -1);
        assert_non_null(strstr(result.message, "dkv"));
    }
}

/* The first pass of an operator with both is the forward pass; each pass has its own figures. */
/* If one row outweighs the others, the overall error is that row's. */
TEST(test_one_row_outweighs) {
    static const double ROW_BAR = 8e-3, MANY = 4e-3; /* grad_rows.c's */
    for (int even = 0; even < 2; even++) {
        struct smelt__finding finding = {.failed = 0};
        for (int row = 0; row < 1000; row++) {
            const double grad = even || row == 7 ? 1 : 1e-3, got = grad * (1 + ROW_BAR * 0.99);
            const struct smelt__expected_row expected = {.grads = &grad, .columns = 1};
            smelt__grad_row_compare(&got, &expected, row, &finding);
        }
        struct smelt__metric_result results[SMELT__GRAD_METRICS] = {
            [SMELT__GRAD_OVERALL] = {.parts = finding.metrics[SMELT__GRAD_OVERALL].weight /
                                              finding.metrics[SMELT__GRAD_OVERALL].heaviest}};
        smelt__grad_rows_judge(0, results);
        const double bar = results[SMELT__GRAD_OVERALL].bar;
        assert_true(even ? bar < 1.01 * MANY : bar > 0.99 * ROW_BAR && bar <= ROW_BAR);
    }
}

TEST(test_both_passes) {
    struct smelt__check_result result;
    struct smelt__check_options options = everything();
    options.spec = "sparse_attn:heads=4,dqk=128,dv=64,topk=24,sink=1,passes=both";
    assert_int_equal(smelt__check_run(context, &options, &result), 0);
    assert_string_equal(result.pass, "forward");
    assert_true(smelt__check_value(&result, "relative_error", "out") > 0);
    options.pass = SMELT_PASS_BACKWARD;
    assert_int_equal(smelt__check_run(context, &options, &result), 0);
    assert_string_equal(result.pass, "backward");
    assert_true(smelt__check_value(&result, "relative_error", "dq") > 5e-4);
    assert_true(smelt__check_value(&result, "relative_error", "dkv") > 5e-4);
    assert_true(smelt__check_value(&result, "relative_error", "dsink") < 1e-6);
    assert_true(isnan(smelt__check_value(&result, "relative_error", "out")));
    options.spec = "sparse_attn:heads=4,dqk=128,dv=64,topk=24";
    assert_int_equal(smelt__check_run(context, &options, &result), -1);
    assert_non_null(strstr(result.message, "not made for the requested pass"));
}

/* ---- problems -------------------------------------------------------------------------------- */

static void make(struct smelt__problem *problem, const struct smelt__attention_spec *spec,
                 const struct smelt__problem_options *options) {
    assert_int_equal(smelt__problem_create(problem, &smelt__harness_sparse_attn,
                                           &smelt__harness_sparse_attn.passes[1], spec, options),
                     0);
}

static float lse_of(const struct smelt__problem *problem, int64_t query, int head) {
    const int64_t tokens = problem->options.tokens;
    const float *lse = smelt__problem_data(problem, TENSOR(LSE));
    return lse[smelt__problem_at(problem, TENSOR(LSE), query / tokens, query % tokens, head)];
}

static const uint16_t *row_of(const struct smelt__problem *problem, int tensor, int64_t query,
                              int head) {
    const int64_t tokens = problem->options.tokens;
    const uint16_t *data = smelt__problem_data(problem, tensor);
    return data + smelt__problem_at(problem, tensor, query / tokens, query % tokens, head);
}

/* Small problems: the inputs are the forward pass's, and out and lse are its results. */
TEST(test_exact_inputs) {
    enum { HEADS = 3, DV = 64, QUERIES = 24 };
    const struct smelt__attention_spec spec = {
        .heads = HEADS, .dqk = 64, .dv = DV, .topk = 20, .sink = 1};
    struct smelt__problem problem, forward;
    struct smelt__problem_options options = {.seed = seed / 10 * 10, /* query 0 is empty */
                                             .batches = 2,
                                             .tokens = QUERIES / 2,
                                             .rows = 40,
                                             .lists = SMELT__LISTS_ADVERSARIAL,
                                             .query_list = SMELT__QUERY_LIST_PARTIAL,
                                             .spiky = 1,
                                             .strided = 1};
    double out[QUERIES * HEADS * DV], lse[QUERIES * HEADS];
    const struct smelt__attention_results results = {.out = out, .lse = lse};
    int unlisted = 0, empty = 0;
    make(&problem, &spec, &options);
    assert_int_equal(smelt__problem_create(&forward, &smelt__harness_sparse_attn,
                                           &smelt__harness_sparse_attn.passes[0], &spec, &options),
                     0);
    assert_int_equal(sparse_attn_reference(&spec, forward.args, NULL, QUERIES, &results), 0);
    assert_memory_equal(problem.listed, forward.listed, QUERIES);
    for (int i = 0; i < QUERIES * HEADS; i++) {
        const int64_t query = i / HEADS;
        const float got = lse_of(&problem, query, i % HEADS);
        const uint16_t *row = row_of(&problem, TENSOR(OUT), query, i % HEADS);
        assert_memory_equal(row_of(&problem, TENSOR(Q), query, i % HEADS),
                            row_of(&forward, SMELT__SPARSE_ATTN_Q, query, i % HEADS), 64 * 2);
        unlisted += !problem.listed[query];
        empty += problem.listed[query] && isinf(got);
        if (!problem.listed[query]) { /* not to be read */
            assert_true(isnan(got) && isnan(smelt__bf16_to_float(row[DV - 1])));
            continue;
        }
        assert_true(got == (float)lse[i]);
        for (int d = 0; d < DV; d++)
            assert_true(row[d] == smelt__bf16_from_float((float)out[i * DV + d]));
    }
    assert_true(unlisted > 0 && empty > 0);
    smelt__problem_destroy(&problem);
    smelt__problem_destroy(&forward);
}

/* Large problems: lse is close to the forward pass's and above every score. */
TEST(test_invented_inputs) {
    enum { HEADS = 4, QUERIES = 3000, COMPARED = 6 };
    const struct smelt__attention_spec spec = {
        .heads = HEADS, .dqk = 576, .dv = 512, .topk = 2048, .sink = 1};
    struct smelt__problem problem;
    struct smelt__problem_options options = {.seed = seed, .tokens = QUERIES, .rows = 3000};
    double lse[HEADS], max_logits[HEADS];
    const struct smelt__attention_results results = {.lse = lse, .max_logits = max_logits};
    options.lists = SMELT__LISTS_CAUSAL;
    make(&problem, &spec, &options);
    const struct smelt__attention call = smelt__problem_attention(&problem);
    for (int64_t i = 0; i < COMPARED; i++) {
        const int64_t query = i * (QUERIES - 1) / (COMPARED - 1);
        assert_int_equal(smelt__attention_forward(&call, &query, 1, &results), 0);
        for (int head = 0; head < HEADS; head++) {
            const double got = (double)lse_of(&problem, query, head);
            assert_true(got >= max_logits[head]);
            if (smelt__problem_valid_slots(&problem, query) > 700)
                assert_true(fabs(got - lse[head]) < 1.5);
        }
    }
    smelt__problem_destroy(&problem);
}

/* ---- bench ----------------------------------------------------------------------------------- */

TEST(test_bench_arithmetic) {
    static const char *const names[] = {"tflops", "gather_tbs", "reduction_tbs"};
    struct smelt__bench_item item = {.pass = SMELT_PASS_BACKWARD};
    struct smelt__bench_result result;
    const double slots = 8 * 16;
    const double expected[] = {2 * slots * 2 * (3 * 128 + 2 * 64), slots * 256, slots * 512};
    strcpy(item.spec, "sparse_attn:heads=2,dqk=128,dv=64,topk=16,passes=both");
    item.problem.tokens = 8;
    item.problem.rows = 100;
    assert_int_equal(smelt__bench_run(context, &item, 1, 4, &result), 0);
    assert_string_equal(result.pass, "backward");
    assert_int_equal(result.rate_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(result.rates[i].name, names[i]);
        assert_true(fabs(smelt__bench_rate(&result, i) - expected[i] / 0.5e9) < 1e-12);
        assert_true(result.rates[i].ceiling > 0);
    }
    assert_true(result.launch_us > 0);
}

TESTS("check_grad", .group_setup = make_context, .group_teardown = drop_context, .seed = &seed)
