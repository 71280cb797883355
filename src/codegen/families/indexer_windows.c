/* The operator indexer_windows: windows of the lightning indexer, built on the device
 * (docs/operators.md). Nothing of a call is compiled in: one kernel serves them all. */
#include <stddef.h>

#include "codegen/families/indexer_windows.h"

static const struct smelt__kernel_family *const kernels[] = {&smelt__indexer_windows_build, NULL};

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    (void)spec;
    smelt__expansion_add_other(expansion, &smelt__indexer_windows_build, pass);
}

/* Every model that chooses its keys. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", ""},           {"glm-5.3-flash", ""},   {"deepseek-v3.2", ""},
    {"deepseek-v4-flash", ""}, {"deepseek-v4-pro", ""}, {NULL, NULL},
};

const struct smelt__operator_family smelt__indexer_windows = {
    .schema = {.name = "indexer_windows",
               .is_operator = 1,
               .summary =
                   "for each query the keys it may choose from, out of cu_seqlens and the like"},
    .passes = SMELT__FORWARD,
    .kernels = kernels,
    .expand = expand,
    .presets = presets,
};
