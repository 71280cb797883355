/* See sparse_gqa_keys.h and sparse_gqa.h. */
#include "codegen/families/sparse_gqa_keys.h"

#include <inttypes.h>
#include <stdio.h>

#include "codegen/families/sparse_gqa.h"

int smelt__sparse_gqa_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const int64_t heads = smelt__spec_get(spec, "heads"),
                  groups = smelt__spec_get(spec, "kv_heads");
    const int64_t dqk = smelt__spec_get(spec, "dqk"), dv = smelt__spec_get(spec, "dv");
    if (heads % groups != 0 || heads / groups > SMELT__SPARSE_GQA_MOST_GROUP) {
        smelt__message_set(message,
                           "%s: heads=%" PRId64 " is not legal with kv_heads=%" PRId64
                           "; legal: a multiple of kv_heads, at most %d times it",
                           spec->schema->name, heads, groups, SMELT__SPARSE_GQA_MOST_GROUP);
        return -1;
    }
    if (dv <= dqk)
        return 0;
    smelt__message_set(message,
                       "%s: dv=%" PRId64 " is not legal with dqk=%" PRId64 "; legal: at most dqk",
                       spec->schema->name, dv, dqk);
    return -1;
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
