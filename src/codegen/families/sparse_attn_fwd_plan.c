/* See sparse_attn_fwd_plan.h. */
#include "codegen/families/sparse_attn_fwd_plan.h"

#include <stdio.h>

#include "codegen/arch.h"

void smelt__sparse_attn_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    static const struct {
        const char *key, *name, *meaning;
    } constants[] = {
        {"heads", "HEADS", "query heads"},
        {"dqk", "DQK", "width of a query and of a KV row, elements"},
        {"dv", "DV", "width of a value, elements"},
        {"topk", "TOPK", "valid slots of a query, at most"},
        {"sink", "HAS_SINK", "1: a logit per head in the denominator"},
    };
    snprintf(plan->kernel_name, sizeof plan->kernel_name,
             "smelt_sparse_attn_fwd_%s_h%d_qk%d_v%d_k%d", plan->variant,
             (int)smelt__spec_get(spec, "heads"), (int)smelt__spec_get(spec, "dqk"),
             (int)smelt__spec_get(spec, "dv"), (int)smelt__spec_get(spec, "topk"));
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        smelt__plan_add(plan, constants[i].name, (int)smelt__spec_get(spec, constants[i].key),
                        SMELT__FROM_SPEC, constants[i].meaning);
    smelt__plan_add(plan, "PDL", plan->arch->pdl, SMELT__DERIVED,
                    "1: has programmatic dependent launch");
}
