/* The operator indexer_clean: -inf outside the windows of a matrix (docs/operators.md). */
#include <stddef.h>

#include "codegen/families/indexer_clean.h"

static const struct smelt__kernel_family *const kernels[] = {&smelt__indexer_clean_fill, NULL};

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    (void)spec;
    smelt__expansion_add_other(expansion, &smelt__indexer_clean_fill, pass);
}

/* For matrices that others wrote: no model asks for it. */
static const struct smelt__preset_row presets[] = {{NULL, NULL}};

const struct smelt__operator_family smelt__indexer_clean = {
    .schema = {.name = "indexer_clean",
               .is_operator = 1,
               .summary = "-inf outside the windows of a matrix of logits"},
    .passes = SMELT__FORWARD,
    .kernels = kernels,
    .expand = expand,
    .presets = presets,
};
