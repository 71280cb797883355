/* The reference of indexer_logits: infinities with sums of e4m3 products that may be truncated or
 * too small for fp32. fp32's rounding errors near 0 are permitted. */
#include <math.h>

#include "../unit/test.h"
#include "harness/indexer.h"
#include "harness/operator.h"
#include "reference/e4m3.h"
#include "reference/operators.h"

enum { DIM = 3, HEADS = 2 };

/* The logit of two equal heads q = (448, 448, 1) for one key of three numbers. */
static double logit(const float key[DIM], const float weights[HEADS], float scale, double *terms) {
    static const float q[DIM] = {448, 448, 1};
    uint8_t rows[HEADS][DIM], k[DIM];
    const smelt_const_tensor q_tensor = {.data = rows, .strides = {(int64_t)HEADS * DIM, DIM}};
    const smelt_const_tensor k_tensor = {.data = k, .strides = {DIM}};
    const smelt_const_tensor weights_tensor = {.data = weights, .strides = {HEADS}};
    struct smelt__indexer_query query;
    for (int d = 0; d < DIM; d++) {
        k[d] = smelt__e4m3_from_float(key[d]);
        for (int h = 0; h < HEADS; h++)
            rows[h][d] = smelt__e4m3_from_float(q[d]);
    }
    assert_int_equal(smelt__indexer_query_open(&query, HEADS, DIM, SMELT__DTYPE_FP8,
                                               SMELT__WEIGHTS_FP32, &q_tensor, &weights_tensor, 0),
                     0);
    const double found = smelt__indexer_logit(&query, &k_tensor, 0, (double)scale, terms);
    smelt__indexer_query_close(&query);
    return found;
}

/* Whether the rules accept the logit. */
static int obeys(float got, double expected, double terms) {
    struct smelt__finding finding = {.failed = 0};
    smelt__logits_compare(got, expected, terms, 0, &finding);
    return !finding.broken;
}

/* 448 - 448 + 2^-9: less than a tensor core's precision with terms of 896. */
static const float CANCELLED[DIM] = {1, -1, 0.001953125F};
static const float CLEAR[DIM] = {1, 1, 0}, BELOW[DIM] = {-1, -1, 0}, ZERO[DIM] = {0, 0, 0};

static void either_infinity(const float key[DIM], float first, float second, float scale) {
    double terms;
    const double expected = logit(key, (const float[]){first, second}, scale, &terms);
    assert_true(terms < 0);
    assert_true(obeys(INFINITY, expected, terms));
    assert_true(obeys(-INFINITY, expected, terms));
    assert_false(obeys(1, expected, terms));
    assert_false(obeys(NAN, expected, terms));
}

static void one_infinity(const float key[DIM], float first, float second, float scale,
                         float infinity) {
    double terms;
    const double expected = logit(key, (const float[]){first, second}, scale, &terms);
    assert_true(!(terms < 0));
    assert_true(expected == (double)infinity);
    assert_true(obeys(infinity, expected, terms));
    assert_false(obeys(-infinity, expected, terms));
}

TEST(sums_that_may_vanish) {
    either_infinity(CANCELLED, INFINITY, 1, 1);
    either_infinity(CANCELLED, 1, -INFINITY, 1);
    either_infinity(CANCELLED, 1, 1, INFINITY);
    either_infinity(CLEAR, 1, -1, INFINITY); /* the heads cancel out */
}

TEST(sums_that_stay) {
    one_infinity(CLEAR, INFINITY, 1, 1, INFINITY);
    one_infinity(CLEAR, -INFINITY, 1, 1, -INFINITY);
    one_infinity(CLEAR, 1, 1, INFINITY, INFINITY);
    one_infinity(BELOW, INFINITY, 1, 1, -INFINITY); /* infinity times 0 */
    one_infinity(BELOW, 1, 1, INFINITY, -INFINITY);
    one_infinity(ZERO, INFINITY, 1, 1, -INFINITY);
    one_infinity(CANCELLED, INFINITY, NAN, 1, -INFINITY);
    one_infinity(CANCELLED, INFINITY, 1, NAN, -INFINITY);
}

/* A dot product of 2^-9. */
static const float LITTLE[DIM] = {0, 0, 0.001953125F};

/* Times 2^-141 this is half of fp32's smallest number, which a kernel rounds to 0, and again when
 * it adds the other head; with the next larger weight it is rounded up. */
TEST(sums_too_small_for_fp32) {
    const float half = 0x1p-141F, more = 0x1.01p-141F, least = 0x1p-149F;
    assert_true((float)(half * LITTLE[2]) == 0 && (float)(more * LITTLE[2]) > 0);
    either_infinity(LITTLE, half, half, INFINITY);
    either_infinity(LITTLE, half, half, -INFINITY);
    either_infinity(LITTLE, -least, -least, -INFINITY);
    either_infinity(LITTLE, 1, -1, INFINITY);
    one_infinity(LITTLE, more, more, INFINITY, INFINITY);
    one_infinity(LITTLE, more, more, -INFINITY, -INFINITY);
    one_infinity(LITTLE, -more, -more, INFINITY, -INFINITY);
    one_infinity(CLEAR, least, least, INFINITY, INFINITY);
    one_infinity(BELOW, least, least, INFINITY, -INFINITY); /* two zeros, which are exact */
    one_infinity(LITTLE, 0, 0, INFINITY, -INFINITY);
    one_infinity(LITTLE, half, half, NAN, -INFINITY);
    one_infinity(LITTLE, INFINITY, half, 1, INFINITY); /* 2^-9 itself is not too small */
}

/* Errors of 128 heads' products and of the product with the scale, each at most half of fp32's
 * smallest number. */
TEST(what_fp32_loses) {
    const double most = 129 * 0x1p-150;
    assert_true(smelt__logits_error(0, most) == 0);
    assert_true(smelt__logits_error(most, 0) == 0);
    assert_true(smelt__logits_error(0, -most) == 0);
    assert_true(smelt__logits_error(0, 2 * most) == most);
    assert_true(smelt__logits_error(-0x1p-149, 0x1p-140) == 0x1p-140 + 0x1p-149 - most);
    assert_true(smelt__logits_error(2, 1) == 1);
}

TEST(finite_logits) {
    double terms;
    assert_true(logit(CLEAR, (const float[]){1, 0.5F}, 2, &terms) == 2 * 1.5 * 896);
    assert_true(terms == 2 * 1.5 * 896);
    assert_true(logit(CANCELLED, (const float[]){1, 0}, 1, &terms) == 0.001953125);
    assert_true(terms == 896.001953125);
}

TESTS("indexer logits")
