//@use common/base.cuh
//@use ptx/memory.cuh
//@use common/work.params.h
/*
 * The part of the query list that a kernel processes, and a query's index row. The list and its
 * counts bypass L1: an earlier kernel of the stream may have written them after this one began.
 */

/* A range of the list. */
struct query_range {
    int first; /* list entry */
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

/* A query's batch; the common case of one batch needs no division. */
DEVICE int query_batch(const struct work_params *params, int query) {
    return params->batches > 1 ? query / params->tokens : 0;
}

/* A query's index row. */
DEVICE const int *index_row(const struct work_params *params, int query) {
    const int batch = query_batch(params, query), token = query - batch * params->tokens;
    return params->indices + batch * params->indices_batch_stride +
           token * params->indices_token_stride;
}

/* How many slots of a query to scan: up to the last valid one if the list records it, else the
 * width, limited by topk_length. `entry`: the query's list entry. */
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
