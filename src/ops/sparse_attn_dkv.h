/*
 * The sums of dkv. The main kernel adds to fp32 sums in the workspace or, in deterministic mode, stores
 * partial rows, chunk by chunk of the groups, which are then summed in a fixed order.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ops/sparse_attn_params.h"
#include "runtime/kernel.h"

/* The numbers of the spec and of the main kernel's plan that determine layouts. */
struct smelt__dkv_shape {
    int columns; /* of a row */
    int deterministic;
    int group_items;         /* items of a group */
    int key_rows;            /* partial rows that a group has of each key */
    int sum_multiprocessors; /* as the plan's constant of that name */
};

/* The offset of each array in the workspace, in bytes, and the division of the groups. The caller
 * sets the first five fields. */
struct smelt__dkv_layout {
    int64_t groups, key_count;
    int key_stride;
    size_t counts, keys; /* the lists, as attention_lists has them */
    size_t sums;         /* [key_count, columns] fp32 */
    size_t firsts;       /* of the lists, in deterministic mode; also set by the caller */
    size_t starts[2], entry_list[2]; /* lists by keys of two rounds, used alternately */
    size_t partials;
    int64_t chunk; /* groups of a launch of the main kernel */
    /* In deterministic mode: the number of chunks whose partial rows are kept, 1 or 2; the number of
     * groups whose lists are transposed at once, a multiple of the chunk. */
    int64_t kept, round;
    size_t kept_bytes; /* of a chunk's partial rows */
};

/* Divides the groups and places the arrays. `limit`: of partial rows, in bytes; 0: by rule. Does not
 * depend on the device, since it determines the order of sums. */
void smelt__dkv_place(const struct smelt__dkv_shape *shape, size_t limit, size_t *end,
                      struct smelt__dkv_layout *layout);

/* The groups of one launch of the main kernel. */
struct smelt__dkv_chunk {
    int64_t first, groups;
    void *partials;           /* its rows; NULL: it adds to the sums */
    int free_multiprocessors; /* that it leaves to the sums */
};

/* A call. */
struct smelt__dkv_call {
    const smelt_context *context;
    struct smelt__dkv_shape shape;
    const struct smelt__dkv_layout *layout;
    const struct smelt__kernel *transpose, *sum; /* in deterministic mode */
    void *workspace;
    smelt_status (*launch_groups)(void *user, const struct smelt__dkv_chunk *chunk);
    void *user;
    struct CUstream_st *stream;
};

/* Launches the main kernel on all groups, and the sums of partial rows. Earlier work of the stream
 * writes the lists and zeroes the sums; its context is current. Errors: DRIVER, and launch_groups's. */
smelt_status smelt__dkv_launch(const struct smelt__dkv_call *call);
