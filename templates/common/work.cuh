//@use common/base.cuh
//@use common/queries.cuh
//@use ptx/grid.cuh
//@use ptx/memory.cuh
//@use ptx/warp.cuh
//@use common/work.params.h
/*
 * A grid's items: one of a query's HEAD_BLOCKS blocks of heads each. A CTA takes items blockIdx.x,
 * blockIdx.x + gridDim.x, ...; each of its warpgroups iterates over them independently. With a
 * query list, entries outside the queries are skipped.
 *
 * RANGE_OFFSET: struct work_range, the part of the list, written before the block's first barrier.
 * Loads from the list bypass L1 (common/queries.cuh).
 */

struct work_range {
    int first; /* list entry */
    int items;
};

struct work {
    int item;
    int query;      /* batch * tokens + token, or -1: no item is left */
    int head_block; /* of the query */
    int iteration;  /* the CTA's iterations before it */
    int listed;     /* lane i: the list's entry for iteration i of QUERIES_AHEAD, this one among
                       them */
};

DEVICE struct work_range *work_range(void) {
    return (struct work_range *)(arena + RANGE_OFFSET);
}

/* By all threads, before the block's first barrier: waits for the previous kernel, unless
 * `pdl_wait_at_end`, and lets the next one start. */
DEVICE void begin_grid(const struct work_params *params) {
    if (PDL && !params->pdl_wait_at_end) {
        grid_wait();
    }
    if (threadIdx.x != 0) {
        return;
    }
    if (PDL) {
        grid_launch_dependents();
    }
    const struct query_range range = find_query_range(params);
    work_range()->first = range.first;
    work_range()->items = range.queries * HEAD_BLOCKS;
}

/* By all threads, at the kernel's end: with `pdl_wait_at_end` the grid ends after the previous
 * kernel, so that work after it in the stream waits for both. */
DEVICE void end_grid(const struct work_params *params) {
    if (PDL && params->pdl_wait_at_end && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        grid_wait();
    }
}

/* An item's list entry. */
DEVICE int work_entry(u32 item) {
    return work_range()->first + (int)(item / HEAD_BLOCKS);
}

/* Lane i loads the list's entry for iteration i of QUERIES_AHEAD, starting with `item`, so that a
 * warp rarely waits for the list. (Where registers are short, QUERIES_AHEAD is 1 and nothing is
 * kept.) */
DEVICE int load_listed(const struct work_params *params, u32 item) {
    const u32 lane = threadIdx.x % 32, lane_item = item + lane * gridDim.x;
    return lane_item < (u32)work_range()->items
               ? (int)load_l2_32(&params->queries[work_entry(lane_item)])
               : -1;
}

/* The first item from this iteration on, if any; by whole warps. Item numbers are unsigned: the one
 * past the last may exceed 2^31. */
DEVICE struct work find_work(const struct work_params *params, int iteration, int listed) {
    const u32 items = (u32)work_range()->items;
    u32 item = blockIdx.x + (u32)iteration * gridDim.x;
    struct work work = {0, -1, 0, 0, -1};
    for (; item < items; item += gridDim.x, ++iteration) {
        int query = (int)(item / HEAD_BLOCKS);
        if (params->queries && QUERIES_AHEAD == 1) {
            query = (int)load_l2_32(&params->queries[work_entry(item)]);
        } else if (params->queries) {
            const bool mine = (int)(threadIdx.x % 32) == iteration % QUERIES_AHEAD;
            listed = iteration % QUERIES_AHEAD == 0 ? load_listed(params, item) : listed;
            query = (int)warp_reduce_or(mine ? (u32)listed : 0);
        }
        if (query >= 0 && query < params->batches * params->tokens) {
            work.item = (int)item;
            work.query = query;
            work.head_block = (int)(item % HEAD_BLOCKS);
            work.iteration = iteration;
            work.listed = listed;
            break;
        }
    }
    return work;
}

DEVICE struct work first_work(const struct work_params *params) {
    return find_work(params, 0, -1);
}

DEVICE struct work next_work(const struct work_params *params, const struct work *work) {
    return find_work(params, work->iteration + 1, work->listed);
}

/* The batch of an item's query, and its token. */
DEVICE int work_batch(const struct work_params *params, const struct work *work) {
    return query_batch(params, work->query);
}

DEVICE int work_token(const struct work_params *params, const struct work *work) {
    return work->query - work_batch(params, work) * params->tokens;
}

/* An item's index row. */
DEVICE const int *work_row(const struct work_params *params, const struct work *work) {
    return index_row(params, work->query);
}

/* How many of its slots to scan. */
DEVICE int work_slots(const struct work_params *params, const struct work *work) {
    return index_slots(params, work_entry((u32)work->item), work->query);
}
