/* The operator indexer_clean, -inf outside the windows of a matrix (docs/operators.md), and its kernel
 * family indexer_clean_fill. */
#include <stddef.h>
#include <stdio.h>

#include "codegen/family.h"
#include "codegen/plan/limits.h"

/* ---- the kernel ------------------------------------------------------------------------------- */

enum {
    THREADS = 256,
    BLOCKS = 4 /* of a multiprocessor: bound by memory, so that many stores are under way */
};

static int plan_fill(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    (void)spec, (void)arch, (void)message; /* every architecture has it */
    smelt__plan_set_threads(plan, THREADS, BLOCKS);
    return 0;
}

static const struct smelt__kernel_family indexer_clean_fill = {
    .schema = {.name = "indexer_clean_fill",
               .summary = "-inf outside the windows of a matrix of logits"},
    SMELT__VARIANTS({"fill", plan_fill}),
};

/* ---- the operator ----------------------------------------------------------------------------- */

const struct smelt__operator_family smelt__indexer_clean = {
    .schema = {.name = "indexer_clean",
               .is_operator = 1,
               .example = "indexer_clean",
               .summary = "-inf outside the windows of a matrix of logits"},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&indexer_clean_fill),
};
