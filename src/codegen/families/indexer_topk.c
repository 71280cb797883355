/*
 * The operator indexer_topk: the lightning indexer's choice of keys (docs/operators.md). Its
 * kernels are those of indexer_logits and of topk_select.
 */
#include "codegen/families/indexer_topk.h"

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/families/indexer_scores_fwd.h"
#include "codegen/families/topk_select_rows.h"

enum { FWD, SELECT, PUBLISH, SCORES }; /* members by number */

static const struct smelt__member members[] = {
    [FWD] = {"fwd", &smelt__indexer_logits_fwd.schema, 0},
    [SELECT] = {"rows", &smelt__topk_select_rows.schema, 0},
    [PUBLISH] = {"publish", &smelt__topk_select_rows.schema, 0},
    [SCORES] = {"scores", &smelt__indexer_scores_fwd.schema, 0},
};

static const struct smelt__key keys[] = {
    SMELT__INDEXER_SHAPE,
    SMELT__INDEXER_SCORING,
    SMELT__TOPK_KEYS,
    SMELT__TOPK_LIST_KEYS,
    SMELT__INDEXER_STORED_LOGITS,
    {SMELT__OPTIONAL("publish", "blocks that are published beside the choice; 0: none"),
     SMELT__RANGE(0, 16384)},
    {SMELT__OPTIONAL("publish_block", "keys of such a block, whose largest logit counts"),
     SMELT__ONE_OF(1, 2, 4, 8, 16, 32, 64, 128), .default_value = 1},
    {SMELT__OPTIONAL("publish_pinned", "of the published blocks: the last ones of a window"),
     SMELT__RANGE(0, 16384)},
    SMELT__INDEXER_WEIGHTS_DTYPE,
};

/* Rows of candidates are selected by the pass rows alone: one block per row. */
int smelt__indexer_topk_selections(const struct smelt__spec *spec) {
    return smelt__spec_get(spec, "candidate_block") > 0 ? 1 : smelt__topk_select_kernels(spec);
}

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    const int block = (int)smelt__spec_get(spec, "publish_block");
    const struct smelt__topk_setting choice[] = {{NULL, 0}};
    const struct smelt__topk_setting published[] = {
        {"topk", (int)smelt__spec_get(spec, "publish")},
        {"order", SMELT__TOPK_BY_INDEX},
        {"pinned", (int)smelt__spec_get(spec, "publish_pinned")},
        {"expand", 1},
        {"tail", 0},
        {"block_max", block},
        {"load_block", block / (int)smelt__spec_get(spec, "block_max")},
        {NULL, 0}};
    const int count = smelt__indexer_topk_selections(spec);
    smelt__indexer_logits_expand(expansion, spec, FWD, SCORES, pass);
    smelt__topk_select_expand(expansion, spec, SELECT, pass, count, choice);
    if (smelt__spec_get(spec, "publish") > 0)
        smelt__topk_select_expand(expansion, spec, PUBLISH, pass, SMELT__TOPK_WARPS, published);
}

static int check_published(const struct smelt__spec *spec, struct smelt__message *message) {
    const int publish = (int)smelt__spec_get(spec, "publish");
    const int block = (int)smelt__spec_get(spec, "publish_block");
    const int pinned = (int)smelt__spec_get(spec, "publish_pinned");
    const int block_max = (int)smelt__spec_get(spec, "block_max");
    if (publish == 0 && (block > 1 || pinned > 0))
        return smelt__spec_refuse(spec, message,
                                  "%s needs publish, the number of blocks to publish",
                                  block > 1 ? "publish_block" : "publish_pinned");
    if (pinned > publish)
        return smelt__spec_refuse(spec, message,
                                  "publish_pinned=%d exceeds publish=%d; pinned blocks count among "
                                  "them, so at most %d can be",
                                  pinned, publish, publish);
    if (publish > 0 && block < block_max)
        return smelt__spec_refuse(spec, message,
                                  "publish_block=%d is below block_max=%d; published blocks are "
                                  "made of whole logits, so at least publish_block=%d is needed",
                                  block, block_max, block_max);
    if (smelt__spec_get(spec, "candidate_block") > 0 && publish > 0)
        return smelt__spec_refuse(
            spec, message,
            "publish does not go with candidate_block; publish where all keys are scored");
    if (smelt__spec_get(spec, "candidate_block") > 0 && smelt__spec_get(spec, "pinned") > 0)
        return smelt__spec_refuse(spec, message,
                                  "pinned does not go with candidate_block; pin the blocks where "
                                  "they are published, with publish_pinned");
    return 0;
}

static int check(const struct smelt__spec *spec, struct smelt__message *message) {
    return smelt__indexer_scoring_check(spec, message) || smelt__topk_select_check(spec, message) ||
                   check_published(spec, message)
               ? -1
               : 0;
}

/* docs/operators.md's table of models. bf16: what trainers choose keys with, and every architecture
 * has it. The order that attention takes best.
 * glm-5.3-flash: pools of 4 keys, and lists of rows with a tail (width min(n_kv, topk + kpool - 1) in
 * ggml-org/llama.cpp#27752, glm5next); heads as GLM-5.2's, since no configuration was found.
 * deepseek-v4.1: one layer publishes candidate_topk_blocks=2048 blocks of candidate_block_size=8, and
 * later layers select index_topk=512 in them (sgl-project/sglang#38944, #39671); heads, and the
 * pinned newest block, as in the project's design, since no configuration was found.
 * qwen3.8-flash-next: 4 heads of 128 without weights, indexer_budget=2048 tokens in blocks of
 * indexer_compress_ratio=4, a tail (NVIDIA/cudnn-frontend#830). Lists of pools: sparse_gqa takes them
 * with granularity=4, and the incomplete pool as one more entry.
 * minimax-m3: no ReLU, a constant scale, for each of 4 groups the largest score of a block
 * (tenstorrent/tt-metal#48205), 16 blocks of 128 (sgl-project/sglang-jax#1375), the local one always
 * (ggml-org/llama.cpp#24908); the number of groups as in the project's design. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", "heads=32,dim=128,dtype=bf16,topk=2048"},
    {"glm-5.3-flash", "heads=32,dim=128,dtype=bf16,topk=512,expand=4,tail=1"},
    {"deepseek-v3.2", "heads=64,dim=128,dtype=bf16,topk=2048"},
    {"deepseek-v4-flash", "heads=64,dim=128,dtype=bf16,topk=512"},
    {"deepseek-v4-pro", "heads=64,dim=128,dtype=bf16,topk=1024"},
    {"deepseek-v4.1",
     "heads=64,dim=128,dtype=bf16,topk=512,publish=2048,publish_block=8,publish_pinned=1"},
    {"deepseek-v4.1", "heads=64,dim=128,dtype=bf16,topk=512,candidate_block=8"},
    {"qwen3.8-flash-next", "heads=4,dim=128,dtype=bf16,weights=0,topk=512"},
    {"minimax-m3", "heads=4,dim=128,dtype=bf16,activation=none,weights=0,groups=4,block_max=128,"
                   "topk=16,pinned=1"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__indexer_topk = {
    .schema =
        {.name = "indexer_topk",
         .is_operator = 1,
         .example = "indexer_topk:heads=32,dim=128,dtype=bf16,topk=2048",
         .summary =
             "the lightning indexer's choice: of each query's keys those with the best logits",
         SMELT__KEYS(keys),
         SMELT__MEMBERS(members),
         .check = check},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&smelt__indexer_logits_fwd, &smelt__topk_select_rows,
                    &smelt__indexer_scores_fwd),
    .expand = expand,
    .presets = presets,
};
