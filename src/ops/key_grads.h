/*
 * Gradients by keys, which groups of queries add to: what the operators share whose main kernel
 * goes through groups' lists of keys (sparse_attn_bwd_lists). Their fp32 sums in the workspace; in
 * deterministic mode the main kernel's partial rows, chunk by chunk, and their sums in a fixed
 * order; at the end the caller's tensor.
 */
#ifndef SMELT_OPS_KEY_GRADS_H
#define SMELT_OPS_KEY_GRADS_H

#include <stddef.h>
#include <stdint.h>

#include "ops/args_table.h"
#include "ops/sparse_attn_params.h"
#include "runtime/kernel.h"

/* What layouts follow from, of the spec and of the main kernel's plan. */
struct smelt__key_grads_shape {
    int columns; /* of a row */
    int deterministic;
    int group_items; /* items of a group */
    int key_rows;    /* partial rows that a group has of each key */
    int sums_beside; /* as the plan's constant of that name */
};

/* Where each array lies in the workspace, bytes from its start, and how groups are cut. The first
 * five are the caller's to set. */
struct smelt__key_grads_layout {
    int64_t groups, key_count;
    int key_stride;
    size_t counts, keys;             /* the lists, as sparse_attn_bwd_lists has them */
    size_t sums;                     /* [key_count, columns] fp32 */
    size_t firsts;                   /* of the lists, in deterministic mode; the caller's, too */
    size_t starts[2], entry_list[2]; /* lists by keys of two rounds, which take turns */
    size_t partials;
    int64_t chunk; /* groups of a launch of the main kernel */
    /* In deterministic mode: of how many chunks partial rows are kept, 1 or 2; how many groups'
     * lists are transposed at once, a multiple of the chunk. */
    int64_t kept, round;
    size_t kept_bytes; /* of a chunk's partial rows */
};

/* Gives `count` elements of so many bytes a place at *end, which moves behind it. */
size_t smelt__workspace_place(size_t *end, int64_t count, size_t bytes);

/* Cuts the groups and places the arrays. `limit`: of partial rows, in bytes; 0: by rule. Depends on
 * nothing of the device, since it says in which order sums are taken. */
void smelt__key_grads_place(const struct smelt__key_grads_shape *shape, size_t limit, size_t *end,
                            struct smelt__key_grads_layout *layout);

/* Groups that one launch of the main kernel takes. */
struct smelt__key_grads_chunk {
    int64_t first, groups;
    void *partials; /* its rows; NULL: it adds to the sums */
    int beside;     /* multiprocessors that it leaves to the sums */
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

/* The main kernel over all groups, and with partial rows their sums. The lists and zeroed sums are
 * ahead of it in the stream, whose context is current. Errors: DRIVER, and launch_groups's. */
smelt_status smelt__key_grads_launch(const struct smelt__key_grads_call *call);

/* Launches key_grads_finish: the caller's tensor from the sums, which `params` lacks. Errors: DRIVER.
 */
smelt_status smelt__key_grads_launch_finish(const struct smelt__key_grads_call *call,
                                            struct key_grads_finish_params params);

#endif
