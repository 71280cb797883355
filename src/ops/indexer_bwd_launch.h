/* indexer_bwd, between its operator and arguments (indexer_bwd.c) and its chain of launches
 * (indexer_bwd_launch.c). */
#pragma once

#include <stddef.h>

#include "codegen/families/indexer_bwd.h"
#include "codegen/families/indexer_bwd_main.h"
#include "ops/call.h"
#include "smelt/indexer_bwd.h"

enum {
    SMELT__INDEXER_BWD_TOPS = 1024,   /* blocks that find the largest addend, at most */
    SMELT__INDEXER_BWD_UNIT_KINDS = 2 /* of a row's bound */
};

/* What a call must know of the spec, and of the main kernel's plan. */
struct smelt__indexer_bwd {
    smelt_operator op;
    const smelt_context *context;
    const char *q_name;                         /* the operator's name of q, in messages */
    const struct smelt__kernel *const *kernels; /* by enum smelt__indexer_bwd_kernel */
    int heads, dim, deterministic;
    int granularity;  /* rows of an entry of the lists */
    int weights_bf16; /* 1: weights and dweights are bf16; 0: fp32 */
    struct smelt__indexer_bwd_main_launch main;
};

/* Where each array lies in the workspace, bytes from its start. */
struct smelt__indexer_bwd_layout {
    size_t members, counts, runs, keys, grads;
    size_t reach, tops, grains, totals;
    size_t bounds; /* ahead of the sums: zeroed together */
    size_t sums;   /* of dk, also in deterministic mode, whose additions are exact */
    size_t bytes;  /* of all */
    int64_t groups;
    int key_stride; /* entries from one group's list of keys to the next */
};

/* Places the arrays from layout->bytes on, for `groups` groups with lists of `key_stride` entries, a
 * multiple of 64. `several`: in deterministic mode, whether several launches of the main kernel share
 * the sums of dk. */
void smelt__indexer_bwd_lay_out(const struct smelt__indexer_bwd *indexer, int64_t groups,
                                int64_t key_stride, int64_t rows, int several,
                                struct smelt__indexer_bwd_layout *layout);

/* A checked call. */
struct smelt__indexer_bwd_call {
    const struct smelt__indexer_bwd *indexer;
    const smelt_indexer_bwd_args *args;
    struct smelt__indexer_bwd_layout layout;
    struct CUstream_st *stream;
};

/* The kernels, in their order. */
smelt_status smelt__indexer_bwd_launch(const struct smelt__indexer_bwd_call *call);

/* Groups that one launch of the main kernel takes. */
struct smelt__indexer_bwd_chunk {
    int64_t first, groups; /* of those whose lists are in the workspace */
    int begins, ends;      /* whether it is the call's first launch, its last */
};

/*
 * The same in steps, for an operator that writes the groups' lists itself: refusals of the main
 * kernel's arguments; zeros of what is added to; for each chunk, dq and dweights, and the sums of dk;
 * the caller's dk.
 */
smelt_status smelt__indexer_bwd_check(const struct smelt__indexer_bwd_call *call);
smelt_status smelt__indexer_bwd_launch_zeros(const struct smelt__indexer_bwd_call *call);
smelt_status smelt__indexer_bwd_launch_chunk(const struct smelt__indexer_bwd_call *call,
                                             struct smelt__indexer_bwd_chunk chunk);
smelt_status smelt__indexer_bwd_launch_finish(const struct smelt__indexer_bwd_call *call);
