/* Compares the reference with values computed by hand and with an independent implementation:
 * streaming, in long double, without a list of valid slots. */
#include <math.h>

#include "../unit/test.h"
#include "harness/attention.h"
#include "harness/random.h"
#include "ops/sparse_attn_table.h"
#include "reference/operators.h"
#include "sparse_attn_calls.h"

enum { DV = 4, DQK = 6, MAX_HEADS = 3, MAX_WIDTH = 8, ROWS = 4 };

/* ---- by hand --------------------------------------------------------------------------------- */

/* One query, one head, q = (1, 0, 0, 0, 0, 2), scale 0.5; rows whose scores are 0.5 * (first + 2 *
 * last). */
struct tiny {
    struct smelt__attention_spec spec;
    smelt_sparse_attn_args args;
    uint16_t q[DQK], kv[ROWS][DQK];
    int32_t indices[MAX_WIDTH], topk_length;
    float sink;
    double out[DV], lse, max_logit, max_abs;
};

static void tiny_make(struct tiny *tiny, const int32_t *indices, int width) {
    static const float q[DQK] = {1, 0, 0, 0, 0, 2};
    static const float kv[ROWS][DQK] = {
        {2, 1, 0, -1, 9, 1}, {4, 3, 2, 1, 9, 0}, {0, 8, -8, 0, 9, 1}, {-6, 1, 1, 1, 9, 1}};
    memset(tiny, 0, sizeof *tiny);
    tiny->spec = (struct smelt__attention_spec){0};
    tiny->spec.heads = 1;
    tiny->spec.dqk = DQK;
    tiny->spec.dv = DV;
    tiny->spec.topk = MAX_WIDTH;
    tiny->args = (smelt_sparse_attn_args)SMELT_SPARSE_ATTN_ARGS_INIT;
    for (int d = 0; d < DQK; d++) {
        tiny->q[d] = smelt__bf16_from_float(q[d]);
        for (int row = 0; row < ROWS; row++)
            tiny->kv[row][d] = smelt__bf16_from_float(kv[row][d]);
    }
    memcpy(tiny->indices, indices, (size_t)width * sizeof *indices);
    tiny->args.tokens = 1;
    tiny->args.rows = ROWS;
    tiny->args.width = width;
    tiny->args.scale = 0.5F;
    tiny->args.q.data = tiny->q;
    tiny->args.kv.data = tiny->kv;
    tiny->args.indices.data = tiny->indices;
}

static void assert_close(double got, double expected, double tolerance) {
    assert_true(fabs(got - expected) <= tolerance);
}

static void tiny_run(struct tiny *tiny) {
    struct smelt__attention_results results = {.out = tiny->out,
                                               .lse = &tiny->lse,
                                               .max_logits = &tiny->max_logit,
                                               .max_abs = &tiny->max_abs};
    assert_int_equal(sparse_attn_reference(&tiny->spec, &tiny->args, NULL, 1, &results), 0);
}

static void expect(const struct tiny *tiny, double lse, double out0, double out1, double out2,
                   double out3) {
    const double out[DV] = {out0, out1, out2, out3};
    assert_close(tiny->lse, lse, 1e-12);
    for (int d = 0; d < DV; d++)
        assert_close(tiny->out[d], out[d], 1e-12);
}

static void expect_empty(const struct tiny *tiny) {
    assert_true(isinf(tiny->lse) && tiny->lse < 0);
    assert_true(isinf(tiny->max_logit) && tiny->max_logit < 0);
    for (int d = 0; d < DV; d++)
        assert_true(tiny->out[d] == 0);
}

TEST(test_single_key) {
    struct tiny tiny;
    tiny_make(&tiny, (const int32_t[]){1}, 1);
    tiny_run(&tiny);
    expect(&tiny, 2.0, 4, 3, 2, 1); /* 0.5 * (1 * 4 + 2 * 0) */
    assert_close(tiny.max_logit, 2.0, 0);
    tiny_make(&tiny, (const int32_t[]){3}, 1);
    tiny_run(&tiny);
    expect(&tiny, -2.0, -6, 1, 1, 1); /* 0.5 * (-6 + 2) */
    assert_close(tiny.max_abs, 2.0, 0);
}

