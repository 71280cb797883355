/*
 * The kernel family sparse_attn_bwd_lists: each group's list of keys, out of its queries' index
 * rows; and for the deterministic mode those lists turned around, each key's partial rows. Nothing
 * of an operator is compiled in, so that all of them share these kernels.
 */
#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/spec/keys.h"

static const char *const passes[] = {"group", "count", "scan", "place", NULL};

static const struct smelt__key keys[] = {
    SMELT__REQUIRED_NAME("pass", "group, count, scan, place",
                         "group: the lists of keys; the others: lists by keys", passes),
};

static int plan_lists(const struct smelt__spec *spec, const struct smelt__arch *arch,
                      struct smelt__plan *plan, struct smelt__message *message) {
    (void)arch;
    (void)plan;
    smelt__message_set(message, "%s is not there yet", spec->schema->name);
    return -1;
}

static const struct smelt__variant variants[] = {
    {"lists", plan_lists, NULL},
    {NULL, NULL, NULL},
};

const struct smelt__family smelt__sparse_attn_bwd_lists = {
    .schema = {.name = "sparse_attn_bwd_lists",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys},
    .summary = "lists of keys for the backward pass, compacted, united, turned around",
    .variants = variants,
};
