/* A call of an operator of attention over lists: the checks that these operators share, and the part of the
 * kernels' params that describes the queries and their lists. */
#pragma once

#include "ops/attention_params.h"
#include "ops/call.h"

/* The fields of an args struct that all passes have. */
struct smelt__attention_call {
    int64_t batches, tokens, rows, width;
    float scale;
    const smelt_const_tensor *indices, *topk_length, *queries, *query_count;
    int64_t query_capacity;
};

/* Its initializer from a pass's args struct. */
#define SMELT__ATTENTION_CALL(args)                                                                \
    {                                                                                              \
        .batches = (args)->batches, .tokens = (args)->tokens, .rows = (args)->rows,                \
        .width = (args)->width, .scale = (args)->scale, .indices = &(args)->indices,               \
        .topk_length = &(args)->topk_length, .queries = &(args)->queries,                          \
        .query_count = &(args)->query_count, .query_capacity = (args)->query_capacity              \
    }

/* Check what the table of arguments cannot express: _check_queries the number of queries and the query
 * list, on which the workspace depends; _check_call also the scale. Errors: INVALID_ARGUMENT. */
smelt_status smelt__attention_check_queries(const struct smelt__attention_call *call);
smelt_status smelt__attention_check_call(const struct smelt__attention_call *call);

/* Checks that all batches together have at most `most` rows of tensor `name`; `text`: how messages write `most`.
 * Errors: INVALID_ARGUMENT. */
smelt_status smelt__attention_check_rows(const struct smelt__attention_call *call, int64_t most,
                                         const char *text, const char *name);

/* The largest number of queries to compute, which the grid covers. The fields are checked. */
int64_t smelt__attention_count_queries(const struct smelt__attention_call *call);

/* The queries and their lists in the kernels' params. The call is checked, and strides are filled in. */
struct work_params smelt__attention_work(const struct smelt__attention_call *call, int64_t queries);

/* Checks a call of a forward pass that needs no workspace. *queries: how many the grid must cover; if 0, there
 * is nothing to launch, and no tensor was checked. Reads no device memory. Errors: INVALID_ARGUMENT. */
smelt_status smelt__attention_check_forward(struct smelt__call *call,
                                            const struct smelt__attention_call *fields,
                                            int64_t *queries);
