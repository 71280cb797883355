/* How wrong a choice of keys is: by more than their logits' errors and what fp32 loses near 0. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "reference/indexer_topk.h"

enum { KEYS = 4 };

/* Of keys of such logits and terms, the first two chosen. */
static double error(const double logits[KEYS], const double terms[KEYS]) {
    static const uint8_t chosen[KEYS] = {1, 1, 0, 0};
    return smelt__indexer_topk_error(logits, terms, chosen, 0, KEYS);
}

static const double TERMS[KEYS] = {1, 2, 3, 4};

static void of_large_logits(void **state) {
    (void)state;
    assert_true(error((const double[]){4, 3, 2, 1}, TERMS) == 0);
    assert_true(error((const double[]){4, 2, 2, 1}, TERMS) == 0);
    assert_true(fabs(error((const double[]){4, 2, 1, 3}, TERMS) - 1 / 6.0) < 1e-12);
    assert_true(fabs(error((const double[]){-1, 5, 1, -1}, TERMS) - 2 / 4.0) < 1e-12);
}

static void not_finite(void **state) {
    (void)state;
    assert_true(error((const double[]){-INFINITY, 3, INFINITY, 1}, TERMS) == 0);
    assert_true(error((const double[]){1, 3, 2, 0}, (const double[]){1, 2, INFINITY, 4}) == 0);
}

/* Each of two keys' logits may be off by half of fp32's least number for each of 128 heads and the
 * scale: what is closer to one another than that cannot be told apart. */
static void of_logits_too_small_for_fp32(void **state) {
    const double most = 129 * 0x1p-150, terms[KEYS] = {most, most, most, most};
    (void)state;
    assert_true(error((const double[]){0, 0, 0x1p-150, -0x1p-150}, terms) == 0);
    assert_true(error((const double[]){0, -most, most, 0}, terms) == 0);
    assert_true(error((const double[]){0, -most, 2 * most, 0}, terms) == 0.5);
    assert_true(error((const double[]){0, 0, 0x1p-130, 0}, terms) > 1000);
    assert_true(error((const double[]){0, 0, 0x1p-126, 0}, TERMS) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_large_logits),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(of_logits_too_small_for_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
