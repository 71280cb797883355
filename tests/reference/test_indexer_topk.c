/* The error of a selection of keys, beyond their logits' errors and fp32's near 0; and wrong
 * selections and values with infinite logits. */
#include <math.h>

#include "../unit/test.h"
#include "reference/operators.h"

enum { KEYS = 4 };

/* The error of selecting the first two of keys with these logits and terms. */
static double error(const double logits[KEYS], const double terms[KEYS]) {
    static const uint8_t chosen[KEYS] = {1, 1, 0, 0};
    return smelt__indexer_topk_error(0, logits, terms, chosen, 0, KEYS);
}

static const double TERMS[KEYS] = {1, 2, 3, 4};

TEST(of_large_logits) {
    assert_true(error((const double[]){4, 3, 2, 1}, TERMS) == 0);
    assert_true(error((const double[]){4, 2, 2, 1}, TERMS) == 0);
    assert_true(fabs(error((const double[]){4, 2, 1, 3}, TERMS) - 1 / 6.0) < 1e-12);
    assert_true(fabs(error((const double[]){-1, 5, 1, -1}, TERMS) - 2 / 4.0) < 1e-12);
}

/* Of 256 and 258 the mean is rounded to 256: 258 must become that, or 256 more. */
TEST(of_logits_rounded_to_bf16) {
    static const uint8_t chosen[KEYS] = {1, 1, 0, 0};
    static const double equal[KEYS] = {300, 256, 257, 1}, higher[KEYS] = {300, 256, 258, 1};
    assert_true(smelt__indexer_topk_error(1, equal, TERMS, chosen, 0, KEYS) == 0);
    assert_true(error(equal, TERMS) > 0.1);
    assert_true(fabs(smelt__indexer_topk_error(1, higher, TERMS, chosen, 0, KEYS) - 1 / 3.0) <
                1e-5);
}

TEST(not_finite) {
    assert_true(error((const double[]){-INFINITY, 3, INFINITY, 1}, TERMS) == 0);
    assert_true(error((const double[]){1, 3, 2, 0}, (const double[]){1, 2, INFINITY, 4}) == 0);
}

/* Each of two logits may have an error of half of fp32's smallest number for each of 128 heads and
 * the scale; logits that are closer are indistinguishable. */
TEST(of_logits_too_small_for_fp32) {
    const double most = 129 * 0x1p-150, terms[KEYS] = {most, most, most, most};
    assert_true(error((const double[]){0, 0, 0x1p-150, -0x1p-150}, terms) == 0);
    assert_true(error((const double[]){0, -most, most, 0}, terms) == 0);
    assert_true(error((const double[]){0, -most, 2 * most, 0}, terms) == 0.5);
    assert_true(error((const double[]){0, 0, 0x1p-130, 0}, terms) > 1000);
    assert_true(error((const double[]){0, 0, 0x1p-126, 0}, TERMS) > 0);
}

/* ---- infinities ------------------------------------------------------------------------------ */

/* The misplaced one of such keys. Letters: P +inf, M -inf, f finite, u either infinity (the
 * reference gives -inf; U: +inf), t finite with infinite terms. */
static int64_t misplaced(const char *keys, const char *choice) {
    enum { MOST = 8 };
    double logits[MOST], terms[MOST];
    uint8_t chosen[MOST];
    int64_t count = 0;
    for (; keys[count]; count++) {
        const char key = keys[count];
        logits[count] = key == 'P' || key == 'U'   ? INFINITY
                        : key == 'M' || key == 'u' ? -INFINITY
                                                   : 1;
        terms[count] = key == 'u' || key == 'U' ? -INFINITY : key == 'f' ? 1 : INFINITY;
        chosen[count] = choice[count] == 'x';
    }
    return smelt__indexer_topk_misplaced(logits, terms, chosen, 0, count);
}

