//@use common/base.cuh
//@use common/logit.cuh
//@use ptx/redux.cuh
//@use indexer_logits_fwd.params.h
//@use indexer_logits_fwd.sm90_tiles.cuh
/*
 * Of indexer_logits_fwd.sm90.cu: windows, the slabs that blocks of queries have by them, what those
 * cost, and which of them are this thread block's.
 */

DEVICE int batch_count(const struct indexer_logits_fwd_params *params) {
    return (params->tokens - 1) / BATCH_QUERIES + 1;
}

/* The query of this lane in a batch; tokens or more: none. */
DEVICE int lane_query(int batch) {
    return (int)((u32)batch * BATCH_QUERIES + threadIdx.x % 32);
}

/* A query's window, { rows, 0 } when it is empty or does not count, or there is no such query. */
DEVICE struct key_range query_window(const struct indexer_logits_fwd_params *params, int query) {
    struct key_range window = {params->rows, 0};
    if (query >= 0 && query < params->tokens) {
        const int begin = __ldg(params->window_begin + query);
        const int end = __ldg(params->window_end + query);
        const struct key_range among = window_among(begin, end, 0, params->rows);
        if (among.begin < among.end && has_keys(begin, end, params->rows, params->least)) {
            window = among;
        }
    }
    return window;
}

/* The slabs of a block: numbers begin <= slab < end; of the lanes' windows of its queries. */
DEVICE struct key_range block_slabs(const struct key_range *window) {
    struct key_range keys = *window;
#pragma unroll
    for (int i = 1; i < BLOCK_QUERIES; i *= 2) {
        keys.begin = minimum(keys.begin, __shfl_xor_sync((u32)ALL_LANES, keys.begin, i));
        keys.end = maximum(keys.end, __shfl_xor_sync((u32)ALL_LANES, keys.end, i));
    }
    const struct key_range slabs = {keys.begin / SLAB,
                                    keys.end > 0 ? (keys.end - 1) / SLAB + 1 : 0};
    const struct key_range none = {0, 0};
    return slabs.begin < slabs.end ? slabs : none;
}

/* Of a block, in slabs; that of its first lane, 0 of the others. */
DEVICE int block_cost(const struct key_range *slabs) {
    const int count = slabs->end - slabs->begin;
    return threadIdx.x % BLOCK_QUERIES == 0 && count > 0 ? count + BLOCK_START : 0;
}

/* Batches of a group: one as long as there are no more than groups, so that a run's beginning is
 * found without looking at batches ahead of it; else as many as COARSE groups need, a multiple of
 * those whose windows are loaded at once. */
DEVICE int group_batches(const struct indexer_logits_fwd_params *params) {
    const int batches = batch_count(params);
    return batches <= COARSE ? 1 : (batches - 1) / (COARSE * TOGETHER) * TOGETHER + TOGETHER;
}

/* The costs of TOGETHER batches. By whole warps. */
DEVICE void batch_costs(const struct indexer_logits_fwd_params *params, int first,
                        u32 costs_of[TOGETHER]) {
    struct key_range windows[TOGETHER];
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
        windows[i] = query_window(params, lane_query(minimum(first, batch_count(params)) + i));
    }
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
        const struct key_range slabs = block_slabs(&windows[i]);
        costs_of[i] = warp_reduce_add((u32)block_cost(&slabs));
    }
}

/* Writes the costs of groups of batches, those without any too. By the whole thread block, which
 * then meets. */
DEVICE void count_costs(const struct indexer_logits_fwd_params *params) {
    const int batches = group_batches(params), each = batches == 1 ? TOGETHER : 1; /* groups */
#pragma unroll 1
    for (int group = (int)threadIdx.x / 32 * each; group < COARSE; group += THREADS / 32 * each) {
        const i64 first = (i64)group * batches;
        u32 found[TOGETHER] = {0};
        i64 cost = 0;
        if (first < batch_count(params)) {
#pragma unroll 1
            for (int i = 0; i < batches; i += TOGETHER) {
                batch_costs(params, (int)first + i, found);
#pragma unroll
                for (int k = 0; k < TOGETHER; ++k) {
                    cost += found[k];
                }
            }
        }
        if (threadIdx.x % 32 == 0) {
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k) {
                if (k < each) {
                    costs()[group + k] = each > 1 ? (i64)found[k] : cost;
                }
            }
        }
    }
}

