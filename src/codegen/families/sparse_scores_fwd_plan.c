/* See sparse_scores_fwd_plan.h. */
#include "codegen/families/sparse_scores_fwd_plan.h"

#include <stdio.h>

#include "codegen/arch.h"

enum { WARP = 32 /* threads */ };

void smelt__sparse_scores_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    static const struct {
        const char *key, *name, *meaning;
    } constants[] = {
        {"heads", "HEADS", "query heads"},
        {"dqk", "DQK", "width of a query and of a KV row, elements"},
        {"dv", "DV", "width of a value, elements"},
    };
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_sparse_scores_fwd_%s_h%d_qk%d_v%d",
             plan->variant, (int)smelt__spec_get(spec, "heads"), (int)smelt__spec_get(spec, "dqk"),
             (int)smelt__spec_get(spec, "dv"));
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        smelt__plan_add(plan, constants[i].name, (int)smelt__spec_get(spec, constants[i].key),
                        SMELT__FROM_SPEC, constants[i].meaning);
    smelt__plan_add(plan, "HEAD_BLOCKS", 1, SMELT__DERIVED, "items of a query");
    smelt__plan_add(plan, "QUERIES_AHEAD", WARP, SMELT__DERIVED,
                    "entries of a query list that a warp holds");
    smelt__plan_add(plan, "PDL", plan->arch->pdl, SMELT__DERIVED,
                    "1: has programmatic dependent launch");
}
