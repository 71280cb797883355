/* Compares the gradients' reference with values computed by hand and with finite differences of the
 * forward reference. */
#include <math.h>

#include "../unit/test.h"
#include "harness/random.h"
#include "reference/bf16.h"
#include "reference/operators.h"
#include "sparse_attn_calls.h"

static uint64_t seed;

static void assert_close(double got, double expected, double tolerance) {
    if (!(fabs(got - expected) <= tolerance))
        print_message("got %.12g, expected %.12g\n", got, expected);
    assert_true(fabs(got - expected) <= tolerance);
}

/* ---- by hand --------------------------------------------------------------------------------- */

enum { DV = 2, DQK = 3, ROWS = 3, WIDTH = 5 };

/* One query, one head: q = (1, 0, 2), scale 0.5, grad_out = (1, 2). Rows 0 and 1 score 2, row 2
 * scores 1; dp = 4, 10 and 0. */
struct tiny {
    struct smelt__attention_spec spec;
    smelt_sparse_attn_grad_args args;
    uint16_t q[DQK], kv[ROWS][DQK], out[DV], grad_out[DV];
    int32_t indices[WIDTH], topk_length;
    float sink, lse;
    double dq[DQK], dkv[ROWS][DQK], dsink;
};

static void to_bf16(const float *from, int count, uint16_t *to) {
    for (int i = 0; i < count; i++)
        to[i] = smelt__bf16_from_float(from[i]);
}

/* out and lse are the forward pass's results. */
static void tiny_make(struct tiny *tiny, const int32_t *indices, int width, float lse, float out0,
                      float out1) {
    static const float q[DQK] = {1, 0, 2}, grad_out[DV] = {1, 2};
    static const float kv[ROWS][DQK] = {{2, 1, 1}, {4, 3, 0}, {0, 0, 1}};
    memset(tiny, 0, sizeof *tiny);
    tiny->spec = (struct smelt__attention_spec){0};
    tiny->spec.heads = 1;
    tiny->spec.dqk = DQK;
    tiny->spec.dv = DV;
    tiny->spec.topk = WIDTH;
    to_bf16(q, DQK, tiny->q);
    to_bf16(kv[0], ROWS * DQK, tiny->kv[0]);
    to_bf16(grad_out, DV, tiny->grad_out);
    to_bf16((const float[]){out0, out1}, DV, tiny->out);
    memcpy(tiny->indices, indices, (size_t)width * sizeof *indices);
    tiny->lse = lse;
    tiny->args = (smelt_sparse_attn_grad_args)SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    tiny->args.batches = tiny->args.tokens = 1;
    tiny->args.rows = ROWS;
    tiny->args.width = width;
    tiny->args.scale = 0.5F;
    tiny->args.q.data = tiny->q;
    tiny->args.kv.data = tiny->kv;
    tiny->args.indices.data = tiny->indices;
    tiny->args.out.data = tiny->out;
    tiny->args.lse.data = &tiny->lse;
    tiny->args.grad_out.data = tiny->grad_out;
}

static void tiny_sink(struct tiny *tiny, float sink) {
    tiny->sink = sink;
    tiny->spec.sink = 1;
    tiny->args.sink.data = &tiny->sink;
}

static void tiny_run(struct tiny *tiny) {
    static const int64_t keys[ROWS] = {0, 1, 2};
    const struct smelt__row_grads dq = {.grads = tiny->dq}, dkv = {.grads = tiny->dkv[0]};
    assert_int_equal(sparse_attn_dq(&tiny->spec, &tiny->args, NULL, 1, &dq), 0);
    assert_int_equal(sparse_attn_dkv(&tiny->spec, &tiny->args, NULL, 1, keys, ROWS, &dkv), 0);
    if (tiny->spec.sink)
        assert_int_equal(
            sparse_attn_dsink(&tiny->spec, &tiny->args, NULL, 1, 0, &tiny->dsink, NULL), 0);
}

static void expect_row(const double *got, double a, double b, double c) {
    assert_close(got[0], a, 1e-12);
    assert_close(got[1], b, 1e-12);
    assert_close(got[2], c, 1e-12);
}