TEST(test_equal_keys_and_duplicates) {
    struct tiny tiny;
    tiny_make(&tiny, (const int32_t[]){0, 1}, 2); /* both score 2 */
    tiny_run(&tiny);
    expect(&tiny, 2.0 + log(2.0), 3, 2, 1, 0);
    tiny_make(&tiny, (const int32_t[]){0, 1, 0, 0}, 4); /* row 0 counts three times */
    tiny_run(&tiny);
    expect(&tiny, 2.0 + log(4.0), 2.5, 1.5, 0.5, -0.5);
}

TEST(test_two_scores) {
    struct tiny tiny;
    tiny_make(&tiny, (const int32_t[]){2, 1}, 2); /* scores 1 and 2 */
    tiny_run(&tiny);
    double p = 1 / (1 + exp(1.0));
    expect(&tiny, log(exp(1.0) + exp(2.0)), 4 * (1 - p), 8 * p + 3 * (1 - p), -8 * p + 2 * (1 - p),
           1 - p);
}

TEST(test_sink) {
    struct tiny tiny;
    const float sinks[] = {-INFINITY, INFINITY, 2.0F, 2000.0F, -2000.0F};
    const double kept[] = {1, 0, 0.5, 0, 1};
    for (int i = 0; i < 5; i++) {
        tiny_make(&tiny, (const int32_t[]){1}, 1);
        tiny.spec.sink = 1;
        tiny.sink = sinks[i];
        tiny.args.sink.data = &tiny.sink;
        tiny_run(&tiny);
        expect(&tiny, 2.0, 4 * kept[i], 3 * kept[i], 2 * kept[i], kept[i]);
        tiny_make(&tiny, (const int32_t[]){-1}, 1);
        tiny.spec.sink = 1;
        tiny.sink = sinks[i];
        tiny.args.sink.data = &tiny.sink;
        tiny_run(&tiny);
        expect_empty(&tiny);
    }
}

TEST(test_masked) {
    struct tiny tiny;
    tiny_make(&tiny, (const int32_t[]){-1, ROWS, INT32_MAX, INT32_MIN}, 4);
    tiny_run(&tiny);
    expect_empty(&tiny);
    tiny_make(&tiny, (const int32_t[]){-1, INT32_MAX, 1, ROWS, INT32_MIN}, 5);
    tiny_run(&tiny);
    expect(&tiny, 2.0, 4, 3, 2, 1);
    tiny_make(&tiny, (const int32_t[]){0}, 1);
    tiny.args.rows = 0;
    tiny.args.kv.data = NULL;
    tiny_run(&tiny);
    expect_empty(&tiny);
}

TEST(test_topk_length) {
    struct tiny tiny;
    const int32_t lengths[] = {INT32_MIN, -1, 0, 1, 2, 3, INT32_MAX};
    for (int i = 0; i < 7; i++) {
        tiny_make(&tiny, (const int32_t[]){1, 0}, 2);
        tiny.topk_length = lengths[i];
        tiny.args.topk_length.data = &tiny.topk_length;
        tiny_run(&tiny);
        if (lengths[i] <= 0)
            expect_empty(&tiny);
        else if (lengths[i] == 1)
            expect(&tiny, 2.0, 4, 3, 2, 1);
        else
            expect(&tiny, 2.0 + log(2.0), 3, 2, 1, 0);
    }
}

/* Of a longer row the first topk valid slots are used. */
TEST(test_first_topk_valid) {
    struct tiny tiny;
    tiny_make(&tiny, (const int32_t[]){-1, 1, -1, 3, 2}, 5);
    tiny.spec.topk = 1;
    tiny_run(&tiny);
    expect(&tiny, 2.0, 4, 3, 2, 1);
}

