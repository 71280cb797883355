/* What sparse_gqa's kernel families share: the shape in a spec and its check, names and constants of plans. Also
 * the two families that combine partial results. */
#include <stdio.h>

#include "codegen/families/sparse_gqa.h"

enum { MOST_GROUP = 64 /* query heads of a KV head */ };

struct smelt__gqa_shape smelt__sparse_gqa_shape(const struct smelt__spec *spec) {
    const int has_values = smelt__spec_key(spec->schema, "dv") >= 0;
    struct smelt__gqa_shape shape = {.heads = (int)smelt__spec_get(spec, "heads"),
                                     .kv_heads = (int)smelt__spec_get(spec, "kv_heads"),
                                     .dqk = (int)smelt__spec_get(spec, "dqk"),
                                     .granularity = (int)smelt__spec_get(spec, "granularity"),
                                     .dv = has_values ? (int)smelt__spec_get(spec, "dv") : 0};
    shape.lists = smelt__spec_get(spec, "lists") ? shape.kv_heads : 1;
    shape.group = shape.heads / shape.kv_heads;
    shape.units = (shape.group + SMELT__GQA_UNIT - 1) / SMELT__GQA_UNIT;
    return shape;
}

int smelt__sparse_gqa_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const struct smelt__gqa_shape shape = smelt__sparse_gqa_shape(spec);
    if (shape.heads % shape.kv_heads != 0 || shape.group > MOST_GROUP)
        return smelt__spec_refuse(spec, message,
                                  "heads=%d is not legal with kv_heads=%d; legal: a multiple of "
                                  "kv_heads, at most %d times it",
                                  shape.heads, shape.kv_heads, MOST_GROUP);
    if (shape.dv > shape.dqk)
        return smelt__spec_refuse(spec, message,
                                  "dv=%d is not legal with dqk=%d; legal: at most dqk", shape.dv,
                                  shape.dqk);
    return 0;
}

void smelt__sparse_gqa_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const struct smelt__gqa_shape shape = smelt__sparse_gqa_shape(spec);
    char value_width[16] = "";
    if (shape.dv > 0)
        snprintf(value_width, sizeof value_width, "_v%d", shape.dv);
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_%s_%s_h%d_kv%d_qk%d%s_r%d_%s",
             spec->schema->name, plan->variant, shape.heads, shape.kv_heads, shape.dqk, value_width,
             shape.granularity, smelt__spec_choice(spec, "lists"));
    SMELT__PLAN_ADD(plan, spec, {"HEADS", "heads", shape.heads, "query heads"},
                    {"KV_HEADS", "kv_heads", shape.kv_heads, "KV heads"},
                    {"DQK", "dqk", shape.dqk, "width of a query and of a key, elements"},
                    {"DV", shape.dv ? "dv" : NULL, shape.dv, "width of a value, elements"},
                    {"GRANULARITY", "granularity", shape.granularity, "rows of an entry"},
                    {"LISTS_OF_KV_HEADS", "lists", (int)smelt__spec_get(spec, "lists"),
                     "1: a list for each KV head, 0: one for all"},
                    {"GROUP_HEADS", NULL, shape.group, "query heads of a KV head"},
                    {"PDL", NULL, plan->arch->pdl, "1: has programmatic dependent launch"});
}

void smelt__sparse_gqa_name_block(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const struct smelt__gqa_shape shape = smelt__sparse_gqa_shape(spec);
    smelt__sparse_gqa_name(spec, plan);
    SMELT__PLAN_ADD(
        plan, spec,
        {"LIST_HEADS", NULL, shape.kv_heads / shape.lists, "KV heads that share a list"},
        {"UNITS", NULL, shape.units, "groups of 8 of a KV head's query heads"});
}

/* ---- sums of partial results ------------------------------------------------------------------
 * sparse_gqa_merge combines those of the block-stationary forward kernel; sparse_gqa_sums adds those of
 * the backward kernel in a fixed order. */

enum {
    THREADS = 256,
    KEY_THREADS = 128, /* of pass keys: those of a warpgroup of sparse_gqa_bwd_keys */
    WIDE = 128,        /* up to so many columns a thread's sums leave registers for BLOCKS */
    BLOCKS = 2,        /* of a multiprocessor: bound by memory */
    KEY_BLOCKS = 8,
    BLOCKS_WIDE = 1, /* with more columns */
};

static const struct smelt__key merge_keys[] = {
    SMELT__GQA_SHAPE,
    {SMELT__SINK_KEY},
    {SMELT__GQA_UNITE},
};

static int plan_merge(const struct smelt__spec *spec, const struct smelt__arch *arch,
                      struct smelt__plan *plan, struct smelt__message *message) {
    const int dv = (int)smelt__spec_get(spec, "dv");
    (void)arch, (void)message; /* every architecture has it */
    smelt__sparse_gqa_name_block(spec, plan);
    SMELT__PLAN_ADD(
        plan, spec, {"COLUMNS", NULL, dv, "columns of a partial result"},
        {"HAS_SINK", "sink", (int)smelt__spec_get(spec, "sink"),
         "1: a logit per head in the denominator"},
        {"UNITES", "unite", (int)smelt__spec_get(spec, "unite"), "1: lists may be united"});
    smelt__plan_set_threads(plan, THREADS, dv <= WIDE ? BLOCKS : BLOCKS_WIDE);
    plan->persistent = 1;
    return 0;
}

const struct smelt__kernel_family smelt__sparse_gqa_merge = {
    .schema = {.name = "sparse_gqa_merge",
               .summary = "combines sparse_gqa's partial results of blocks of keys",
               SMELT__KEYS(merge_keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"merge", plan_merge}),
};

static const struct smelt__key sums_keys[] = {
    {SMELT__REQUIRED("pass", "queries: dq from partial results of blocks; keys: dk and dv from "
                             "those of queries"),
     SMELT__NAMES_2(queries, keys)},
    SMELT__GQA_SHAPE,
};

static int plan_sums(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int of_keys = smelt__spec_get(spec, "pass") == SMELT__GQA_SUMS_KEYS;
    const int dqk = (int)smelt__spec_get(spec, "dqk");
    (void)arch, (void)message; /* every architecture has both */
    smelt__sparse_gqa_name_block(spec, plan);
    SMELT__PLAN_ADD(
        plan, spec, {"COLUMNS", NULL, dqk, "columns of a partial result of a query"},
        {"BLOCK_KEYS", NULL, (int)smelt__spec_get(spec, "granularity"), "keys of a block"});
    smelt__plan_set_threads(plan, of_keys ? KEY_THREADS : THREADS,
                            of_keys       ? KEY_BLOCKS
                            : dqk <= WIDE ? BLOCKS
                                          : BLOCKS_WIDE);
    plan->persistent = !of_keys;
    return 0;
}

const struct smelt__kernel_family smelt__sparse_gqa_sums = {
    .schema = {.name = "sparse_gqa_sums",
               .summary = "adds partial gradients of sparse_gqa",
               SMELT__KEYS(sums_keys),
               .check = smelt__sparse_gqa_check},
    /* Both passes; a plan is named after its pass. */
    SMELT__VARIANTS({"sums", plan_sums}),
};
