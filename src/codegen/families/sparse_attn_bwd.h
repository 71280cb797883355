/* What the files of the backward pass's kernel families share, and what the operator asks of their
 * plans. */
#pragma once

#include "codegen/families/attention.h"

/* The main kernel: dq, and dkv's sums. */
extern const struct smelt__kernel_family smelt__sparse_attn_bwd;
/* In deterministic mode, after it: the sums of its partial rows. */
extern const struct smelt__kernel_family smelt__sparse_attn_bwd_sum;

/* What the host reads of a main kernel's plan; each is a constant of the kernel, too. */
struct smelt__sparse_attn_bwd_launch {
    int group_queries; /* of an item: 1, 2, 4 or 8 */
    int query_rows;    /* rows per query in the tiles of all its items: the padded head count */
    int head_blocks;   /* items of a group */
    int block_heads;   /* rows of an item: group_queries * query_rows / head_blocks */
    int tensor_maps;   /* 1: the kernel reads q_map and grad_out_map */
    int sum_multiprocessors; /* multiprocessors to leave to the sums of partial rows, which overlap the
                          main kernel; 0: they do not */
    int slice_blocks; /* thread blocks that share a slice, where the last items may be cut into
                          slices; 0: they may not */
};

SMELT__PLAN_LAUNCH(smelt__sparse_attn_bwd_launch)

/* The main kernel's plans. Each plans its variant or says why it cannot: 0, or -1 with the reason.
 */
int smelt__sparse_attn_bwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message);
int smelt__sparse_attn_bwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     struct smelt__plan *plan, struct smelt__message *message);