static void expect_nothing(const struct tiny *tiny) {
    const double *all = tiny->dkv[0];
    for (int i = 0; i < DQK; i++)
        assert_true(tiny->dq[i] == 0);
    for (int i = 0; i < ROWS * DQK; i++)
        assert_true(all[i] == 0);
    assert_true(tiny->dsink == 0);
}

/* p = 1: the score has no effect, and the value's gradient is out's. */
TEST(test_single_key) {
    struct tiny tiny;
    tiny_make(&tiny, (const int32_t[]){1}, 1, 2, 4, 3);
    tiny_run(&tiny);
    expect_row(tiny.dq, 0, 0, 0);
    expect_row(tiny.dkv[0], 0, 0, 0);
    expect_row(tiny.dkv[1], 1, 2, 0);
    expect_row(tiny.dkv[2], 0, 0, 0);
}

/* p = 1/2 each, delta = 7, ds = 0.5 / 2 * (4 - 7) and 0.5 / 2 * (10 - 7). */
TEST(test_two_keys) {
    struct tiny tiny;
    tiny_make(&tiny, (const int32_t[]){0, 1}, 2, 0, 3, 2);
    tiny.lse = (float)(2 + log(2.0));
    tiny.args.scale = 0.5F;
    tiny_run(&tiny);
    const double p = exp(2 - (double)tiny.lse), ds = 0.5 * p * 3; /* p: of lse in fp32 */
    assert_close(p, 0.5, 1e-7);
    expect_row(tiny.dq, ds * 2, ds * 2, -ds);
    expect_row(tiny.dkv[0], p - ds, 2 * p, -2 * ds);
    expect_row(tiny.dkv[1], p + ds, 2 * p, 2 * ds);
    expect_row(tiny.dkv[2], 0, 0, 0);
}

/* Three times row 0, once row 1: p = 1/4 a slot, delta = 5.5. */
TEST(test_duplicates) {
    struct tiny tiny;
    tiny_make(&tiny, (const int32_t[]){0, 1, 0, 0}, 4, 0, 2.5F, 1.5F);
    tiny.lse = (float)(2 + log(4.0));
    tiny_run(&tiny);
    const double p = exp(2 - (double)tiny.lse), first = 0.5 * p * -1.5, second = 0.5 * p * 4.5;
    expect_row(tiny.dq, 3 * first * 2 + second * 4, 3 * first + second * 3, 3 * first);
    expect_row(tiny.dkv[0], 3 * (first + p), 6 * p, 6 * first);
    expect_row(tiny.dkv[1], second + p, 2 * p, 2 * second);
}

/* A sink equal to the only score has half of the weight, one of +inf all, one of -inf none. */
TEST(test_sink) {
    struct tiny tiny;
    tiny_make(&tiny, (const int32_t[]){1}, 1, 2, 2, 1.5F); /* half of (4, 3): delta = 5 */
    tiny_sink(&tiny, 2);
    tiny_run(&tiny);
    const double ds = 0.5 * 0.5 * 5;
    expect_row(tiny.dq, 4 * ds, 3 * ds, 0);
    expect_row(tiny.dkv[1], 0.5 + ds, 1, 2 * ds);
    assert_close(tiny.dsink, -2.5, 1e-12);
    tiny_make(&tiny, (const int32_t[]){1}, 1, 2, 0, 0);
    tiny_sink(&tiny, INFINITY);
    tiny_run(&tiny);
    expect_nothing(&tiny);
    tiny_make(&tiny, (const int32_t[]){1}, 1, 2, 4, 3);
    tiny_sink(&tiny, -INFINITY);
    tiny_run(&tiny);
    expect_row(tiny.dq, 0, 0, 0);
    expect_row(tiny.dkv[1], 1, 2, 0);
    assert_true(tiny.dsink == 0);
}

TEST(test_empty) {
    const float sinks[] = {-INFINITY, INFINITY, 2.0F};
    for (int i = 0; i < 3; i++) {
        struct tiny tiny;
        tiny_make(&tiny, (const int32_t[]){-1, ROWS, INT32_MAX, INT32_MIN}, 4, -INFINITY, 0, 0);
        tiny_sink(&tiny, sinks[i]);
        tiny_run(&tiny);
        expect_nothing(&tiny);
        tiny_make(&tiny, (const int32_t[]){0, 1}, 2, -INFINITY, 0, 0);
        tiny_sink(&tiny, sinks[i]);
        tiny.topk_length = -i;
        tiny.args.topk_length.data = &tiny.topk_length;
        tiny_run(&tiny);
        expect_nothing(&tiny);
    }
}

