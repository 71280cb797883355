/* What the arguments of sparse_attn's passes have in common: their checks, and the part of the
 * kernels' params that says which queries there are and where their index rows. */
#pragma once

#include "ops/sparse_attn_params.h"
#include "ops/sparse_attn_table.h"
#include "smelt/sparse_attn.h"

/* The fields of an args struct that all passes have. */
struct smelt__sparse_attn_call {
    int64_t batches, tokens, rows, width;
    float scale;
    const smelt_const_tensor *indices, *topk_length, *queries, *query_count;
    int64_t query_capacity;
};

/* Of a pass's args struct. */
#define SMELT__SPARSE_ATTN_CALL(args)                                                              \
    {                                                                                              \
        .batches = (args)->batches, .tokens = (args)->tokens, .rows = (args)->rows,                \
        .width = (args)->width, .scale = (args)->scale, .indices = &(args)->indices,               \
        .topk_length = &(args)->topk_length, .queries = &(args)->queries,                          \
        .query_count = &(args)->query_count, .query_capacity = (args)->query_capacity              \
    }

/* What the table of arguments cannot say of them: the number of queries and the query list, which
 * are what the workspace depends on; and the scale as well. INVALID_ARGUMENT. */
smelt_status smelt__sparse_attn_check_queries(const struct smelt__sparse_attn_call *call);
smelt_status smelt__sparse_attn_check_call(const struct smelt__sparse_attn_call *call);

/* Queries to compute at most, of checked arguments: the grid covers them. */
int64_t smelt__sparse_attn_count_queries(const struct smelt__sparse_attn_call *call);

/* Of checked arguments whose strides are packed. */
struct work_params smelt__sparse_attn_work(const struct smelt__sparse_attn_call *call,
                                           int64_t queries);
