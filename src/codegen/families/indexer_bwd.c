/*
 * The operator indexer_bwd: gradients of the lightning indexer's inputs (docs/operators.md). Its
 * kernels are those of sparse_attn's backward pass, but for the main one.
 */
#include "codegen/families/indexer_bwd.h"

#include "codegen/families/indexer_bwd_main.h"
#include "codegen/families/indexer_keys.h"
#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/families/sparse_attn_keys.h"

enum { MAIN }; /* members by number */

static const struct smelt__member members[] = {
    [MAIN] = {"main", &smelt__indexer_bwd_main.schema},
};

static const struct smelt__family *const kernels[] = {
    &smelt__sparse_attn_bwd_lists,
    &smelt__indexer_bwd_main,
    &smelt__sparse_attn_bwd_sum,
    &smelt__sparse_attn_bwd_finish,
    NULL,
};

static const struct smelt__key keys[] = {
    SMELT__INDEXER_HEADS,
    SMELT__INDEXER_TOPK,
    SMELT__SPARSE_ATTN_DETERMINISTIC,
};

static void add_lists(struct smelt__expansion *expansion, unsigned pass, int64_t lists_pass) {
    smelt__spec_set(smelt__expansion_add_other(expansion, &smelt__sparse_attn_bwd_lists, pass),
                    "pass", lists_pass);
}

/* A kernel of sparse_attn's whose rows are keys'. */
static void add_by_keys(struct smelt__expansion *expansion, const struct smelt__spec *spec,
                        const struct smelt__family *family, unsigned pass) {
    smelt__spec_set(smelt__expansion_add_other(expansion, family, pass), "dqk",
                    smelt__spec_get(spec, "dim"));
}

/* The order is enum smelt__indexer_bwd_kernel's. */
static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    const int deterministic = (int)smelt__spec_get(spec, "deterministic");
    add_lists(expansion, pass, SMELT__BWD_LISTS_GROUP);
    if (deterministic) {
        add_lists(expansion, pass, SMELT__BWD_LISTS_COUNT);
        add_lists(expansion, pass, SMELT__BWD_LISTS_SCAN);
        add_lists(expansion, pass, SMELT__BWD_LISTS_PLACE);
    }
    smelt__expansion_add(expansion, spec, MAIN, pass);
    if (deterministic)
        add_by_keys(expansion, spec, &smelt__sparse_attn_bwd_sum, pass);
    add_by_keys(expansion, spec, &smelt__sparse_attn_bwd_finish, pass);
}

/* docs/operators.md's table of models. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", "heads=32,dim=128,topk=2048"},
    {"glm-5.3-flash", "heads=32,dim=128,topk=2048"},
    {"deepseek-v3.2", "heads=64,dim=128,topk=2048"},
    {"deepseek-v4-flash", "heads=64,dim=128,topk=512"},
    {"deepseek-v4-pro", "heads=64,dim=128,topk=1024"},
    {NULL, NULL},
};

const struct smelt__family smelt__indexer_bwd = {
    .schema = {.name = "indexer_bwd",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys,
               .members = members,
               .member_count = sizeof members / sizeof *members,
               .check = smelt__indexer_check},
    .summary = "gradients of the lightning indexer's queries, weights and keys",
    .passes = SMELT__FORWARD,
    .kernels = kernels,
    .expand = expand,
    .presets = presets,
};
