/* What sparse_gqa's kernel families share: the check of a spec, names and constants of plans, and which
 * kernels a spec may have. Also the two families that sum partial results. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "codegen/families/sparse_gqa.h"
#include "codegen/plan/limits.h"

int smelt__sparse_gqa_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const int64_t heads = smelt__spec_get(spec, "heads"),
                  groups = smelt__spec_get(spec, "kv_heads");
    const int64_t dqk = smelt__spec_get(spec, "dqk"), dv = smelt__spec_get(spec, "dv");
    if (heads % groups != 0 || heads / groups > SMELT__SPARSE_GQA_MOST_GROUP)
        return smelt__spec_refuse(spec, message,
                                  "heads=%" PRId64 " is not legal with kv_heads=%" PRId64
                                  "; legal: a multiple of kv_heads, at most %d times it",
                                  heads, groups, SMELT__SPARSE_GQA_MOST_GROUP);
    if (dv <= dqk)
        return 0;
    return smelt__spec_refuse(
        spec, message, "dv=%" PRId64 " is not legal with dqk=%" PRId64 "; legal: at most dqk", dv,
        dqk);
}

/* A key's value, 0 in a family without it. */
static int number_of(const struct smelt__spec *spec, const char *key) {
    return smelt__spec_key(spec->schema, key) < 0 ? 0 : (int)smelt__spec_get(spec, key);
}

void smelt__sparse_gqa_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    static const struct {
        const char *key, *name, *meaning;
    } constants[] = {
        {"heads", "HEADS", "query heads"},
        {"kv_heads", "KV_HEADS", "KV heads"},
        {"dqk", "DQK", "width of a query and of a key, elements"},
        {"dv", "DV", "width of a value, elements"},
        {"granularity", "GRANULARITY", "rows of an entry"},
        {"lists", "LISTS_OF_KV_HEADS", "1: a list for each KV head, 0: one for all"},
    };
    const int heads = (int)smelt__spec_get(spec, "heads");
    const int kv_heads = (int)smelt__spec_get(spec, "kv_heads");
    const int dv = number_of(spec, "dv");
    char value_width[16] = "";
    if (dv > 0)
        snprintf(value_width, sizeof value_width, "_v%d", dv);
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_%s_%s_h%d_kv%d_qk%d%s_r%d_%s",
             spec->schema->name, plan->variant, heads, kv_heads, (int)smelt__spec_get(spec, "dqk"),
             value_width, (int)smelt__spec_get(spec, "granularity"),
             smelt__spec_choice(spec, "lists"));
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        smelt__plan_add(plan, constants[i].name, number_of(spec, constants[i].key),
                        SMELT__FROM_SPEC, constants[i].meaning);
    smelt__plan_add(plan, "GROUP_HEADS", heads / kv_heads, SMELT__DERIVED,
                    "query heads of a KV head");
    smelt__plan_add(plan, "PDL", plan->arch->pdl, SMELT__DERIVED,
                    "1: has programmatic dependent launch");
}

/* ---- block-stationary kernels ---------------------------------------------------------------- */

int smelt__sparse_gqa_units(const struct smelt__spec *spec) {
    const int group = (int)(smelt__spec_get(spec, "heads") / smelt__spec_get(spec, "kv_heads"));
    return (group + SMELT__SPARSE_GQA_UNIT - 1) / SMELT__SPARSE_GQA_UNIT;
}

void smelt__sparse_gqa_block_constants(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const int shared = smelt__spec_get(spec, "lists") == SMELT__SPARSE_GQA_SHARED;
    smelt__plan_add(plan, "LIST_HEADS", shared ? (int)smelt__spec_get(spec, "kv_heads") : 1,
                    SMELT__DERIVED, "KV heads that share a list");
    smelt__plan_add(plan, "UNITS", smelt__sparse_gqa_units(spec), SMELT__DERIVED,
                    "groups of 8 of a KV head's query heads");
}

int smelt__sparse_gqa_grad_may_be_block(const struct smelt__spec *spec) {
    return smelt__spec_get(spec, "granularity") >= SMELT__SPARSE_GQA_BLOCK &&
           smelt__spec_get(spec, "dqk") + smelt__spec_get(spec, "dv") <=
               SMELT__SPARSE_GQA_MOST_COLUMNS;
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
    SMELT__GQA_KEY_SHAPE,
    SMELT__GQA_KEY_SINK,
    SMELT__GQA_KEY_UNITE,
};

static int plan_merge(const struct smelt__spec *spec, const struct smelt__arch *arch,
                      struct smelt__plan *plan, struct smelt__message *message) {
    const int dv = (int)smelt__spec_get(spec, "dv");
    (void)arch, (void)message; /* every architecture has it */
    plan->template_name = "sparse_gqa_merge.cu";
    smelt__sparse_gqa_name(spec, plan);
    smelt__sparse_gqa_block_constants(spec, plan);
    smelt__plan_add(plan, "COLUMNS", dv, SMELT__DERIVED, "columns of a partial result");
    smelt__plan_add(plan, "HAS_SINK", (int)smelt__spec_get(spec, "sink"), SMELT__FROM_SPEC,
                    "1: a logit per head in the denominator");
    smelt__plan_add(plan, "UNITES", (int)smelt__spec_get(spec, "unite"), SMELT__FROM_SPEC,
                    "1: lists may be united");
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
    SMELT__GQA_KEY_SHAPE,
};

static int plan_sums(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int of_keys = smelt__spec_get(spec, "pass") == SMELT__GQA_SUMS_KEYS;
    const int dqk = (int)smelt__spec_get(spec, "dqk");
    (void)arch, (void)message; /* every architecture has both */
    plan->variant = smelt__spec_choice(spec, "pass");
    plan->template_name = of_keys ? "sparse_gqa_sums.keys.cu" : "sparse_gqa_sums.queries.cu";
    smelt__sparse_gqa_name(spec, plan);
    smelt__sparse_gqa_block_constants(spec, plan);
    smelt__plan_add(plan, "COLUMNS", dqk, SMELT__DERIVED, "columns of a partial result of a query");
    smelt__plan_add(plan, "BLOCK_KEYS", (int)smelt__spec_get(spec, "granularity"), SMELT__DERIVED,
                    "keys of a block");
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