/* Masked slots, slots from topk_length on, and valid slots beyond topk are ignored. */
TEST(test_some_slots) {
    for (int i = 0; i < 3; i++) {
        struct tiny tiny;
        tiny_make(&tiny, (const int32_t[]){INT32_MIN, -1, 1, ROWS, i == 0 ? -1 : 2}, 5, 2, 4, 3);
        tiny.topk_length = 4;
        if (i == 1)
            tiny.args.topk_length.data = &tiny.topk_length;
        if (i == 2)
            tiny.spec.topk = 1;
        tiny_run(&tiny);
        expect_row(tiny.dq, 0, 0, 0);
        expect_row(tiny.dkv[1], 1, 2, 0);
        expect_row(tiny.dkv[2], 0, 0, 0);
    }
}

/* Scores beyond the range of exp. */
TEST(test_large_scores) {
    struct tiny tiny;
    tiny_make(&tiny, (const int32_t[]){1, 2}, 2, 4000, 4, 3);
    tiny.args.scale = 1000;
    tiny_run(&tiny); /* scores 4000 and 2000 */
    expect_row(tiny.dq, 0, 0, 0);
    expect_row(tiny.dkv[1], 1, 2, 0);
    expect_row(tiny.dkv[2], 0, 0, 0);
    tiny_sink(&tiny, 4000);
    to_bf16((const float[]){2, 1.5F}, DV, tiny.out);
    tiny_run(&tiny);
    assert_close(tiny.dq[0], 4 * 2500, 1e-7);
    assert_close(tiny.dq[1], 3 * 2500, 1e-7);
    assert_close(tiny.dsink, -2.5, 1e-11);
}

/* ---- against differences --------------------------------------------------------------------- */

enum { B = 2, T = 3, S = 5, H = 4, W = 6, Q = 7, V = 5, MOST_LISTED = 8 };

/* A random problem whose numbers, and those two steps above and below, are exact in bf16. */
struct random_case {
    struct smelt__attention_spec spec;
    smelt_sparse_attn_grad_args args;
    uint16_t q[B * T * H * Q], kv[B * S * Q], out[B * T * H * V], grad_out[B * T * H * V];
    int32_t indices[B * T * W], lengths[B * T];
    float sink[H], lse[B * T * H];
    int64_t listed[MOST_LISTED], listed_count;
};

static const double STEP = 1.0 / 64;

static void draw_numbers(struct smelt__random *random, int count, uint16_t *to) {
    for (int i = 0; i < count; i++)
        to[i] =
            smelt__bf16_from_float((float)STEP * (float)(smelt__random_below(random, 121) - 60));
}

static void draw_lists(struct random_case *one, struct smelt__random *random) {
    static const int32_t masked[] = {-1, S, INT32_MAX, INT32_MIN};
    for (int i = 0; i < B * T * W; i++)
        one->indices[i] = smelt__random_below(random, 4) == 0
                              ? masked[smelt__random_below(random, 4)]
                              : (int32_t)smelt__random_below(random, S);
    for (int i = 0; i < B * T; i++)
        one->lengths[i] = (int32_t)smelt__random_below(random, W + 3) - 1;
    for (int i = 0; i < H; i++)
        one->sink[i] = (float)smelt__random_below(random, 9) / 4.0F - 1.0F;
    one->sink[smelt__random_below(random, H)] = -INFINITY;
    one->sink[smelt__random_below(random, H)] = INFINITY;
    one->listed_count = 1 + smelt__random_below(random, MOST_LISTED);
    for (int i = 0; i < one->listed_count; i++) /* a query may occur twice */
        one->listed[i] = smelt__random_below(random, B * T);
}

