/* The kernel family indexer_clean_fill: -inf outside the windows of a matrix. */
#include <stdio.h>

#include "codegen/families/indexer_clean.h"
#include "codegen/plan/limits.h"

enum {
    THREADS = 256,
    BLOCKS = 4 /* of a multiprocessor: bound by memory, so that many stores are under way */
};

static int plan_fill(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    (void)spec, (void)arch, (void)message; /* every architecture has it */
    plan->variant = "fill";
    plan->template_name = "indexer_clean_fill.cu";
    smelt__plan_set_threads(plan, THREADS, BLOCKS);
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_indexer_clean_fill");
    smelt__plan_add(plan, "BLOCK_KEYS", SMELT__INDEXER_CLEAN_KEYS, SMELT__DERIVED,
                    "keys of an item");
    return 0;
}

static const struct smelt__variant variants[] = {
    {"fill", plan_fill, NULL},
    {NULL, NULL, NULL},
};

const struct smelt__kernel_family smelt__indexer_clean_fill = {
    .schema = {.name = "indexer_clean_fill",
               .summary = "-inf outside the windows of a matrix of logits"},
    .variants = variants,
};
