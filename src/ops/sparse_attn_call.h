/* The arguments of sparse_attn: the checks that its passes and sparse_scores share, the part of the kernels'
 * params that describes the queries and their lists, and the forward pass's params. */
#pragma once

#include "ops/call.h"
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

/* Bytes of workspace of a forward call; 0 if buckets is 0. */
size_t smelt__sparse_attn_workspace(int64_t queries, int buckets);

/* Checks a call of a forward pass with these fields. *queries: how many the grid must cover; if 0, there is
 * nothing to launch, and no tensor was checked. Reads no device memory. Errors: INVALID_ARGUMENT. */
smelt_status smelt__sparse_attn_check_forward(struct smelt__call *call,
                                              const struct smelt__sparse_attn_call *fields,
                                              int buckets, int64_t *queries);
/* The same for sparse_attn, and fills *params, which is not set if *queries is 0. */
smelt_status smelt__sparse_attn_pack(struct smelt__call *call, int buckets,
                                     struct sparse_attn_fwd_params *params, int64_t *queries);