/* Where a thread block's run begins and ends, counted in slabs from the beginning of a batch. */
struct place {
    i64 begin, end;
    int batch;
};

/* Places in COSTS behind the groups': what a producer's warp keeps there, the sums of 32 parts of
 * the groups, then where its run begins. */
enum {
    QUERY_FOUND = COARSE,
    KEY_FOUND = QUERY_FOUND + 34,
};

/* This thread block's. By a warp, once all costs stand there; `own`: its place. */
DEVICE struct place find_run(const struct indexer_logits_fwd_params *params, int own) {
    enum { EACH = COARSE / 32 };
    const int lane = (int)threadIdx.x % 32;
    i64 *const sums = costs() + own, *const found = sums + 32;
    i64 mine = 0, before = 0, total = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        mine += costs()[lane * EACH + i];
    }
    sums[lane] = mine;
    __syncwarp((u32)ALL_LANES);
#pragma unroll 16
    for (int i = 0; i < 32; ++i) {
        before += i < lane ? sums[i] : 0;
        total += sums[i];
    }
    const i64 begin = total * blockIdx.x / gridDim.x;
    if (begin >= before && begin < before + mine) {
        int group = lane * EACH;
        while (begin >= before + costs()[group]) {
            before += costs()[group++];
        }
        found[0] = begin - before;
        found[1] = group;
    }
    __syncwarp((u32)ALL_LANES);
    struct place place = {0, 0, 0};
    if (total > 0) {
        place.begin = found[0];
        place.end = place.begin + total * (blockIdx.x + 1) / gridDim.x - begin;
        place.batch = (int)found[1] * group_batches(params);
    }
    return place;
}

/* What a lane knows of its block, in a batch. */
struct lane_block {
    struct key_range window; /* of the lane's query */
    struct run run;
};

/* The runs of a batch's blocks, each with its first lane; others have no slabs. Moves the place on
 * to the next batch. */
DEVICE void look_at_batch(struct lane_block *block, const struct indexer_logits_fwd_params *params,
                          struct place *place) {
    const int lane = (int)threadIdx.x % 32, query = lane_query(place->batch);
    block->window = query_window(params, query);
    const bool present = query < params->tokens;
    block->run.inner = present ? block->window.begin : 0;
    block->run.outer = present ? block->window.end : params->rows;
#pragma unroll
    for (int i = 1; i < BLOCK_QUERIES; i *= 2) {
        block->run.inner =
            maximum(block->run.inner, __shfl_xor_sync((u32)ALL_LANES, block->run.inner, i));
        block->run.outer =
            minimum(block->run.outer, __shfl_xor_sync((u32)ALL_LANES, block->run.outer, i));
    }
    const struct key_range slabs = block_slabs(&block->window);
    const int cost = block_cost(&slabs);
    int sum = cost;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        const int below = __shfl_up_sync((u32)ALL_LANES, sum, i);
        sum += lane >= i ? below : 0;
    }
    const i64 first = (i64)(sum - cost) + BLOCK_START; /* where the block's first slab stands */
    const i64 begin = place->begin > first ? place->begin - first : 0;
    const i64 count = slabs.end - slabs.begin, limit = place->end - first;
    const i64 end = limit < count ? limit : count;
    block->run.query = query;
    block->run.key = (slabs.begin + (int)begin) * SLAB;
    block->run.slabs = cost > 0 && end > begin ? (int)(end - begin) : 0;
    const int total = __shfl_sync((u32)ALL_LANES, sum, 31);
    place->begin -= total;
    place->end -= total;
    ++place->batch;
}