static void draw_case(struct random_case *one, uint64_t number) {
    struct smelt__random random = smelt__random_at(seed, 1, number);
    memset(one, 0, sizeof *one);
    one->spec = (struct smelt__attention_spec){0};
    one->spec.heads = H;
    one->spec.dqk = Q;
    one->spec.dv = V;
    one->spec.topk = number % 3 == 0 ? 3 : W;
    one->spec.sink = number % 2 == 0;
    draw_numbers(&random, B * T * H * Q, one->q);
    draw_numbers(&random, B * S * Q, one->kv);
    draw_numbers(&random, B * T * H * V, one->grad_out);
    draw_lists(one, &random);
    one->args = (smelt_sparse_attn_grad_args)SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    one->args.batches = B;
    one->args.tokens = T;
    one->args.rows = S;
    one->args.width = W;
    one->args.scale = 0.75F;
    one->args.q.data = one->q;
    one->args.kv.data = one->kv;
    one->args.indices.data = one->indices;
    one->args.out.data = one->out;
    one->args.lse.data = one->lse;
    one->args.grad_out.data = one->grad_out;
    if (number % 4 < 2)
        one->args.topk_length.data = one->lengths;
    if (one->spec.sink)
        one->args.sink.data = one->sink;
}

/* sum of grad_out * out over the listed queries, as often as they are listed. */
static double loss(const struct random_case *one) {
    const struct smelt__attention call = smelt__sparse_attn_grad_attention(&one->spec, &one->args);
    double out[MOST_LISTED * H * V], sum = 0;
    const struct smelt__attention_results results = {.out = out};
    assert_int_equal(smelt__attention_forward(&call, one->listed, one->listed_count, &results), 0);
    for (int64_t i = 0; i < one->listed_count; i++)
        for (int k = 0; k < H * V; k++)
            sum += out[i * H * V + k] *
                   (double)smelt__bf16_to_float(one->grad_out[one->listed[i] * H * V + k]);
    return sum;
}

/* lse, and an out in bf16 whose product with grad_out is exact; gradients depend on out only
 * through it. Each column compensates the previous ones' remainder. */
static void run_forward(struct random_case *one) {
    const struct smelt__attention call = smelt__sparse_attn_grad_attention(&one->spec, &one->args);
    double out[B * T * H * V], lse[B * T * H];
    const struct smelt__attention_results results = {.out = out, .lse = lse};
    assert_int_equal(smelt__attention_forward(&call, NULL, B * T, &results), 0);
    for (int row = 0; row < B * T * H; row++) {
        double left = 0;
        one->lse[row] = (float)lse[row];
        for (int d = 0; d < V; d++)
            left += out[row * V + d] * (double)smelt__bf16_to_float(one->grad_out[row * V + d]);
        for (int d = 0; d < V; d++) {
            const double grad = (double)smelt__bf16_to_float(one->grad_out[row * V + d]);
            const uint16_t part = smelt__bf16_from_float(grad == 0 ? 0.0F : (float)(left / grad));
            one->out[row * V + d] = part;
            left -= grad * (double)smelt__bf16_to_float(part);
        }
        assert_close(left, 0, 1e-7);
    }
}

static double loss_at(struct random_case *one, uint16_t *number, double by) {
    const uint16_t kept = *number;
    *number = smelt__bf16_from_float(smelt__bf16_to_float(kept) + (float)by);
    assert_true((double)smelt__bf16_to_float(*number) - (double)smelt__bf16_to_float(kept) == by);
    const double got = loss(one);
    *number = kept;
    return got;
}

/* Combines two central differences so that their second-order errors cancel. */
static double slope(struct random_case *one, uint16_t *number) {
    const double near = loss_at(one, number, STEP) - loss_at(one, number, -STEP);
    const double far = loss_at(one, number, 2 * STEP) - loss_at(one, number, -2 * STEP);
    return (8 * near - far) / (12 * STEP);
}

static const double TOLERANCE = 5e-6;

