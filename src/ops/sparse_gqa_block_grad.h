/* The block-stationary backward pass of sparse_gqa (variant sm90 of its kernel of keys). */
#pragma once

#include "ops/call.h"
#include "ops/sparse_gqa_call.h"
#include "ops/sparse_gqa_index.h"

/* A call. The caller sets the first group. */
struct smelt__gqa_block_grad {
    const smelt_context *context;
    const struct smelt__spec *spec;                    /* the operator's */
    const struct smelt__kernel *const *index;          /* the passes of sparse_gqa_lists */
    const struct smelt__kernel *keys;                  /* sparse_gqa_bwd_keys, variant sm90 */
    const struct smelt__kernel *query_sums, *key_sums; /* sparse_gqa_sums */
    int64_t queries;                                   /* entries of the query list */
    int64_t batches, rows, width;

    struct smelt__gqa_index of_chunk; /* its reverse index */
    int64_t chunk;                    /* entries at once */
    size_t dq_partials, key_partials; /* offsets in the workspace */
};

/* Divides the queries into chunks and places the arrays from *end on. INVALID_ARGUMENT. */
smelt_status smelt__gqa_block_grad_place(struct smelt__gqa_block_grad *grad, size_t *end);

/* What a call works on; tensors have packed strides. */
struct smelt__gqa_block_grad_args {
    struct work_params work;
    struct gqa_lists_params lists;
    const smelt_const_tensor *q, *k, *v, *grad_out;
    const smelt_tensor *dq;
    const float *statistics;  /* as sparse_attn_bwd_rows writes them for all entries */
    float *dk_sums, *dv_sums; /* overwritten: [batches, KV heads, rows, columns] */
    float scale;
    int64_t free_multiprocessors;
    void *workspace;
    struct CUstream_st *stream;
};

/* What the launch would refuse, before anything is launched. Errors: INVALID_ARGUMENT, DRIVER. */
smelt_status smelt__gqa_block_grad_check(const struct smelt__gqa_block_grad *grad,
                                         const struct smelt__gqa_block_grad_args *args);

/* Launches everything that comes after the statistics and before the sums are converted. With no
 * queries or rows nothing is launched, except that dq becomes zeros. Errors: INVALID_ARGUMENT,
 * DRIVER. */
smelt_status smelt__gqa_block_grad_launch(const struct smelt__gqa_block_grad *grad,
                                          const struct smelt__gqa_block_grad_args *args);
