/* The sample of the GPU suite's cases: equal shares, drawn by names and seed alone. */

#include "../gpu/sample.h"
#include "test.h"

enum { OPERATORS = 3 };

static const int sizes[OPERATORS] = {4, 300, 300};

static void name_case(char name[32], int op, int number) {
    snprintf(name, 32, "case %d of %d", number, op);
}

/* Adds each operator's cases, in reverse order if `backwards`. */
static struct sample *draw(size_t size, uint64_t seed, int backwards) {
    struct sample *sample = sample_create(size, seed);
    assert_non_null(sample);
    for (int op = 0; op < OPERATORS; op++)
        for (int i = 0; i < sizes[op]; i++) {
            char name[32];
            name_case(name, op, backwards ? sizes[op] - 1 - i : i);
            assert_int_equal(sample_add(sample, op, name), 0);
        }
    assert_false(sample_is_complete(sample));
    sample_draw(sample);
    assert_true(sample_is_complete(sample));
    return sample;
}

static int count(const struct sample *sample, int op) {
    int drawn = 0;
    for (int i = 0; i < sizes[op]; i++) {
        char name[32];
        name_case(name, op, i);
        drawn += sample_has(sample, op, name);
    }
    return drawn;
}

TEST(test_shares) {
    static const struct {
        size_t size;
        int drawn[OPERATORS];
    } cases[] = {
        {1, {1, 1, 1}}, /* at least one of each */
        {9, {3, 3, 3}},     {12, {4, 4, 4}},      {13, {4, 4, 4}},      {14, {4, 5, 5}},
        {104, {4, 50, 50}}, {603, {4, 299, 299}}, {604, {4, 300, 300}}, {10000, {4, 300, 300}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sample *sample = draw(cases[i].size, 1, 0);
        for (int op = 0; op < OPERATORS; op++)
            assert_int_equal(count(sample, op), cases[i].drawn[op]);
        assert_false(sample_has(sample, 0, "case 0 of 1"));
        assert_false(sample_has(sample, OPERATORS, "case 0 of 0"));
        sample_destroy(sample);
    }
}

/* The number of cases that two samples share. */
static int count_common(const struct sample *a, const struct sample *b) {
    int common = 0;
    for (int op = 0; op < OPERATORS; op++)
        for (int i = 0; i < sizes[op]; i++) {
            char name[32];
            name_case(name, op, i);
            common += sample_has(a, op, name) && sample_has(b, op, name);
        }
    return common;
}

TEST(test_draws) {
    struct sample *one = draw(104, 1, 0), *backwards = draw(104, 1, 1), *other = draw(104, 2, 0),
                  *smaller = draw(54, 1, 0);
    assert_int_equal(count_common(one, backwards), 104);
    assert_int_equal(count_common(one, smaller), 54); /* a smaller sample is part of a larger */
    assert_in_range(count_common(one, other), 5, 60); /* about a sixth of 100, and the four */
    sample_destroy(one);
    sample_destroy(backwards);
    sample_destroy(other);
    sample_destroy(smaller);
}

TEST(test_nothing) {
    struct sample *sample = sample_create(5, 1);
    assert_non_null(sample);
    sample_draw(sample);
    assert_false(sample_has(sample, 0, "case"));
    sample_destroy(sample);
    sample_destroy(NULL);
}

TESTS("suite sample")
