/* Problems of sparse_attn's backward pass, and its bench with the stand-in. */
#include <math.h>

#include "../unit/test.h"
#include "harness/attention.h"
#include "harness/bench.h"
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