static void expect_dq(struct random_case *one, int64_t *compared) {
    double dq[MOST_LISTED * H * Q], cancelled[MOST_LISTED * H];
    const struct smelt__row_grads results = {.grads = dq, .cancelled = cancelled};
    assert_int_equal(
        sparse_attn_dq(&one->spec, &one->args, one->listed, one->listed_count, &results), 0);
    for (int64_t i = 0; i < one->listed_count; i++) {
        int times = 0; /* each occurrence gives the query's dq */
        for (int64_t k = 0; k < one->listed_count; k++)
            times += one->listed[k] == one->listed[i];
        for (int k = 0; k < H * Q; k++) {
            assert_close(dq[i * H * Q + k], slope(one, &one->q[one->listed[i] * H * Q + k]) / times,
                         TOLERANCE);
            assert_true(fabs(dq[i * H * Q + k]) <= cancelled[i * H + k / Q] * (1 + 1e-12));
            (*compared)++;
        }
    }
}

static void expect_dkv(struct random_case *one, int64_t *compared) {
    double dkv[B * S * Q], cancelled[B * S];
    int64_t keys[B * S];
    const struct smelt__row_grads results = {.grads = dkv, .cancelled = cancelled};
    for (int i = 0; i < B * S; i++)
        keys[i] = B * S - 1 - i;
    assert_int_equal(sparse_attn_dkv(&one->spec, &one->args, one->listed, one->listed_count, keys,
                                     B * S, &results),
                     0);
    for (int i = 0; i < B * S; i++)
        for (int d = 0; d < Q; d++) {
            const double got = dkv[i * Q + d];
            assert_close(got, slope(one, &one->kv[keys[i] * Q + d]), TOLERANCE);
            assert_true(fabs(got) <= cancelled[i] * (1 + 1e-12));
            *compared += got != 0;
        }
}

static void expect_dsink(struct random_case *one) {
    for (int head = 0; head < H; head++) {
        const float kept = one->sink[head];
        double got, terms, far, near;
        assert_int_equal(sparse_attn_dsink(&one->spec, &one->args, one->listed, one->listed_count,
                                           head, &got, &terms),
                         0);
        assert_true(fabs(got) <= terms * (1 + 1e-12));
        if (isinf(kept)) { /* out does not depend on an infinite sink: it is 0, or there is no
                              sink */
            assert_close(got, 0, 1e-12);
            continue;
        }
        one->sink[head] = kept + (float)STEP;
        near = loss(one);
        one->sink[head] = kept - (float)STEP;
        near -= loss(one);
        one->sink[head] = kept + 2 * (float)STEP;
        far = loss(one);
        one->sink[head] = kept - 2 * (float)STEP;
        far -= loss(one);
        one->sink[head] = kept;
        assert_close(got, (8 * near - far) / (12 * STEP), TOLERANCE);
    }
}

TEST(test_differences) {
    int64_t compared = 0;
    for (uint64_t number = 0; number < 24; number++) {
        struct random_case one;
        draw_case(&one, number);
        run_forward(&one);
        expect_dq(&one, &compared);
        expect_dkv(&one, &compared);
        if (one.spec.sink)
            expect_dsink(&one);
    }
    assert_true(compared > 1000);
}

/* Strides do not change results; a query computed alone has the same result as among all. */
TEST(test_strides) {
    struct random_case one;
    uint16_t grad_out[B * T * H * (V + 3)];
    double packed[B * T * H * Q], got[H * Q];
    const struct smelt__row_grads all = {.grads = packed}, some = {.grads = got};
    draw_case(&one, 2);
    run_forward(&one);
    assert_int_equal(sparse_attn_dq(&one.spec, &one.args, NULL, B * T, &all), 0);
    memset(grad_out, 0xff, sizeof grad_out);
    for (int b = 0; b < B; b++) /* tokens outside heads outside batches */
        for (int t = 0; t < T; t++)
            for (int h = 0; h < H; h++)
                memcpy(grad_out + ((t * H + h) * B + b) * (V + 3),
                       one.grad_out + ((b * T + t) * H + h) * V, V * sizeof *grad_out);
    one.args.grad_out.data = grad_out;
    one.args.grad_out.strides[0] = V + 3;
    one.args.grad_out.strides[1] = H * B * (V + 3);
    one.args.grad_out.strides[2] = B * (V + 3);
    for (int64_t query = 0; query < B * T; query++) {
        assert_int_equal(sparse_attn_dq(&one.spec, &one.args, &query, 1, &some), 0);
        assert_memory_equal(got, packed + query * H * Q, sizeof got);
    }
}

TESTS("grad", .seed = &seed)