TEST(test_large_scores) {
    struct tiny tiny;
    tiny_make(&tiny, (const int32_t[]){1, 3}, 2); /* 8000 and -8000 */
    tiny.args.scale = 2000.0F;
    tiny_run(&tiny);
    expect(&tiny, 8000.0, 4, 3, 2, 1);
    assert_close(tiny.max_abs, 8000.0, 0);
}

TEST(test_bf16) {
    assert_int_equal(smelt__bf16_from_float(1.0F), 0x3f80);
    assert_int_equal(smelt__bf16_from_float(-2.0F), 0xc000);
    assert_int_equal(smelt__bf16_from_float(1.0F + 1.0F / 256), 0x3f80); /* tie, down to even */
    assert_int_equal(smelt__bf16_from_float(1.0F + 3.0F / 256), 0x3f82); /* tie, up to even */
    assert_int_equal(smelt__bf16_from_float(1.0F + 1.01F / 256), 0x3f81);
    assert_int_equal(smelt__bf16_from_float(3.4e38F), 0x7f80); /* rounds to infinity */
    assert_int_equal(smelt__bf16_from_float(INFINITY), 0x7f80);
    assert_true(isnan(smelt__bf16_to_float(smelt__bf16_from_float(NAN))));
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = smelt__bf16_to_float((uint16_t)bits);
        if (!isnan(value))
            assert_int_equal(smelt__bf16_from_float(value), bits);
    }
}

/* ---- against another implementation ---------------------------------------------------------- */

/* The streaming softmax (Milakov and Gimelshein), slot by slot. */
static void stream_head(const struct smelt__problem *problem, const smelt_sparse_attn_args *a,
                        int64_t batch, int64_t token, int head, long double *out,
                        long double *lse) {
    const struct smelt__attention_spec *spec = problem->spec;
    const int32_t *indices = a->indices.data, *lengths = a->topk_length.data;
    const float *sinks = a->sink.data;
    const uint16_t *q = a->q.data;
    q += batch * a->q.strides[0] + token * a->q.strides[1] + head * a->q.strides[2];
    indices += batch * a->indices.strides[0] + token * a->indices.strides[1];
    long double high = -INFINITY, sum = 0;
    for (int d = 0; d < spec->dv; d++)
        out[d] = 0;
    for (int64_t i = 0; i < a->width; i++) {
        int64_t row = indices[i];
        if (lengths &&
            i >= lengths[batch * a->topk_length.strides[0] + token * a->topk_length.strides[1]])
            break;
        if (row < 0 || row > a->rows - 1)
            continue;
        const uint16_t *kv = a->kv.data;
        kv += batch * a->kv.strides[0] + row * a->kv.strides[1];
        long double score = 0;
        for (int d = spec->dqk - 1; d >= 0; d--)
            score +=
                (long double)smelt__bf16_to_float(q[d]) * (long double)smelt__bf16_to_float(kv[d]);
        score *= (long double)a->scale;
        long double higher = score > high ? score : high;
        long double shrink = expl(high - higher), weight = expl(score - higher);
        for (int d = 0; d < spec->dv; d++)
            out[d] = out[d] * shrink + weight * (long double)smelt__bf16_to_float(kv[d]);
        sum = sum * shrink + weight;
        high = higher;
    }
    *lse = sum > 0 ? high + logl(sum) : -INFINITY;
    long double sink = sinks ? expl((long double)sinks[head] - high) : 0;
    for (int d = 0; d < spec->dv; d++)
        out[d] = sum > 0 ? out[d] / (sum + sink) : 0;
}

static int close_enough(long double a, double b) {
    return (isinf(a) && a == (long double)b) || fabsl(a - (long double)b) <= 1e-9L * (1 + fabsl(a));
}

