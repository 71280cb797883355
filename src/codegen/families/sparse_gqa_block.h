/* What the block-stationary kernels of sparse_gqa (variant sm90 of its forward pass, and
 * sparse_gqa_merge) and their launch agree on. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__sparse_gqa_merge;
extern const struct smelt__kernel_family smelt__sparse_gqa_sums;
extern const struct smelt__kernel_family smelt__sparse_gqa_united;
extern const struct smelt__kernel_family smelt__sparse_gqa_bwd_keys;

int smelt__sparse_gqa_fwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message);

int smelt__sparse_gqa_bwd_keys_plan_sm90(const struct smelt__spec *spec,
                                         const struct smelt__arch *arch, struct smelt__plan *plan,
                                         struct smelt__message *message);

int smelt__sparse_gqa_merge_plan(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                 struct smelt__plan *plan, struct smelt__message *message);

/* Values of the key `pass` of sparse_gqa_sums. */
enum smelt__gqa_sums_pass { SMELT__GQA_SUMS_QUERIES = 0, SMELT__GQA_SUMS_KEYS };

/* Whether a forward kernel's spec may get variant sm90 on some architecture. */
int smelt__sparse_gqa_may_be_block(const struct smelt__spec *spec);
/* The same of a spec of the backward pass's kernel of keys. */
int smelt__sparse_gqa_grad_may_be_block(const struct smelt__spec *spec);

/* For the launch. */
struct smelt__sparse_gqa_block_launch {
    int segment;    /* pairs of an item */
    int units;      /* of a pair and KV head: eights of its query heads */
    int box_heads;  /* of a box of q's tensor map */
    int warpgroups; /* backward: that have sums of dK and dV */
    int queries;    /* of an item, whose lists are united; 0 or 1: they are not */
};

static inline const struct smelt__sparse_gqa_block_launch *
smelt__sparse_gqa_block_launch(const struct smelt__plan *plan) {
    return (const void *)plan->launch;
}

/* Whether the lists of a forward kernel's spec are to be united, on some architecture; and whether
 * there is a kernel for such lists. */
int smelt__sparse_gqa_may_be_united(const struct smelt__spec *spec);
int smelt__sparse_gqa_can_unite(const struct smelt__spec *spec);

/* For the launch of sparse_gqa_united; zeros: it is never launched. */
struct smelt__sparse_gqa_united_launch {
    int tile_entries; /* queries of a tile */
    int part_entries; /* of a warpgroup */
};

static inline const struct smelt__sparse_gqa_united_launch *
smelt__sparse_gqa_united_launch(const struct smelt__plan *plan) {
    return (const void *)plan->launch;
}

/* The units of a KV head, eights of its query heads; and the most units of a box, which divide both
 * a KV head's and a tile's. */
int smelt__sparse_gqa_units(const struct smelt__spec *spec);
int smelt__sparse_gqa_box_units(int units);

/* Adds the constants that both kernels have: LIST_HEADS, UNITS. */
void smelt__sparse_gqa_block_constants(const struct smelt__spec *spec, struct smelt__plan *plan);
