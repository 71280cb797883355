/* The kernel family sparse_attn_bwd_sum: the deterministic mode's sums of partial rows. */
#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/spec/keys.h"

static const struct smelt__key keys[] = {
    SMELT__REQUIRED("dqk", "64..576", "width of a row", 64, 576),
};

static int plan_sum(const struct smelt__spec *spec, const struct smelt__arch *arch,
                    struct smelt__plan *plan, struct smelt__message *message) {
    (void)arch;
    (void)plan;
    smelt__message_set(message, "%s is not there yet", spec->schema->name);
    return -1;
}

static const struct smelt__variant variants[] = {
    {"sum", plan_sum, NULL},
    {NULL, NULL, NULL},
};

const struct smelt__family smelt__sparse_attn_bwd_sum = {
    .schema = {.name = "sparse_attn_bwd_sum",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys},
    .summary = "sums of partial rows of dkv in a fixed order",
    .variants = variants,
};
