/*
 * Registers cmocka's unit tests without a list:
 *
 *     TEST(name) { ... }    a test; tests run in the order of their lines
 *     TESTS("group")        main; where a program begins with something else, its main ends with
 *                           return RUN_TESTS("group");
 *
 * Both take the fields of struct tests, such as TESTS("group", .setup = set_up).
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "random.h"

/* A message, to `given`, contains a part. */
static inline void assert_says(const char *message, const char *part, const char *given) {
    if (!strstr(message, part))
        fail_msg("%s: '%s' lacks '%s'", given, message, part);
}

/* A public call fails with a status and a part of the message. */
#define assert_refused(call, status, part)                                                         \
    do {                                                                                           \
        assert_int_equal(call, status);                                                            \
        assert_says(smelt_last_error(), part, #call);                                              \
    } while (0)

struct tests {
    const char *name;
    CMFixtureFunction setup, teardown;             /* of tests without their own */
    CMFixtureFunction group_setup, group_teardown; /* of the program */
    uint64_t *seed;                                /* is set, and printed; may be NULL */
};

static struct CMUnitTest tests_of_file[64];
static size_t test_count;

static inline void add_test(struct CMUnitTest test) {
    assert_true(test_count < sizeof tests_of_file / sizeof *tests_of_file);
    tests_of_file[test_count++] = test;
}

/* A constructor's priority is its line, so the order does not depend on the compiler. */
#define TEST_WITH(function, set_up, tear_down)                                                     \
    static void function(void **state);                                                            \
    __attribute__((constructor(1000 + __LINE__))) static void add_##function(void) {               \
        add_test((struct CMUnitTest){#function, function, set_up, tear_down, NULL});               \
    }                                                                                              \
    static void function(__attribute__((unused)) void **state)
#define TEST(function) TEST_WITH(function, NULL, NULL)

static inline int run_listed_tests(struct tests tests) {
    for (size_t i = 0; i < test_count; i++) {
        struct CMUnitTest *const test = &tests_of_file[i];
        if (!test->setup_func && !test->teardown_func)
            test->setup_func = tests.setup, test->teardown_func = tests.teardown;
    }
    if (tests.seed)
        *tests.seed = test_seed(tests.name);
    return _cmocka_run_group_tests(tests.name, tests_of_file, test_count, tests.group_setup,
                                   tests.group_teardown);
}

#define RUN_TESTS(...) run_listed_tests((struct tests){.name = __VA_ARGS__})
#define TESTS(...)                                                                                 \
    int main(void) {                                                                               \
        return RUN_TESTS(__VA_ARGS__);                                                             \
    }
