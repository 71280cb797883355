/* Offsets beyond 32 bits: large tensors on a GPU, strides of billions on the emulator. */
#include <stdio.h>
#include <string.h>

#include "suite.h"

static void run_cases(struct suite *suite, suite_cases cases, const char *skipped) {
    struct suite_case one;
    memset(&one, 0, sizeof one);
    for (int i = 0; cases && cases(suite, i, &one); i++, memset(&one, 0, sizeof one)) {
        if (skipped)
            suite_skip(suite, one.name, skipped);
        else if (suite_wants(suite, one.name))
            suite_check(suite, one.name, &one, i);
    }
}

void run_large(struct suite *suite) {
    for (suite->op = 0; suite_operators[suite->op] && !suite->quick; suite->op++)
        run_cases(suite, suite_operators[suite->op]->large,
                  suite->emulated ? "too much work for the emulator; far cases take its place"
                                  : NULL);
}

void run_far(struct suite *suite) {
    for (suite->op = 0; suite_operators[suite->op] && suite->emulated; suite->op++)
        run_cases(suite, suite_operators[suite->op]->far, NULL);
}
