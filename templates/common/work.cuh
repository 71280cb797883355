//@use common/base.cuh
//@use sparse_attn_fwd.params.h
/*
 * The items of a persistent grid: a query and one of its HEAD_BLOCKS blocks of heads. A block takes
 * item blockIdx.x and every gridDim.x-th after it; each of its warpgroups follows them by itself.
 * With a query list, an entry outside of the queries is no item.
 */

struct work {
    int item;
    int query;      /* batch * tokens + token, or -1: no work is left */
    int head_block; /* of the query */
};

/* Items there are: a query each, times the blocks of heads. */
DEVICE int work_items(const struct sparse_attn_fwd_params *params) {
    int queries = params->query_capacity;
    if (params->query_count) {
        queries = maximum(minimum(*params->query_count, queries), 0);
    }
    return queries * HEAD_BLOCKS;
}

/* The first item from `item` on, in steps of the grid. Numbers are unsigned: the step past the last
 * may pass 2^31. */
DEVICE struct work find_work(const struct sparse_attn_fwd_params *params, u32 item) {
    const u32 items = (u32)work_items(params);
    struct work work = {0, -1, 0};
    for (; item < items; item += gridDim.x) {
        int query = (int)(item / HEAD_BLOCKS);
        if (params->queries) {
            query = params->queries[query];
        }
        if (query >= 0 && query < params->batches * params->tokens) {
            work.item = (int)item;
            work.query = query;
            work.head_block = (int)(item % HEAD_BLOCKS);
            break;
        }
    }
    return work;
}

DEVICE struct work first_work(const struct sparse_attn_fwd_params *params) {
    return find_work(params, blockIdx.x);
}

DEVICE struct work next_work(const struct sparse_attn_fwd_params *params, const struct work *work) {
    return find_work(params, (u32)work->item + gridDim.x);
}
