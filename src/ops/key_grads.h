/*
 * Gradients by keys, shared by the operators whose main kernel processes groups' lists of keys
 * (sparse_attn_bwd_lists). The main kernel adds to fp32 sums in the workspace or, in deterministic
 * mode, stores partial rows, chunk by chunk, which are then summed in a fixed order. The last kernel
 * writes the caller's tensor from the sums.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ops/args_table.h"
#include "ops/sparse_attn_params.h"
#include "runtime/kernel.h"

/* The numbers of the spec and of the main kernel's plan that determine layouts. */
struct smelt__key_grads_shape {
    int columns; /* of a row */
    int deterministic;
    int group_items;         /* items of a group */
    int key_rows;            /* partial rows that a group has of each key */
    int sum_multiprocessors; /* as the plan's constant of that name */
};

/* The offset of each array in the workspace, in bytes, and the division of the groups. The caller
 * sets the first five fields. */
struct smelt__key_grads_layout {
    int64_t groups, key_count;
    int key_stride;
    size_t counts, keys;             /* the lists, as sparse_attn_bwd_lists has them */
    size_t sums;                     /* [key_count, columns] fp32 */
    size_t firsts;                   /* of the lists, in deterministic mode; the caller's, too */
    size_t starts[2], entry_list[2]; /* lists by keys of two rounds, used alternately */
    size_t partials;
    int64_t chunk; /* groups of a launch of the main kernel */
    /* In deterministic mode: the number of chunks whose partial rows are kept, 1 or 2; the number of
     * groups whose lists are transposed at once, a multiple of the chunk. */
    int64_t kept, round;
    size_t kept_bytes; /* of a chunk's partial rows */
};

/* Allocates `count` elements of this size at *end, and advances *end. Returns their offset. */
size_t smelt__workspace_place(size_t *end, int64_t count, size_t bytes);

/* Divides the groups and places the arrays. `limit`: of partial rows, in bytes; 0: by rule. Does not
 * depend on the device, since it determines the order of sums. */
void smelt__key_grads_place(const struct smelt__key_grads_shape *shape, size_t limit, size_t *end,
                            struct smelt__key_grads_layout *layout);

/* The groups of one launch of the main kernel. */
struct smelt__key_grads_chunk {
    int64_t first, groups;
    void *partials;           /* its rows; NULL: it adds to the sums */
    int free_multiprocessors; /* that it leaves to the sums */
};

/* A call. */
struct smelt__key_grads_call {
    const smelt_context *context;
    struct smelt__key_grads_shape shape;
    const struct smelt__key_grads_layout *layout;
    const struct smelt__kernel *transpose, *sum; /* in deterministic mode */
    const struct smelt__kernel *finish;
    void *workspace;
    smelt_status (*launch_groups)(void *user, const struct smelt__key_grads_chunk *chunk);
    void *user;
    struct CUstream_st *stream;
};

/* Launches the main kernel on all groups, and the sums of partial rows. Earlier work of the stream
 * writes the lists and zeroes the sums; its context is current. Errors: DRIVER, and launch_groups's. */
smelt_status smelt__key_grads_launch(const struct smelt__key_grads_call *call);

/* Launches key_grads_finish, which writes the caller's tensor from the sums; sets params.sums.
 * Errors: DRIVER. */
smelt_status smelt__key_grads_launch_finish(const struct smelt__key_grads_call *call,
                                            struct key_grads_finish_params params);
