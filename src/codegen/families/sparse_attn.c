/*
 * The operator sparse_attn: sparse attention over a shared latent cache (OPERATORS.md, sections 1
 * and 3).
 *
 * The rule of buckets=auto: a quarter and a half of topk, in whole key blocks of 64. Measured on an
 * H200 (bench/LOG.md): what is gained comes from scanning no row past its last valid slot, which
 * one bucket gives, too, and from beginning with the longest work, for which three do; each more
 * costs 3 to 5 us a call. When buckets pay at all: smelt/sparse_attn.h.
 */
#include <stddef.h>

#include "codegen/families/sparse_attn_keys.h"
#include "codegen/families/sparse_attn_partition.h"
#include "codegen/family.h"

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

/* One forward kernel: what the operator and its kernels have in common is handed on by name. */
static void hand_on(const struct smelt__spec *spec, int topk, struct smelt__spec *kernel) {
    smelt__spec_init(kernel, &smelt__sparse_attn_fwd);
    for (int i = 0; i < kernel->family->key_count; i++)
        kernel->values[i] = smelt__spec_get(spec, kernel->family->keys[i].name);
    smelt__spec_set(kernel, "topk", topk);
}

static void partition_pass(struct smelt__spec *kernel, int64_t pass) {
    smelt__spec_init(kernel, &smelt__sparse_attn_partition);
    smelt__spec_set(kernel, "pass", pass);
}

/* With buckets: the partition's two passes, then the longest work first. */
static int expand(const struct smelt__spec *spec, struct smelt__spec kernels[SMELT__MAX_KERNELS]) {
    int bounds[SMELT__SPARSE_ATTN_MOST_BUCKETS], count = 0;
    const int buckets = smelt__sparse_attn_bounds(spec, bounds);
    if (buckets == 0) {
        hand_on(spec, (int)smelt__spec_get(spec, "topk"), &kernels[0]);
        return 1;
    }
    partition_pass(&kernels[count++], SMELT__PARTITION_COUNT);
    partition_pass(&kernels[count++], SMELT__PARTITION_PLACE);
    for (int i = buckets - 1; i >= 0; i--)
        hand_on(spec, bounds[i], &kernels[count++]);
    return count;
}

const struct smelt__family smelt__sparse_attn = {
    .name = "sparse_attn",
    .summary = "sparse attention: each query attends to its own list of KV rows",
    .keys = smelt__sparse_attn_operator_keys,
    .key_count = SMELT__SPARSE_ATTN_KEY_COUNT + 1,
    .check = smelt__sparse_attn_check,
    .expand = expand,
};
