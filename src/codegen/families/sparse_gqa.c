/* The operator sparse_gqa: sparse attention for grouped heads (docs/operators.md). */
#include "codegen/families/sparse_gqa.h"

#include "codegen/families/sparse_gqa_block.h"
#include "codegen/families/sparse_gqa_keys.h"
#include "codegen/families/sparse_gqa_lists.h"

enum { FWD }; /* members by number */

static const struct smelt__member members[] = {
    [FWD] = {"fwd", &smelt__sparse_gqa_fwd.schema, SMELT__FORWARD},
};

static const struct smelt__kernel_family *const kernels[] = {&smelt__sparse_gqa_fwd,
                                                            &smelt__sparse_gqa_lists,
                                                            &smelt__sparse_gqa_merge, NULL};

static const struct smelt__key keys[] = {
    SMELT__SPARSE_GQA_HEADS,
    SMELT__SPARSE_GQA_WIDTHS,
    {SMELT__REQUIRED("topk", "the most entries of a list"), SMELT__RANGE(1, 65536)},
    SMELT__SPARSE_GQA_LISTS,
    SMELT__SPARSE_GQA_SINK,
};

static void add_merge(const struct smelt__spec *spec, struct smelt__expansion *expansion) {
    static const char *const inherited[] = {"heads",       "kv_heads", "dqk", "dv",
                                            "granularity", "lists",    "sink"};
    struct smelt__spec *const merge =
        smelt__expansion_add_other(expansion, &smelt__sparse_gqa_merge, SMELT__FORWARD);
    for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++)
        smelt__spec_set(merge, inherited[i], smelt__spec_get(spec, inherited[i]));
}

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    const struct smelt__spec *fwd = smelt__expansion_add(expansion, spec, FWD, pass);
    if (smelt__sparse_gqa_may_be_block(fwd)) {
        for (int i = 0; i < SMELT__GQA_LISTS_PASSES; i++)
            smelt__spec_set(smelt__expansion_add_other(expansion, &smelt__sparse_gqa_lists, pass),
                            "pass", i);
        add_merge(spec, expansion);
    }
}

static const struct smelt__preset_row presets[] = {{NULL, NULL}};

const struct smelt__operator_family smelt__sparse_gqa = {
    .schema = {.name = "sparse_gqa",
               .is_operator = 1,
               .example = "sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,"
                          "lists=kv",
               .summary = "sparse attention for grouped heads: lists of blocks of rows",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys,
               .members = members,
               .member_count = sizeof members / sizeof *members,
               .check = smelt__sparse_gqa_check},
    .passes = SMELT__FORWARD,
    .kernels = kernels,
    .expand = expand,
    .presets = presets,
};
