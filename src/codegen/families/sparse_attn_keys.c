/* See sparse_attn_keys.h. */
#include "codegen/families/sparse_attn_keys.h"

#include <inttypes.h>
#include <stdio.h>

/* Above FEW_HEADS, heads come in whole groups of HEAD_GROUP. */
enum { FEW_HEADS = 128, HEAD_GROUP = 64 };

int smelt__sparse_attn_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const int64_t heads = smelt__spec_get(spec, "heads");
    if (heads > FEW_HEADS && heads % HEAD_GROUP != 0)
        return smelt__refuse_value(spec, "heads", message);
    const int64_t dqk = smelt__spec_get(spec, "dqk"), dv = smelt__spec_get(spec, "dv");
    if (dv <= dqk)
        return 0;
    return smelt__spec_refuse(
        spec, message,
        "dv=%" PRId64 " is not legal with dqk=%" PRId64
        "; legal: at most dqk, since a value is the first dv columns of a KV row",
        dv, dqk);
}

void smelt__sparse_attn_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    static const struct {
        const char *key, *name, *meaning;
    } constants[] = {
        {"heads", "HEADS", "query heads"},
        {"dqk", "DQK", "width of a query and of a KV row, elements"},
        {"dv", "DV", "width of a value, elements"},
        {"topk", "TOPK", "valid slots of a query, at most"},
        {"sink", "HAS_SINK", "1: a logit per head in the denominator"},
        {"deterministic", "DETERMINISTIC", "1: partial rows of dkv are stored, not added"},
    };
    char rest[16] = "";
    if (smelt__spec_key(spec->schema, "topk") >= 0)
        snprintf(rest, sizeof rest, "_k%d", (int)smelt__spec_get(spec, "topk"));
    else if (smelt__spec_key(spec->schema, "deterministic") >= 0 &&
             smelt__spec_get(spec, "deterministic"))
        snprintf(rest, sizeof rest, "_det");
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_%s_%s_h%d_qk%d_v%d%s",
             spec->schema->name, plan->variant, (int)smelt__spec_get(spec, "heads"),
             (int)smelt__spec_get(spec, "dqk"), (int)smelt__spec_get(spec, "dv"), rest);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (smelt__spec_key(spec->schema, constants[i].key) >= 0)
            smelt__plan_add(plan, constants[i].name, (int)smelt__spec_get(spec, constants[i].key),
                            SMELT__FROM_SPEC, constants[i].meaning);
}
