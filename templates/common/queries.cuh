//@use common/base.cuh
//@use ptx/memory.cuh
//@use common/work.params.h
/*
 * Which entries of the query list a kernel takes, and a query's index row. The list and what
 * belongs to it are read past L1: an earlier kernel of the stream may have written them while this
 * one began.
 */

/* A part of the list. */
struct query_range {
    int first; /* entry */
    int queries;
};

DEVICE struct query_range find_query_range(const struct work_params *params) {
    struct query_range range = {0, params->query_capacity};
    if (params->query_range) {
        range.first = (int)load_l2_32(&params->query_range[0]);
        range.queries = (int)load_l2_32(&params->query_range[1]);
    } else if (params->query_count) {
        range.queries = maximum(minimum((int)load_l2_32(params->query_count), range.queries), 0);
    }
    return range;
}

/* A query's batch, without a division in the common case of one. */
DEVICE int query_batch(const struct work_params *params, int query) {
    return params->batches > 1 ? query / params->tokens : 0;
}

/* Where a query's index row begins. */
DEVICE const int *index_row(const struct work_params *params, int query) {
    const int batch = query_batch(params, query), token = query - batch * params->tokens;
    return params->indices + batch * params->indices_batch_stride +
           token * params->indices_token_stride;
}

/* How many of its slots are to be looked at: up to the last valid one where the list tells it, else
 * the width, cut by topk_length. `entry`: of the list, the query's. */
DEVICE int index_slots(const struct work_params *params, int entry, int query) {
    if (params->extents) {
        return (int)load_l2_32(&params->extents[entry]);
    }
    if (!params->topk_length) {
        return params->width;
    }
    const int batch = query_batch(params, query), token = query - batch * params->tokens;
    const int length = params->topk_length[batch * params->topk_length_batch_stride +
                                           token * params->topk_length_token_stride];
    return minimum(maximum(length, 0), params->width);
}