static void compare_problem(const struct smelt__problem *problem) {
    const struct smelt__attention_spec *spec = problem->spec;
    int heads = spec->heads, dv = spec->dv;
    smelt_sparse_attn_args resolved;
    memcpy(&resolved, problem->args, sizeof resolved);
    int64_t queries = resolved.batches * resolved.tokens;
    smelt__sparse_attn_resolve_strides(spec, &resolved);
    double *out = malloc((size_t)(queries * heads * (dv + 2)) * sizeof *out);
    assert_non_null(out);
    struct smelt__attention_results results = {out, out + queries * heads * dv, NULL, NULL, NULL};
    assert_int_equal(sparse_attn_reference(spec, problem->args, NULL, queries, &results), 0);
    for (int64_t at = 0; at < queries * heads; at++) {
        long double expected[256], lse;
        int64_t query = at / heads;
        stream_head(problem, &resolved, query / resolved.tokens, query % resolved.tokens,
                    (int)(at % heads), expected, &lse);
        assert_true(close_enough(lse, results.lse[at]));
        for (int d = 0; d < dv; d++)
            assert_true(close_enough(expected[d], out[at * dv + d]));
    }
    free(out);
}

static uint64_t seed;

TEST(test_against_streaming) {
    for (uint64_t i = 0; i < 60; i++) {
        struct smelt__random random = smelt__random_at(seed, 0, i);
        struct smelt__problem problem;
        struct smelt__attention_spec spec = {0};
        struct smelt__problem_options options = {.seed = seed + i};
        spec.heads = 1 + (int)smelt__random_below(&random, MAX_HEADS + 2);
        spec.dv = 16 * (1 + (int)smelt__random_below(&random, 8));
        spec.dqk = spec.dv + 16 * (int)smelt__random_below(&random, 5);
        spec.topk = 1 + (int)smelt__random_below(&random, 40);
        spec.sink = (int)smelt__random_below(&random, 2);
        options.batches = 1 + smelt__random_below(&random, 3);
        options.tokens = 1 + smelt__random_below(&random, 5);
        options.rows = 1 + smelt__random_below(&random, 60);
        options.lists = (enum smelt__lists)(i % 4);
        options.spiky = smelt__random_below(&random, 3) == 0;
        options.topk_length = (int)smelt__random_below(&random, 2);
        options.strided = (int)smelt__random_below(&random, 2);
        assert_int_equal(smelt__problem_create(&problem, &smelt__harness_sparse_attn,
                                               &smelt__harness_sparse_attn.passes[0], &spec,
                                               &options),
                         0);
        compare_problem(&problem);
        smelt__problem_destroy(&problem);
    }
}

/* Computing selected queries gives the same results as computing all, in the requested order. */
TEST(test_some_queries) {
    struct smelt__problem problem;
    struct smelt__attention_spec spec = {.heads = 2, .dqk = 64, .dv = 64, .topk = 8};
    struct smelt__problem_options options = {.seed = seed, .batches = 2, .tokens = 3};
    assert_int_equal(smelt__problem_create(&problem, &smelt__harness_sparse_attn,
                                           &smelt__harness_sparse_attn.passes[0], &spec, &options),
                     0);
    const int64_t some[] = {5, 0, 3};
    double all_out[6 * 2 * 64], out[3 * 2 * 64], all_lse[6 * 2], lse[3 * 2];
    struct smelt__attention_results all = {all_out, all_lse, NULL, NULL, NULL};
    struct smelt__attention_results results = {out, lse, NULL, NULL, NULL};
    assert_int_equal(sparse_attn_reference(&spec, problem.args, NULL, 6, &all), 0);
    assert_int_equal(sparse_attn_reference(&spec, problem.args, some, 3, &results), 0);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(lse + i * 2, all_lse + some[i] * 2, 2 * sizeof *lse);
        assert_memory_equal(out + i * 128, all_out + some[i] * 128, 128 * sizeof *out);
    }
    smelt__problem_destroy(&problem);
}

TESTS("reference", .seed = &seed)
