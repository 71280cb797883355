/* The kernel family sparse_attn_bwd_finish: dkv out of its sums, and dsink. */
#include <stdio.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/families/sparse_attn_keys.h"

static const struct smelt__key keys[] = {
    SMELT__REQUIRED("dqk", "64..576", "width of a KV row", 64, 576),
};

static int plan_finish(const struct smelt__spec *spec, const struct smelt__arch *arch,
                       struct smelt__plan *plan, struct smelt__message *message) {
    (void)arch;
    (void)plan;
    smelt__message_set(message, "%s is not there yet", spec->schema->name);
    return -1;
}

static const struct smelt__variant variants[] = {
    {"finish", plan_finish, NULL},
    {NULL, NULL, NULL},
};

const struct smelt__family smelt__sparse_attn_bwd_finish = {
    .schema = {.name = "sparse_attn_bwd_finish",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys},
    .summary = "dkv out of its sums, and dsink",
    .variants = variants,
};
