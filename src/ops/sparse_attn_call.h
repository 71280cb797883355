/* What the arguments of sparse_attn's passes have in common: their checks, and the part of the
 * kernels' params that says which queries there are and where their index rows. */
#ifndef SMELT_OPS_SPARSE_ATTN_CALL_H
#define SMELT_OPS_SPARSE_ATTN_CALL_H

#include "ops/sparse_attn_params.h"
#include "ops/sparse_attn_tensors.h"
#include "smelt/sparse_attn.h"

/* What the checks must know of the operator. */
struct smelt__sparse_attn_shape {
    int heads, dqk, dv, topk, sink;
    int buckets; /* how many; 0: a plain operator */
};

/* The fields of an args struct that all passes have. */
struct smelt__sparse_attn_call {
    int64_t batches, tokens, rows, width;
    float scale;
    int free_multiprocessors;
    const smelt_const_tensor *indices, *topk_length, *sink, *queries, *query_count;
    int64_t query_capacity;
};

/* Of a pass's args struct. */
#define SMELT__SPARSE_ATTN_CALL(args)                                                              \
    {                                                                                              \
        .batches = (args)->batches, .tokens = (args)->tokens, .rows = (args)->rows,                \
        .width = (args)->width, .scale = (args)->scale,                                            \
        .free_multiprocessors = (args)->free_multiprocessors, .indices = &(args)->indices,         \
        .topk_length = &(args)->topk_length, .sink = &(args)->sink, .queries = &(args)->queries,   \
        .query_count = &(args)->query_count, .query_capacity = (args)->query_capacity              \
    }

/* Each names the argument, its value and what is legal: INVALID_ARGUMENT. The first two together
 * are what a question for workspace needs. */
smelt_status smelt__sparse_attn_check_queries(const struct smelt__sparse_attn_call *call);
smelt_status smelt__sparse_attn_check_width(const struct smelt__sparse_attn_shape *shape,
                                            int64_t width);
smelt_status smelt__sparse_attn_check_call(const struct smelt__sparse_attn_shape *shape,
                                           const struct smelt__sparse_attn_call *call);

/* Queries to compute at most, of checked arguments: the grid covers them. */
int64_t smelt__sparse_attn_count_queries(const struct smelt__sparse_attn_call *call);

/* The extents of the tensor tables. */
void smelt__sparse_attn_extents(const struct smelt__sparse_attn_shape *shape,
                                const struct smelt__sparse_attn_call *call,
                                int64_t extents[SMELT__SPARSE_ATTN_SYMBOLS]);

/* Of checked arguments whose strides are packed. */
struct work_params smelt__sparse_attn_work(const struct smelt__sparse_attn_call *call,
                                           int64_t queries);

#endif
