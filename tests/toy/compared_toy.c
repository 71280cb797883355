/* The requirements on the toy's outputs: see tests/reference/compared/compared.h. */
#include <stddef.h>

#include "../reference/compared/compared.h"
#include "../reference/compared/tables.h"
#include "smelt/kernels.h"

static const struct smelt__problem_options problems[] = {{.tokens = 5},
                                                         {.tokens = 4, .batches = 2, .strided = 1}};
static const char *const specs[] = {"toy:width=75,passes=both", NULL};

static double bar(const struct bench *bench, double parts) {
    (void)bench, (void)parts;
    return 1e-5;
}

static const struct compared_metric forward_metrics[] = {
    {"rows", EACH_ELEMENT, size_is_1, bar, 0, {"out"}}, {0}};
static const struct compared_metric backward_metrics[] = {
    {"rows", EACH_ELEMENT, size_is_1, bar, 0, {"dx"}}, {0}};
static const struct compared_rule forward_rules[] = {{"zero", {"out"}, ZERO, NULL}, {0}};
static const struct compared_rule backward_rules[] = {{0}};

static const struct compared_pass passes[] = {
    {SMELT_PASS_FORWARD, specs, problems, 2, forward_metrics, forward_rules, NULL, NULL},
    {SMELT_PASS_BACKWARD, specs, problems, 2, backward_metrics, backward_rules, NULL, NULL},
};

static const struct compared toy = {"toy", passes, 2};

/* Test "comparisons" covers the other operators of this program's registry. */
static const struct smelt__harness_operator *const registry[] = {&smelt__harness_toy, NULL};
const struct smelt__harness_operator *const *compared_registry = registry;
const struct compared *const compared_operators[] = {&toy, NULL};
