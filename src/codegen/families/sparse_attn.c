/*
 * The operator sparse_attn: sparse attention over a shared latent cache (docs/operators.md).
 *
 * The rule of buckets=auto: a quarter and a half of topk, in whole key blocks of 64. Measured on an
 * H200 (bench/LOG.md): what is gained comes from scanning no row past its last valid slot, which
 * one bucket gives, too, and from beginning with the longest work, for which three do; each more
 * costs 3 to 5 us a call. When buckets pay at all: smelt/sparse_attn.h.
 */
#include <stddef.h>

#include "codegen/families/sparse_attn.h"
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

enum { FWD }; /* members by number */

static const struct smelt__member members[] = {
    [FWD] = {"fwd", &smelt__sparse_attn_fwd.schema},
};

static const struct smelt__family *const kernels[] = {&smelt__sparse_attn_fwd,
                                                      &smelt__sparse_attn_partition, NULL};

static const struct smelt__key keys[] = {
    SMELT__SPARSE_ATTN_COMPUTED,
    SMELT__LIST("buckets", "auto, or up to 8 ascending numbers 1..1048576, 256/512/1024",
                "queries with at most so many valid slots get a kernel of their own", 1,
                SMELT__SPARSE_ATTN_MAX_TOPK),
    SMELT__PASSES_KEY,
};

static void add_partition(struct smelt__expansion *expansion, int64_t partition_pass) {
    smelt__spec_set(
        smelt__expansion_add_other(expansion, &smelt__sparse_attn_partition, SMELT__FORWARD),
        "pass", partition_pass);
}

/* With buckets: the partition's two passes, then the longest work first. */
static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    int bounds[SMELT__SPARSE_ATTN_MOST_BUCKETS];
    const int buckets = smelt__sparse_attn_bounds(spec, bounds);
    if (buckets == 0) {
        smelt__expansion_add(expansion, spec, FWD, pass);
        return;
    }
    add_partition(expansion, SMELT__PARTITION_COUNT);
    add_partition(expansion, SMELT__PARTITION_PLACE);
    for (int i = buckets - 1; i >= 0; i--)
        smelt__spec_set(smelt__expansion_add(expansion, spec, FWD, pass), "topk", bounds[i]);
}

/* docs/operators.md's table of models. With buckets: for batches of many lengths; that operator has
 * the plain one's kernel, too. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", "heads=64,dqk=576,dv=512,topk=2048"},
    {"glm-5.2", "heads=64,dqk=576,dv=512,topk=2048,buckets=auto"},
    {"glm-5.3-flash", "heads=64,dqk=512,dv=512,topk=2048"},
    {"glm-5.3-flash", "heads=64,dqk=512,dv=512,topk=2048,buckets=auto"},
    {"deepseek-v3.2", "heads=128,dqk=576,dv=512,topk=2048"},
    {"deepseek-v3.2", "heads=128,dqk=576,dv=512,topk=2048,buckets=auto"},
    {"deepseek-v4-flash", "heads=64,dqk=512,dv=512,topk=640,sink=1"},
    {"deepseek-v4-flash", "heads=64,dqk=512,dv=512,topk=640,sink=1,buckets=auto"},
    {"deepseek-v4-pro", "heads=128,dqk=512,dv=512,topk=1152,sink=1"},
    {"deepseek-v4-pro", "heads=128,dqk=512,dv=512,topk=1152,sink=1,buckets=auto"},
    {NULL, NULL},
};

const struct smelt__family smelt__sparse_attn = {
    .schema = {.name = "sparse_attn",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys,
               .members = members,
               .member_count = sizeof members / sizeof *members,
               .check = smelt__sparse_attn_check},
    .summary = "sparse attention: each query attends to its own list of KV rows",
    .passes = SMELT__FORWARD,
    .kernels = kernels,
    .expand = expand,
    .presets = presets,
};
