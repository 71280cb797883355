/* Offsets beyond 32 bits: large tensors on a GPU, strides of billions on the emulator. */
#include <stdio.h>

#include "harness/defaults.h"
#include "suite.h"

void run_large(struct suite *suite) {
    for (suite->op = 0; suite_operators[suite->op] && !suite->quick; suite->op++) {
        const struct suite_case *const cases = suite_operators[suite->op]->large;
        for (int i = 0; cases && cases[i].name; i++) {
            struct suite_case one = cases[i];
            one.problem.seed = suite->seed + (uint64_t)i;
            if (suite->emulated)
                suite_skip(suite, one.name,
                           "too much work for the emulator; far cases take its place");
            else if (suite_wants(suite, one.name))
                suite_check(suite, one.name, &one, i);
        }
    }
}

/* Checks case number `number` of an operator: a spec with a small problem. `last`: its inputs are of the
 * operator's last kind; else the kinds alternate. */
static void check_far(struct suite *suite, const char *spec,
                      const struct smelt__problem_options *small, int last, int number) {
    const struct smelt__harness_operator *const op = smelt__harness_find(spec);
    struct suite_case one = {.problem = *small};
    char name[SUITE_SPEC + 64];
    int count = 0;
    for (struct smelt__problem_options kind = *small; op && smelt__options_kind(op, count, &kind);)
        count++;
    if (count == 0)
        return;
    smelt__options_kind(op, last ? count - 1 : number % count, &one.problem);
    one.problem.seed = suite->seed + (uint64_t)number;
    one.problem.far = 1;
    snprintf(one.spec, sizeof one.spec, "%s", spec);
    snprintf(name, sizeof name, "far: %s, %s", spec, smelt__harness_inputs(op, &one.problem));
    if (suite_wants(suite, name))
        suite_check(suite, name, &one, number);
}

/* The specs and small problems of the group launches, and those of this group alone. Their strides are billions, so that
 * every product of an index and a stride exceeds 2^32 elements. */
void run_far(struct suite *suite) {
    for (suite->op = 0; suite_operators[suite->op] && suite->emulated; suite->op++) {
        const struct suite_operator *const op = suite_operators[suite->op];
        int number = 0;
        for (const char *const *spec = op->launches; *spec; spec++)
            check_far(suite, *spec, &op->quick_launch, 0, number++);
        for (const struct suite_case *of = op->far; of && *of->spec; of++)
            check_far(suite, of->spec, &of->problem, 1, number++);
    }
}
