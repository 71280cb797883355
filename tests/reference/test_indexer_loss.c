/* Compares indexer_loss's reference with values computed by hand, and its gradient with finite
 * differences of its loss. */
#include <float.h>
#include <math.h>

#include "../unit/test.h"
#include "harness/random.h"
#include "reference/operators.h"

enum { WIDTH = 6, ROWS = 9 };

/* One query with masked slots of both kinds. */
struct tiny {
    smelt_indexer_loss_args args;
    float logits[WIDTH], target[WIDTH], weight, grad_loss;
    int32_t indices[WIDTH], topk_length;
};

static void tiny_make(struct tiny *tiny) {
    static const int32_t indices[WIDTH] = {3, -1, 0, 8, 3, 2};
    memset(tiny, 0, sizeof *tiny);
    memcpy(tiny->indices, indices, sizeof indices);
    tiny->topk_length = 5;
    tiny->weight = 1;
    tiny->grad_loss = 1;
    for (int i = 0; i < WIDTH; i++)
        tiny->logits[i] = tiny->target[i] = NAN; /* in masked slots */
    tiny->args = (smelt_indexer_loss_args)SMELT_INDEXER_LOSS_ARGS_INIT;
    tiny->args.tokens = 1;
    tiny->args.rows = ROWS;
    tiny->args.width = WIDTH;
    tiny->args.query_weight = 1;
    tiny->args.logits.data = tiny->logits;
    tiny->args.target.data = tiny->target;
    tiny->args.indices.data = tiny->indices;
    tiny->args.topk_length.data = &tiny->topk_length;
    tiny->args.weight.data = &tiny->weight;
    tiny->args.grad_loss.data = &tiny->grad_loss;
}

/* Its valid slots: 0, 2, 3, 4. */
static void tiny_set(struct tiny *tiny, const float logits[4], const float target[4]) {
    static const int slots[4] = {0, 2, 3, 4};
    for (int i = 0; i < 4; i++) {
        tiny->logits[slots[i]] = logits[i];
        tiny->target[slots[i]] = target[i];
    }
}

static double tiny_run(const struct tiny *tiny, double *grad) {
    double q[WIDTH], p[WIDTH];
    return smelt__indexer_loss_reference(&tiny->args, 0, q, p, grad).loss;
}

static void assert_close(double got, double expected, double tolerance) {
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("%.17g, expected %.17g", got, expected);
}

/* q = 1/8, 1/8, 1/4, 1/2 and p = 1/2, 0, 1/4, 1/4, the target being four times that. */
TEST(by_hand) {
    const float logits[4] = {logf(2), logf(2), logf(4), logf(8)}, target[4] = {2, 0, 1, 1};
    const double expected[WIDTH] = {0.125 - 0.5, 0, 0.125, 0, 0.25, 0};
    struct tiny tiny;
    double grad[WIDTH];
    tiny_make(&tiny);
    tiny_set(&tiny, logits, target);
    assert_close(tiny_run(&tiny, grad), 0.5 * log(4) + 0.25 * log(0.5), 1e-6);
    for (int i = 0; i < WIDTH; i++)
        assert_close(grad[i], expected[i], 1e-6);
    tiny.weight = -3;
    tiny.args.query_weight = 0.5F;
    tiny.grad_loss = 10;
    assert_close(tiny_run(&tiny, grad), -1.5 * (0.5 * log(4) + 0.25 * log(0.5)), 1e-6);
    for (int i = 0; i < WIDTH; i++)
        assert_close(grad[i], -15 * expected[i], 1e-5);
}

