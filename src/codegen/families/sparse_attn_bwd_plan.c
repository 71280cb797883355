/* What the plans of the variants of sparse_attn_bwd have in common; it knows none of them. */
#include <stdio.h>

#include "codegen/families/sparse_attn_bwd.h"

void smelt__sparse_attn_bwd_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    static const struct {
        const char *key, *name, *meaning;
    } constants[] = {
        {"heads", "HEADS", "query heads"},
        {"dqk", "DQK", "width of a query and of a KV row, elements"},
        {"dv", "DV", "width of a value, elements"},
        {"deterministic", "DETERMINISTIC", "1: partial rows of dkv are stored, not added"},
    };
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_sparse_attn_bwd_%s_h%d_qk%d_v%d%s",
             plan->variant, (int)smelt__spec_get(spec, "heads"), (int)smelt__spec_get(spec, "dqk"),
             (int)smelt__spec_get(spec, "dv"),
             smelt__spec_get(spec, "deterministic") ? "_det" : "");
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        smelt__plan_add(plan, constants[i].name, (int)smelt__spec_get(spec, constants[i].key),
                        SMELT__FROM_SPEC, constants[i].meaning);
}
