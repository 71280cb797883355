/* What the files of the backward pass's kernel families share, and what the operator asks of their
 * plans. */
#pragma once

#include "codegen/family.h"

/* The main kernel: dq, and dkv's sums. */
extern const struct smelt__kernel_family smelt__sparse_attn_bwd;
/* Before it: each group's list of keys; each row's statistics. In deterministic mode: the lists by
 * keys, and the sums of the main kernel's partial rows. After it: key_grads_finish. */
extern const struct smelt__kernel_family smelt__sparse_attn_bwd_lists;
extern const struct smelt__kernel_family smelt__sparse_attn_bwd_rows;
extern const struct smelt__kernel_family smelt__sparse_attn_bwd_sum;

/* Values of the key `pass` of sparse_attn_bwd_lists. */
enum smelt__sparse_attn_bwd_lists_pass { SMELT__BWD_LISTS_GROUP = 0, SMELT__BWD_LISTS_TRANSPOSE };

/* Threads of a block of the pass `group`; keys that one of the pass `transpose` takes at a time. */
enum { SMELT__BWD_LISTS_THREADS = 256, SMELT__BWD_TRANSPOSE_RANGE = 256 };

/* Queries whose rows share a tile of the main kernel, at most: a byte holds their mask. */
enum { SMELT__SPARSE_ATTN_BWD_MOST_GROUP = 8 };

/* Entries of a block of the kernel sparse_attn_bwd_rows. */
enum { SMELT__SPARSE_ATTN_BWD_ENTRIES = 16 };

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
