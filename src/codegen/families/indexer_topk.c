/*
 * The operator indexer_topk: the lightning indexer's choice of keys (docs/operators.md). Its
 * kernels are those of indexer_logits and of topk_select.
 */
#include "codegen/families/indexer_topk.h"

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/families/topk_select_rows.h"

enum { FWD, SELECT }; /* members by number */

static const struct smelt__member members[] = {
    [FWD] = {"fwd", &smelt__indexer_logits_fwd.schema, 0},
    [SELECT] = {"rows", &smelt__topk_select_rows.schema, 0},
};

static const struct smelt__kernel_family *const kernels[] = {&smelt__indexer_logits_fwd,
                                                             &smelt__topk_select_rows, NULL};

static const struct smelt__key keys[] = {SMELT__INDEXER_SHAPE, SMELT__TOPK_KEYS};

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    smelt__expansion_add(expansion, spec, FWD, pass);
    const struct smelt__topk_setting settings[] = {{NULL, 0}};
    smelt__topk_select_expand(expansion, spec, SELECT, pass, SMELT__TOPK_PASSES, settings);
}

/* docs/operators.md's table of models. bf16: what trainers choose keys with, and every architecture
 * has it. The order that attention takes best. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", "heads=32,dim=128,dtype=bf16,topk=2048"},
    {"glm-5.3-flash", "heads=32,dim=128,dtype=bf16,topk=2048"},
    {"deepseek-v3.2", "heads=64,dim=128,dtype=bf16,topk=2048"},
    {"deepseek-v4-flash", "heads=64,dim=128,dtype=bf16,topk=512"},
    {"deepseek-v4-pro", "heads=64,dim=128,dtype=bf16,topk=1024"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__indexer_topk = {
    .schema =
        {.name = "indexer_topk",
         .is_operator = 1,
         .example = "indexer_topk:heads=32,dim=128,dtype=bf16,topk=2048",
         .summary =
             "the lightning indexer's choice: of each query's keys those with the best logits",
         .keys = keys,
         .key_count = sizeof keys / sizeof *keys,
         .members = members,
         .member_count = sizeof members / sizeof *members},
    .passes = SMELT__FORWARD,
    .kernels = kernels,
    .expand = expand,
    .presets = presets,
};