TEST(right_choices_among_infinities) {
    static const char *const right[][2] = {
        {"fPfM", "xx.."}, {"fPtM", ".xx."}, {"PfPP", "x.x."}, {"PMMf", "xx.x"}, {"MMMM", "xx.."},
        {"PPPP", "xx.."}, {"tfMP", "xx.x"}, {"ffff", "..xx"}, {"MPMP", ".x.x"}, {"ffff", "...."},
        {"fMPP", "xxxx"}, {"", ""}, /* no selection, or no key */
    };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++)
        assert_int_equal(misplaced(right[i][0], right[i][1]), -1);
}

TEST(wrong_choices_among_infinities) {
    assert_int_equal(misplaced("fPff", "x..."), 0); /* a finite one before +inf */
    assert_int_equal(misplaced("fPtf", "..x."), 2);
    assert_int_equal(misplaced("MffP", "x..."), 0); /* -inf before it */
    assert_int_equal(misplaced("fPfP", "...x"), 3); /* a later +inf before it */
    assert_int_equal(misplaced("PPPP", "x.x."), 2);
    assert_int_equal(misplaced("fMff", "xx.x"), 1); /* -inf before a finite one */
    assert_int_equal(misplaced("tMtf", "xx.x"), 1);
    assert_int_equal(misplaced("fMMf", "x.xx"), 2); /* a later -inf before another */
    assert_int_equal(misplaced("MMMM", "x..x"), 3);
}

/* An ambiguous infinity counts as +inf if it is selected and as -inf if not. The order of the
 * indices must be consistent with that. */
TEST(choices_among_undecided_infinities) {
    static const char undecided[] = {'u', 'U'};
    for (int i = 0; i < 2; i++) {
        const char u = undecided[i];
        assert_int_equal(misplaced((const char[]){u, 'f', 'P', 'M', 0}, "x.x."), -1);
        assert_int_equal(misplaced((const char[]){u, 'f', 'P', 'M', 0}, ".xx."), -1);
        assert_int_equal(misplaced((const char[]){u, u, u, 'f', 0}, "..x."), -1);
        assert_int_equal(misplaced((const char[]){'M', u, 'f', 0}, "x.x"), -1);
        assert_int_equal(misplaced((const char[]){u, 'M', 'f', 0}, ".xx"), 1);
        assert_int_equal(misplaced((const char[]){'P', u, 'f', 0}, ".x."), 1);
        assert_int_equal(misplaced((const char[]){u, 'P', 'f', 0}, "x.."), -1);
        assert_int_equal(misplaced((const char[]){u, 'P', 'f', 0}, "x.x"), 2);
    }
}

TEST(values) {
    assert_true(smelt__indexer_logit_fits(INFINITY, INFINITY, INFINITY));
    assert_true(smelt__indexer_logit_fits(-INFINITY, -INFINITY, INFINITY));
    assert_true(smelt__indexer_logit_fits(-INFINITY, -INFINITY, NAN));
    assert_true(smelt__indexer_logit_fits(INFINITY, -INFINITY, -INFINITY)); /* either */
    assert_true(smelt__indexer_logit_fits(-INFINITY, INFINITY, -INFINITY));
    assert_true(smelt__indexer_logit_fits(3, 4, 1));
    assert_true(smelt__indexer_logit_fits(3, 4, INFINITY));
    assert_false(smelt__indexer_logit_fits(-INFINITY, INFINITY, INFINITY));
    assert_false(smelt__indexer_logit_fits(INFINITY, -INFINITY, INFINITY));
    assert_false(smelt__indexer_logit_fits(INFINITY, -INFINITY, NAN));
    assert_false(smelt__indexer_logit_fits(3, INFINITY, INFINITY));
    assert_false(smelt__indexer_logit_fits(3, -INFINITY, NAN));
    assert_false(smelt__indexer_logit_fits(3, -INFINITY, -INFINITY));
    assert_false(smelt__indexer_logit_fits(INFINITY, 4, 1));
    assert_false(smelt__indexer_logit_fits(-INFINITY, 4, INFINITY));
    assert_false(smelt__indexer_logit_fits(NAN, 4, 1));
    assert_false(smelt__indexer_logit_fits(NAN, -INFINITY, -INFINITY));
}

TESTS("indexer topk")
