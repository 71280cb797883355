/*
 * The kernel family sparse_attn_fwd: which variant a spec gets, and what all of them have in
 * common. The rule: sm90 wherever it can be planned, else mma: measured on an H200 at topk 2048 it
 * is faster at any number of heads (bench/LOG.md). Asking for a variant by name gets that one or
 * the reason why not.
 */
#include <stdio.h>

#include "codegen/families/sparse_attn_fwd.h"

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
    smelt__plan_add(plan, "DEPENDENT_LAUNCH", plan->arch->dependent_launch, SMELT__DERIVED,
                    "1: a kernel may begin before the one ahead of it has ended");
}

const char *smelt__sparse_attn_fwd_sm90_knob(const struct smelt__spec *spec) {
    static const char *const knobs[] = {"orientation",      "part_tiles",       "turn_steps",
                                        "output_registers", "gather_registers", "racecheck"};
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++)
        if (smelt__spec_get(spec, knobs[i]) != SMELT__AUTO)
            return knobs[i];
    return NULL;
}

/* Plans the rule's variant: sm90 if it takes the spec and its knobs, else mma. */
static int plan_auto(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const struct smelt__plan untouched = *plan;
    if (smelt__sparse_attn_fwd_plan_sm90(spec, arch, plan, message) == 0)
        return 0;
    if (smelt__sparse_attn_fwd_sm90_knob(spec))
        return -1; /* sm90's reason is the one to know */
    *plan = untouched;
    return smelt__sparse_attn_fwd_plan_mma(spec, arch, plan, message);
}

static int plan_fwd(const struct smelt__spec *spec, const struct smelt__arch *arch,
                    struct smelt__plan *plan, struct smelt__message *message) {
    switch (smelt__spec_get(spec, "variant")) {
    case SMELT__SPARSE_ATTN_MMA:
        return smelt__sparse_attn_fwd_plan_mma(spec, arch, plan, message);
    case SMELT__SPARSE_ATTN_SM90:
        return smelt__sparse_attn_fwd_plan_sm90(spec, arch, plan, message);
    default:
        return plan_auto(spec, arch, plan, message);
    }
}

const struct smelt__family smelt__sparse_attn_fwd = {
    .name = "sparse_attn_fwd",
    .summary = "forward pass of sparse attention: out and log-sum-exp",
    .keys = smelt__sparse_attn_keys,
    .key_count = SMELT__SPARSE_ATTN_KEY_COUNT,
    .check = smelt__sparse_attn_check,
    .plan = plan_fwd,
    .tries = smelt__sparse_attn_tries,
};
