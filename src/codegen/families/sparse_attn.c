/*
 * The operator sparse_attn: sparse attention over a shared latent cache (docs/operators.md).
 *
 * The rule of buckets=auto: a quarter and a half of topk, in whole key blocks of 64. Measured on an
 * H200 (bench/log/sparse_attn_partition.md). One gain is to stop scanning a row at its last valid
 * slot, for which a single bucket suffices. The other is to start with the longest queries, for
 * which three suffice. Each further bucket costs 3 to 5 us per call. smelt/sparse_attn.h says when
 * buckets pay off at all.
 */
#include <stddef.h>

#include "codegen/families/key_grads_finish.h"
#include "codegen/families/sparse_attn.h"
#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/families/sparse_attn_fwd.h"
#include "codegen/families/sparse_attn_keys.h"
#include "codegen/families/sparse_attn_partition.h"

enum { AUTO_COUNT = 2, KEY_BLOCK = 64 };

static void auto_bounds(int topk, int bounds[AUTO_COUNT]) {
    const int parts[AUTO_COUNT] = {4, 2};
    for (int i = 0; i < AUTO_COUNT; i++) {
        const int step = parts[i] * KEY_BLOCK;
        bounds[i] = (topk + step - 1) / step * KEY_BLOCK;
    }
}

int smelt__sparse_attn_bounds(const struct smelt__spec *spec,
                              int bounds[SMELT__SPARSE_ATTN_MOST_BUCKETS]) {
    const int64_t given = smelt__spec_get(spec, "buckets");
    const int topk = (int)smelt__spec_get(spec, "topk");
    int by_rule[AUTO_COUNT];
    auto_bounds(topk, by_rule);
    const int *const list = given == SMELT__AUTO ? by_rule : spec->list;
    const int most = given == SMELT__AUTO ? AUTO_COUNT : (int)given;
    int count = 0;
    if (most == 0)
        return 0;
    for (int i = 0; i < most && list[i] < topk; i++)
        if (count == 0 || list[i] > bounds[count - 1]) /* by rule two may be the same */
            bounds[count++] = list[i];
    bounds[count++] = topk;
    return count;
}

enum { FWD, BWD }; /* members by number */

static const struct smelt__member members[] = {
    [FWD] = {"fwd", &smelt__sparse_attn_fwd.schema, SMELT__FORWARD},
    [BWD] = {"bwd", &smelt__sparse_attn_bwd.schema, SMELT__BACKWARD},
};

static const struct smelt__key keys[] = {
    SMELT__SPARSE_ATTN_COMPUTED,
    {SMELT__LIST("buckets", "queries with at most so many valid slots get a kernel of their own"),
     SMELT__SOME_OF("auto, or up to 8 ascending numbers 1..1048576, 256/512/1024", 1,
                    SMELT__SPARSE_ATTN_MAX_TOPK)},
    {SMELT__PASSES_KEY},
    {SMELT__DETERMINISTIC_KEY},
};

/* With buckets: the partition's two passes, then the longest work first. */
static void expand_forward(const struct smelt__spec *spec, struct smelt__expansion *expansion) {
    int bounds[SMELT__SPARSE_ATTN_MOST_BUCKETS];
    const int buckets = smelt__sparse_attn_bounds(spec, bounds);
    if (buckets == 0) {
        smelt__expansion_add(expansion, spec, FWD, SMELT__FORWARD);
        return;
    }
    for (int i = SMELT__PARTITION_COUNT; i <= SMELT__PARTITION_PLACE; i++)
        smelt__expansion_add_other(expansion, spec, &smelt__sparse_attn_partition, i,
                                   SMELT__FORWARD);
    for (int i = buckets - 1; i >= 0; i--)
        smelt__spec_set(smelt__expansion_add(expansion, spec, FWD, SMELT__FORWARD), "topk",
                        bounds[i]);
}

