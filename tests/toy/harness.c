/*
 * The harness with an added operator: check accepts both passes on the emulator, one of which adds
 * to its output, and detects the errors of defective passes.
 */

#include "../unit/test.h"
#include "harness/bench.h"
#include "harness/check.h"
#include "harness/option_text.h"
#include "ops/toy_table.h"
#include "smelt/toy.h"

static smelt_context *context;
static const struct smelt__harness_operator *const *all;

static int open_context(void **state) {
    (void)state;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    options.cache_disable = 1;
    all = smelt__harness_operators;
    return smelt_context_create(&context, &options) == SMELT_OK ? 0 : -1;
}

static int close_context(void **state) {
    (void)state;
    smelt_context_destroy(&context);
    return 0;
}

static int restore(void **state) {
    (void)state;
    smelt__harness_operators = all;
    return 0;
}

static smelt_status no_memory(smelt_operator **op, smelt_context *its, const char *spec) {
    (void)op, (void)its, (void)spec;
    return SMELT_ERROR_OUT_OF_MEMORY; /* the harness's own, without a message */
}

static struct smelt__check_options asked(unsigned pass) {
    return (struct smelt__check_options){.spec = "toy:width=75,passes=both",
                                         .pass = pass,
                                         .problem = {.seed = 7, .tokens = 5},
                                         .sample = 100};
}

TEST(is_registered) {
    assert_ptr_equal(smelt__harness_find("toy:width=75"), &smelt__harness_toy);
    assert_non_null(smelt__harness_find("sparse_attn:heads=8"));
    assert_null(smelt__harness_find("to:width=75"));
    assert_non_null(smelt__option_find(&smelt__harness_toy, "strided"));
    assert_null(smelt__option_find(&smelt__harness_toy, "lists"));
}

/* An option's name has one meaning, because the command reads it before it knows the operator. */
TEST(options_agree) {
    const struct smelt__option *option;
    int own = 0;
    for (int n = 0; (option = smelt__option_number(n)) != NULL; n++) {
        own += strcmp(option->name, "sign") == 0;
        assert_true(n < 64 && strlen(option->help) > 0);
        assert_int_equal(option->kind == SMELT__OPTION_CHOICE, option->choices != NULL);
        for (int i = 0; smelt__harness_operators[i]; i++) {
            const struct smelt__option *its =
                smelt__option_find(smelt__harness_operators[i], option->name);
            if (its && (its->kind != option->kind || its->field != option->field ||
                        its->choices != option->choices))
                fail_msg("%s has another --%s", smelt__harness_operators[i]->name, option->name);
        }
    }
    assert_int_equal(own, 1);
}

TEST(both_passes) {
    static const unsigned passes[] = {SMELT_PASS_FORWARD, SMELT_PASS_BACKWARD};
    static const char *const names[] = {"forward", "backward"};
    for (int i = 0; i < 2; i++)
        for (int layout = 0; layout < 3; layout++) {
            struct smelt__check_options options = asked(passes[i]);
            struct smelt__check_result result;
            options.problem.strided = layout == 1;
            options.problem.far = layout == 2;
            if (smelt__check_run(context, &options, &result) != 0)
                print_message("%s\n", result.message);
            assert_true(result.passed);
            assert_string_equal(result.pass, names[i]);
            assert_int_equal(result.compared, 5);
            assert_int_equal(result.metric_count, 1);
            assert_true(smelt__check_value(&result, "max_abs_error", "rows") < 1e-5);
        }
}

TEST(not_made_for) {
    struct smelt__check_options options = asked(SMELT_PASS_BACKWARD);
    struct smelt__check_result result;
    options.spec = "toy:width=75";
    assert_int_equal(smelt__check_run(context, &options, &result), -1);
    assert_int_equal(result.status, SMELT_ERROR_INVALID_SPEC);
    options.pass = 0; /* the spec's first pass */
    options.spec = "toy:width=75,passes=backward";
    assert_int_equal(smelt__check_run(context, &options, &result), 0);
    assert_string_equal(result.pass, "backward");
}

/* ---- passes made wrong ----------------------------------------------------------------------- */

typedef smelt_status launch(const smelt_operator *op, enum smelt_pass pass, const void *args,
                            struct CUstream_st *stream);

static smelt_status twice(const smelt_operator *op, enum smelt_pass pass, const void *args,
                          struct CUstream_st *stream) {
    const smelt_status status = smelt_operator_launch(op, pass, args, stream);
    return status == SMELT_OK ? smelt_operator_launch(op, pass, args, stream) : status;
}

static smelt_status never(const smelt_operator *op, enum smelt_pass pass, const void *args,
                          struct CUstream_st *stream) {
    (void)op, (void)pass, (void)args, (void)stream;
    return SMELT_OK;
}

static smelt_status shorter(const smelt_operator *op, enum smelt_pass pass, const void *args,
                            struct CUstream_st *stream) {
    smelt_toy_args fewer = *(const smelt_toy_args *)args; /* the structs differ in names only */
    fewer.tokens--;
    return smelt_operator_launch(op, pass, &fewer, stream);
}

/* Writes rows as wide as the problem's gaps permit. */
static smelt_status elsewhere(const smelt_operator *op, enum smelt_pass pass, const void *args,
                              struct CUstream_st *stream) {
    smelt_toy_args moved = *(const smelt_toy_args *)args;
    moved.out.data = (float *)moved.out.data + 1;
    return smelt_operator_launch(op, pass, &moved, stream);
}

static void expect_caught(unsigned pass, launch *wrong, const char *message) {
    const struct smelt__harness_calls *const library = smelt__harness_calls;
    struct smelt__harness_calls calls = *library;
    struct smelt__check_options options = asked(pass);
    struct smelt__check_result result;
    calls.launch = wrong;
    smelt__harness_calls = &calls;
    options.problem.strided = 1;
    assert_int_equal(smelt__check_run(context, &options, &result), -1);
    smelt__harness_calls = library;
    if (!strstr(result.message, message))
        fail_msg("'%s' lacks '%s'", result.message, message);
}

TEST_WITH(wrong_passes, NULL, restore) {
    expect_caught(SMELT_PASS_BACKWARD, twice, "error of a row");
    expect_caught(SMELT_PASS_BACKWARD, never, "error of a row");
    expect_caught(SMELT_PASS_BACKWARD, shorter, "row 4 element");
    expect_caught(SMELT_PASS_FORWARD, never, "row 0 element");
    expect_caught(SMELT_PASS_FORWARD, shorter, "row 4 element");
    expect_caught(SMELT_PASS_FORWARD, elsewhere, "out"); /* the emulator reports it */
}

/* No message of an earlier call is a failure's reason. */
TEST_WITH(reasons, NULL, restore) {
    const struct smelt__harness_calls *library = smelt__harness_calls;
    struct smelt__harness_calls calls = *library;
    struct smelt__check_options options = asked(SMELT_PASS_FORWARD);
    struct smelt__check_result result;
    int64_t value;
    assert_int_not_equal(smelt_spec_get("toy:width=75", "variant", &value), SMELT_OK);
    assert_string_equal(smelt__harness_reason(SMELT_ERROR_INVALID_ARGUMENT), smelt_last_error());
    calls.create = no_memory;
    smelt__harness_calls = &calls;
    assert_int_equal(smelt__check_run(context, &options, &result), -1);
    smelt__harness_calls = library;
    assert_non_null(strstr(result.message, "memory is exhausted"));
    assert_null(strstr(result.message, "no key"));
}

TESTS("toy in the harness", .group_setup = open_context, .group_teardown = close_context)