/* Each of these conditions by itself makes loss and gradient 0. */
TEST(nothing) {
    static const float logits[4] = {1, 2, 3, 4}, target[4] = {1, 2, 3, 4};
    static const float bad[][4] = {{0, 0, 0, 0},
                                   {NAN, -1, 0, -INFINITY},
                                   {1, INFINITY, 1, 1},
                                   {FLT_MAX, FLT_MAX, 0, 0},
                                   {1e-45F, 0, 1e-45F, 0}};
    static const float weights[] = {0, NAN, INFINITY, -INFINITY};
    struct tiny tiny;
    double grad[WIDTH];
    for (int number = 0; number < 11; number++) {
        tiny_make(&tiny);
        tiny_set(&tiny, logits, number < 5 ? bad[number] : target);
        if (number >= 5 && number < 9)
            tiny.weight = weights[number - 5];
        if (number == 9)
            tiny.topk_length = -2;
        if (number == 10)
            tiny.args.rows = 0;
        assert_true(tiny_run(&tiny, grad) == 0);
        for (int i = 0; i < WIDTH; i++)
            assert_true(grad[i] == 0);
    }
}

/* Numbers that are replaced by others, by slot. */
TEST(odd_numbers) {
    static const struct {
        float logits[4], target[4], as_logits[4], as_target[4];
    } cases[] = {
        {{1, 2, 3, 4}, {1, NAN, -3, 4}, {1, 2, 3, 4}, {1, 0, 0, 4}},
        {{1, NAN, 3, 4}, {1, 0, 3, 4}, {1, -INFINITY, 3, 4}, {1, 0, 3, 4}},
        {{INFINITY, 0, 0, 0}, {1, 0, 0, 0}, {FLT_MAX, 0, 0, 0}, {1, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tiny odd, plain;
        double grads[2][WIDTH];
        tiny_make(&odd);
        tiny_make(&plain);
        tiny_set(&odd, cases[i].logits, cases[i].target);
        tiny_set(&plain, cases[i].as_logits, cases[i].as_target);
        const double loss = tiny_run(&odd, grads[0]);
        assert_true(isfinite(loss) && loss == tiny_run(&plain, grads[1]));
        assert_memory_equal(grads[0], grads[1], sizeof grads[0]);
    }
}

/* A target at a slot with logit -inf: the loss is infinite, the gradient is not. */
TEST(unexplained) {
    static const float some[4] = {-INFINITY, 0, 0, 0}, target[4] = {1, 1, 1, 1};
    static const float none[4] = {-INFINITY, NAN, -INFINITY, NAN};
    struct tiny tiny;
    double grad[WIDTH];
    tiny_make(&tiny);
    tiny_set(&tiny, some, target);
    assert_true(tiny_run(&tiny, grad) == INFINITY);
    assert_close(grad[0], -0.25, 1e-12);
    assert_close(grad[2], 1.0 / 3 - 0.25, 1e-12);
    tiny.weight = -1;
    tiny_set(&tiny, none, target);
    assert_true(tiny_run(&tiny, grad) == -INFINITY);
    assert_close(grad[4], 0.25, 1e-12);
    assert_true(grad[1] == 0 && grad[5] == 0);
}

/* Central differences, with the steps that fp32 logits actually take. */
TEST(differences) {
    struct smelt__random random = smelt__random_at(5, 0, 0);
    for (int round = 0; round < 200; round++) {
        float logits[4], target[4];
        double grad[WIDTH];
        struct tiny tiny;
        tiny_make(&tiny);
        for (int i = 0; i < 4; i++) {
            logits[i] = (float)smelt__random_below(&random, 8000) / 1000 - 4;
            target[i] = (float)smelt__random_below(&random, 1000) / 100;
        }
        target[0] += 1;
        tiny_set(&tiny, logits, target);
        tiny.weight = 2;
        tiny_run(&tiny, grad);
        for (int i = 0; i < WIDTH; i++) {
            struct tiny more = tiny, less = tiny;
            more.args.logits.data = more.logits;
            less.args.logits.data = less.logits;
            more.logits[i] += 0x1p-10F;
            less.logits[i] -= 0x1p-10F;
            const double step = (double)more.logits[i] - (double)less.logits[i];
            const double slope = (tiny_run(&more, NULL) - tiny_run(&less, NULL)) / step;
            assert_close(isnan(step) ? 0 : slope, grad[i], 1e-6);
        }
    }
}

TESTS("indexer_loss")
