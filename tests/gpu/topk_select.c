/* topk_select in the GPU suite: what its cases are. */
#include <stdio.h>
#include <string.h>

#include "suite.h"

extern const struct suite_operator suite_operator_topk_select;

static int no_case(const struct suite *suite, int number, struct suite_case *one) {
    (void)suite, (void)number, (void)one;
    return 0;
}

static const char *const launches[] = {NULL};

static void launch_options(const struct suite *suite, struct smelt__problem_options *options) {
    options->tokens = suite->quick || suite->emulated ? 3 : 500;
}

static const struct suite_group groups[] = {{NULL, NULL}};

const struct suite_operator suite_operator_topk_select = {.matrix = no_case,
                                                          .large = no_case,
                                                          .far = no_case,
                                                          .launches = launches,
                                                          .launch = launch_options,
                                                          .groups = groups};
