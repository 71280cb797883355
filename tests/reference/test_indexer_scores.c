/* Compares the reference of indexer_scores with values computed by hand. */

#include <limits.h>
#include <math.h>

#include "../unit/test.h"
#include "reference/bf16.h"
#include "reference/operators.h"

enum { HEADS = 2, DIM = 64, TOKENS = 2, ROWS = 4, WIDTH = 6 };

/* Query 1's heads are 1 and -2 in the first column; key s is s + 1 there, the last one NaN in
 * another. Query 0 and the other columns are 0. */
static uint16_t q[TOKENS][HEADS][DIM], k[ROWS][DIM];
static const float weights[TOKENS][HEADS] = {{5, 5}, {0.5F, 3}};
static const int32_t indices[TOKENS][WIDTH] = {{0, 0, 0, 0, 0, 0}, {2, -1, 0, INT_MAX, 3, 1}};

static int fill(void **state) {
    (void)state;
    q[1][0][0] = smelt__bf16_from_float(1);
    q[1][1][0] = smelt__bf16_from_float(-2);
    for (int s = 0; s < ROWS; s++)
        k[s][0] = smelt__bf16_from_float((float)(s + 1));
    k[ROWS - 1][7] = smelt__bf16_from_float(NAN);
    return 0;
}

static void compute(int64_t query, const int32_t *lengths, double *logits, double *terms) {
    const struct smelt__indexer_scores_spec spec = {
        .heads = HEADS, .dim = DIM, .topk = WIDTH, .granularity = 1, .block_max = 1};
    const smelt_indexer_scores_args args = {
        .size = sizeof args,
        .tokens = TOKENS,
        .rows = ROWS,
        .width = WIDTH,
        .q = {q, {HEADS * DIM, DIM}},
        .k = {k, {DIM}},
        .weights = {weights, {HEADS}},
        .indices = {indices, {WIDTH}},
        .topk_length = {lengths, {1}},
    };
    assert_int_equal(smelt__indexer_scores_reference(&spec, &args, query, logits, terms), 0);
}

/* Only head 0 is positive: half of the key. The sum of absolute values includes both heads. */
TEST(heads_are_added_up) {
    double logits[WIDTH], terms[WIDTH];
    compute(1, NULL, logits, terms);
    assert_true(logits[0] == 1.5 && logits[2] == 0.5 && logits[5] == 1);
    assert_true(terms[0] == 3 * (0.5 + 6) && terms[2] == 0.5 + 6);
}

TEST(masked_slots_are_lowest) {
    double logits[WIDTH], terms[WIDTH];
    compute(1, NULL, logits, terms);
    assert_true(isinf(logits[1]) && logits[1] < 0 && terms[1] == 0);
    assert_true(isinf(logits[3]) && logits[3] < 0 && terms[3] == 0);
}

TEST(nan_is_lowest) {
    double logits[WIDTH], terms[WIDTH];
    compute(1, NULL, logits, terms);
    assert_true(isinf(logits[4]) && logits[4] < 0);
}

TEST(length_cuts) {
    static const int32_t lengths[][TOKENS] = {{6, 1}, {6, -3}, {6, 9}};
    static const int left[] = {1, 0, WIDTH};
    for (int i = 0; i < 3; i++) {
        double logits[WIDTH];
        compute(1, lengths[i], logits, NULL);
        assert_int_equal(isfinite(logits[0]), left[i] > 0);
        assert_int_equal(isfinite(logits[5]), left[i] == WIDTH);
        compute(0, lengths[i], logits, NULL);
        assert_true(logits[0] == 0 && logits[5] == 0);
    }
}

TESTS("indexer_scores", .group_setup = fill)
