/* Compares the reference of indexer_bwd with finite differences of indexer_scores's. */

#include <math.h>

#include "../unit/test.h"
#include "reference/bf16.h"
#include "reference/operators.h"

enum { HEADS = 3, DIM = 64, TOKENS = 3, ROWS = 5, WIDTH = 6 };

/* Numbers that are exact in bf16 also after a step; a logit is linear in each of them as long as no
 * x changes its sign. */
static const float STEP = 0x1p-6F;

static uint16_t q[TOKENS][HEADS][DIM], k[ROWS][DIM];
static float weights[TOKENS][HEADS], grad[TOKENS][WIDTH];
/* A repeated key, masked slots of all kinds, a query without a valid slot; no query names key 3. */
static const int32_t indices[TOKENS][WIDTH] = {
    {2, 0, 2, -1, 4, ROWS}, {-1, ROWS + 7, -5, -1, -1, -1}, {1, 4, 0, 2, 3, 3}};
static const int32_t lengths[TOKENS] = {6, 6, 4};

static const struct smelt__indexer_bwd_spec spec = {
    .heads = HEADS, .dim = DIM, .topk = WIDTH, .granularity = 1};
static const smelt_indexer_bwd_args args = {
    .size = sizeof args,
    .tokens = TOKENS,
    .rows = ROWS,
    .width = WIDTH,
    .q = {q, {HEADS * DIM, DIM}},
    .k = {k, {DIM}},
    .weights = {weights, {HEADS}},
    .indices = {indices, {WIDTH}},
    .topk_length = {lengths, {1}},
    .grad = {grad, {WIDTH}},
};

static int fill(void **state) {
    uint32_t bits = 12345;
    (void)state;
#define DRAW() ((float)((int)((bits = bits * 1664525U + 1013904223U) >> 28) - 8) / 8.0F)
    for (int i = 0; i < TOKENS * HEADS * DIM; i++)
        (&q[0][0][0])[i] = smelt__bf16_from_float(DRAW());
    for (int i = 0; i < ROWS * DIM; i++)
        (&k[0][0])[i] = smelt__bf16_from_float(DRAW());
    for (int i = 0; i < TOKENS * HEADS; i++)
        (&weights[0][0])[i] = DRAW();
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < WIDTH; i++)
            grad[t][i] = smelt__indexer_bwd_slot(&spec, &args, t, i) < 0 ? NAN : DRAW();
#undef DRAW
    return 0;
}

/* The sum of all valid slots' logits times their gradients. */
static double total(void) {
    const struct smelt__indexer_scores_spec scores_spec = {
        .heads = HEADS, .dim = DIM, .topk = WIDTH, .granularity = 1};
    const smelt_indexer_scores_args scores = {
        .size = sizeof scores,
        .tokens = TOKENS,
        .rows = ROWS,
        .width = WIDTH,
        .q = args.q,
        .k = args.k,
        .weights = args.weights,
        .indices = args.indices,
        .topk_length = args.topk_length,
    };
    double sum = 0, logits[WIDTH];
    for (int t = 0; t < TOKENS; t++) {
        assert_int_equal(smelt__indexer_scores_reference(&scores_spec, &scores, t, logits, NULL),
                         0);
        for (int i = 0; i < WIDTH; i++)
            sum += isfinite(logits[i]) ? logits[i] * (double)grad[t][i] : 0;
    }
    return sum;
}

/* The difference quotient for a step of a bf16 number. */
static double slope(uint16_t *number) {
    const uint16_t before = *number;
    double sums[2];
    for (int up = 0; up < 2; up++) {
        *number = smelt__bf16_from_float(smelt__bf16_to_float(before) + (up ? STEP : -STEP));
        sums[up] = total();
    }
    *number = before;
    return (sums[1] - sums[0]) / (2 * (double)STEP);
}

TEST(queries_gradients_are_slopes) {
    double grads[DIM], dweights, terms;
    struct smelt__indexer_bwd_row row = {.grads = grads};
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HEADS; h++) {
            assert_int_equal(smelt__indexer_bwd_head(&spec, &args, t, h, &row, &dweights, &terms),
                             0);
            assert_true(row.doubtful == 0);
            for (int d = 0; d < DIM; d++)
                assert_true(fabs(grads[d] - slope(&q[t][h][d])) < 1e-9);
            assert_true(t != 1 || (row.spread == 0 && dweights == 0 && terms == 0));
            weights[t][h] += 1;
            const double more = total();
            weights[t][h] -= 1;
            assert_true(fabs(dweights - (more - total())) < 1e-9);
            assert_true(terms >= fabs(dweights));
        }
}

TEST(keys_gradients_are_slopes) {
    double grads[DIM];
    struct smelt__indexer_bwd_row row = {.grads = grads};
    int reached = 0;
    for (int s = 0; s < ROWS; s++) {
        double square = 0;
        assert_int_equal(smelt__indexer_bwd_key(&spec, &args, s, &row), 0);
        for (int d = 0; d < DIM; d++) {
            assert_true(fabs(grads[d] - slope(&k[s][d])) < 1e-9);
            square += grads[d] * grads[d];
        }
        reached += square > 0 && row.spread > 0;
        /* Key 3 is after query 2's length. */
        assert_true(s != 3 || (square == 0 && row.spread == 0));
    }
    assert_true(reached > 1);
}

/* x = 0 does not contribute, and if products cancel, the sign is uncertain. */
TEST(zero_is_not_above) {
    uint16_t kept[DIM];
    double grads[DIM];
    struct smelt__indexer_bwd_row row = {.grads = grads};
    for (int d = 0; d < DIM; d++) {
        kept[d] = k[1][d];
        k[1][d] = 0;
    }
    assert_int_equal(smelt__indexer_bwd_key(&spec, &args, 1, &row), 0);
    assert_true(row.spread == 0 && row.doubtful == 0);
    /* Opposite products: x is 0, but its terms are not. */
    const uint16_t first = q[2][0][0], second = q[2][0][1];
    q[2][0][0] = q[2][0][1] = smelt__bf16_from_float(1);
    k[1][0] = smelt__bf16_from_float(1);
    k[1][1] = smelt__bf16_from_float(-1);
    assert_int_equal(smelt__indexer_bwd_key(&spec, &args, 1, &row), 0);
    assert_true(row.doubtful > 0);
    q[2][0][0] = first;
    q[2][0][1] = second;
    for (int d = 0; d < DIM; d++)
        k[1][d] = kept[d];
}

TESTS("indexer_bwd", .group_setup = fill)
