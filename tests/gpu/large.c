/* Offsets beyond 32 bits: large tensors on a GPU, strides of billions on the emulator. */
#include <stddef.h>

#include "suite.h"

static void run_cases(struct suite *suite, const struct suite_case *cases, int far,
                      const char *skipped) {
    for (int i = 0; cases && cases[i].name; i++) {
        struct suite_case one = cases[i];
        one.problem.seed = suite->seed + (uint64_t)i;
        one.problem.far = far;
        if (skipped)
            suite_skip(suite, one.name, skipped);
        else if (suite_wants(suite, one.name))
            suite_check(suite, one.name, &one, i);
    }
}

void run_large(struct suite *suite) {
    for (suite->op = 0; suite_operators[suite->op] && !suite->quick; suite->op++)
        run_cases(suite, suite_operators[suite->op]->large, 0,
                  suite->emulated ? "too much work for the emulator; far cases take its place"
                                  : NULL);
}

void run_far(struct suite *suite) {
    for (suite->op = 0; suite_operators[suite->op] && suite->emulated; suite->op++)
        run_cases(suite, suite_operators[suite->op]->far, 1, NULL);
}