#define ADD(role, family, number)                                                                  \
    smelt__expansion_add_role(expansion, spec, SMELT__BACKWARD, SMELT__BACKWARD_##role, family,    \
                              number)

/* One main kernel, also with buckets: it works on lists of any length, and the partition puts the
 * longest first. */
static void expand_backward(const struct smelt__spec *spec, struct smelt__expansion *expansion) {
    int bounds[SMELT__SPARSE_ATTN_MOST_BUCKETS];
    const int deterministic = (int)smelt__spec_get(spec, "deterministic");
    const int buckets = smelt__sparse_attn_bounds(spec, bounds);
    for (int i = SMELT__PARTITION_COUNT; buckets > 0 && i <= SMELT__PARTITION_PLACE; i++)
        ADD(PARTITION_COUNT + i, &smelt__sparse_attn_partition, i);
    ADD(GROUP, &smelt__attention_lists, SMELT__ATTENTION_LISTS_GROUP);
    ADD(ROWS, &smelt__attention_bwd_rows, 0);
    if (deterministic)
        ADD(TRANSPOSE, &smelt__attention_lists, SMELT__ATTENTION_LISTS_TRANSPOSE);
    ADD(MAIN, &smelt__sparse_attn_bwd, 0);
    if (deterministic)
        ADD(SUM, &smelt__sparse_attn_bwd_sum, 0);
    ADD(FINISH, &smelt__key_grads_finish, 0);
}

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    (pass == SMELT__FORWARD ? expand_forward : expand_backward)(spec, expansion);
}

/* docs/operators.md's table of models. With buckets: for batches of many lengths; that operator has
 * the plain one's kernel, too. glm-5.3-flash: the rows of 512 pools of 4 and 3 of the tail, rounded up
 * to a multiple of 128 as in the Python package. deepseek-v4.1: attention as deepseek-v4-flash's, since
 * no configuration was found. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", "heads=64,dqk=576,dv=512,topk=2048"},
    {"glm-5.2", "heads=64,dqk=576,dv=512,topk=2048,buckets=auto"},
    {"glm-5.3-flash", "heads=64,dqk=512,dv=512,topk=2176"},
    {"glm-5.3-flash", "heads=64,dqk=512,dv=512,topk=2176,buckets=auto"},
    {"deepseek-v3.2", "heads=128,dqk=576,dv=512,topk=2048"},
    {"deepseek-v3.2", "heads=128,dqk=576,dv=512,topk=2048,buckets=auto"},
    {"deepseek-v4-flash", "heads=64,dqk=512,dv=512,topk=640,sink=1"},
    {"deepseek-v4-flash", "heads=64,dqk=512,dv=512,topk=640,sink=1,buckets=auto"},
    {"deepseek-v4-pro", "heads=128,dqk=512,dv=512,topk=1152,sink=1"},
    {"deepseek-v4-pro", "heads=128,dqk=512,dv=512,topk=1152,sink=1,buckets=auto"},
    {"deepseek-v4.1", "heads=64,dqk=512,dv=512,topk=640,sink=1"},
    {"deepseek-v4.1", "heads=64,dqk=512,dv=512,topk=640,sink=1,buckets=auto"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__sparse_attn = {
    .schema = {.name = "sparse_attn",
               .is_operator = 1,
               .example = "sparse_attn:heads=64,dqk=576,dv=512,topk=2048",
               .summary = "sparse attention: each query attends to its own list of KV rows",
               SMELT__KEYS(keys),
               SMELT__MEMBERS(members),
               .check = smelt__sparse_attn_check},
    .passes = SMELT__FORWARD | SMELT__BACKWARD,
    SMELT__FAMILIES(&smelt__sparse_attn_fwd, &smelt__sparse_attn_partition, &smelt__sparse_attn_bwd,
                    &smelt__attention_lists, &smelt__attention_bwd_rows,
                    &smelt__sparse_attn_bwd_sum, &smelt__key_grads_finish),
    .expand = expand,
    .presets = presets,
};
