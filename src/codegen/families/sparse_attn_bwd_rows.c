/* The kernel family sparse_attn_bwd_rows: statistics of the rows for the backward pass: softmax
 * base and delta. */
#include <stdio.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/families/sparse_attn_keys.h"

static const struct smelt__key keys[] = {
    SMELT__DIVIDED("heads", "1..1024", "query heads on this rank", 1, SMELT__SPARSE_ATTN_MAX_HEADS),
    SMELT__REQUIRED("dv", "64, 128, 256, 512", "width of a value", 64, 512),
};

static int plan_rows(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    (void)arch;
    (void)plan;
    smelt__message_set(message, "%s is not there yet", spec->schema->name);
    return -1;
}

static const struct smelt__variant variants[] = {
    {"rows", plan_rows, NULL},
    {NULL, NULL, NULL},
};

const struct smelt__family smelt__sparse_attn_bwd_rows = {
    .schema = {.name = "sparse_attn_bwd_rows",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys},
    .summary = "statistics of the rows for the backward pass: softmax base and delta",
    .variants = variants,
};
