//@use common/base.cuh
//@use common/logit.cuh
//@use common/warp_scan.cuh
//@use ptx/redux.cuh
//@use indexer_logits_fwd.params.h
//@use indexer_logits_fwd.sm90_tiles.cuh
/*
 * The schedule of indexer_logits_fwd.sm90.cu and .sm90_heads.cu: windows, the KV tiles of blocks of
 * queries, their costs, and the CTA's run of them.
 */

DEVICE int batch_count(const struct indexer_logits_fwd_params *params) {
    return (params->tokens - 1) / BATCH_QUERIES + 1;
}

/* The first of this lane's LANE_QUERIES queries in a batch; there is none from `tokens` on. */
DEVICE int lane_query(int batch) {
    return (int)((u32)batch * BATCH_QUERIES + threadIdx.x % 32 * LANE_QUERIES);
}

/* A query's window; { rows, 0 } if it is empty, too short, or there is no such query. */
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

/* The keys from the first to the last one of the windows of a lane's queries. */
DEVICE struct key_range lane_window(const struct indexer_logits_fwd_params *params, int query) {
    struct key_range window = query_window(params, query);
#pragma unroll
    for (int i = 1; i < LANE_QUERIES; ++i) {
        const struct key_range other = query_window(params, query + i);
        window.begin = minimum(window.begin, other.begin);
        window.end = maximum(window.end, other.end);
    }
    return window;
}

/* The keys that all windows of a lane's queries have. Queries that do not exist have all. */
DEVICE struct key_range lane_inner(const struct indexer_logits_fwd_params *params, int query) {
    struct key_range inner = {0, params->rows};
#pragma unroll
    for (int i = 0; i < LANE_QUERIES; ++i) {
        if (query + i >= 0 && query + i < params->tokens) {
            const struct key_range window = query_window(params, query + i);
            inner.begin = maximum(inner.begin, window.begin);
            inner.end = minimum(inner.end, window.end);
        }
    }
    return inner;
}

/* The tiles [begin, end) of a block, from the windows of its queries' lanes. */
DEVICE struct key_range block_tiles(const struct key_range *window) {
    struct key_range keys = *window;
#pragma unroll
    for (int i = 1; i < BLOCK_LANES; i *= 2) {
        keys.begin = minimum(keys.begin, __shfl_xor_sync((u32)ALL_LANES, keys.begin, i));
        keys.end = maximum(keys.end, __shfl_xor_sync((u32)ALL_LANES, keys.end, i));
    }
    const struct key_range tiles = {keys.begin / TILE_KEYS,
                                    keys.end > 0 ? (keys.end - 1) / TILE_KEYS + 1 : 0};
    const struct key_range none = {0, 0};
    return tiles.begin < tiles.end ? tiles : none;
}

/* A block's cost in tiles, in its first lane; 0 in the others. */
DEVICE int block_cost(const struct key_range *tiles) {
    const int count = tiles->end - tiles->begin;
    return threadIdx.x % BLOCK_LANES == 0 && count > 0 ? count + BLOCK_START : 0;
}

/* Batches per group of costs: one if there are at most COARSE batches, so that a run's start is
 * found without looking at earlier batches; else what COARSE groups need, a multiple of TOGETHER.
 */
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
        windows[i] = lane_window(params, lane_query(minimum(first, batch_count(params)) + i));
    }
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
        const struct key_range tiles = block_tiles(&windows[i]);
        costs_of[i] = warp_reduce_add((u32)block_cost(&tiles));
    }
}

/* Writes the costs of all COARSE groups, including empty ones. By the whole thread block; needs a
 * barrier after it. */
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

/* Begin and end of a CTA's run, in tiles from the start of a batch. */
struct span {
    i64 begin, end;
    int batch;
};

/* Offsets in COSTS of the two producer warps' scratch: an exclusive scan's 32 inputs, then where
 * the run begins. */
enum {
    QUERY_FOUND = COARSE,
    KEY_FOUND = QUERY_FOUND + 34,
};

/* This CTA's run. By a warp, after a barrier that follows count_costs; `own`: the warp's scratch.
 */
DEVICE struct span find_span(const struct indexer_logits_fwd_params *params, int own) {
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
    struct span span = {0, 0, 0};
    if (total > 0) {
        span.begin = found[0];
        span.end = span.begin + total * (blockIdx.x + 1) / gridDim.x - begin;
        span.batch = (int)found[1] * group_batches(params);
    }
    return span;
}

/* A lane's query and its block, in a batch. */
struct lane_block {
    struct key_range window; /* of the lane's queries */
    struct run run;
};

/* The runs of a batch's blocks, each in its first lane; other lanes have no tiles. Advances to the
 * next batch. */
DEVICE void schedule_batch(struct lane_block *block, const struct indexer_logits_fwd_params *params,
                           struct span *span) {
    const int lane = (int)threadIdx.x % 32, query = lane_query(span->batch);
    block->window = lane_window(params, query);
    const bool present = query < params->tokens;
    block->run.inner = present ? block->window.begin : 0;
    block->run.outer = present ? block->window.end : params->rows;
    if (LANE_QUERIES > 1) {
        const struct key_range inner = lane_inner(params, query);
        block->run.inner = inner.begin;
        block->run.outer = inner.end;
    }
#pragma unroll
    for (int i = 1; i < BLOCK_LANES; i *= 2) {
        block->run.inner =
            maximum(block->run.inner, __shfl_xor_sync((u32)ALL_LANES, block->run.inner, i));
        block->run.outer =
            minimum(block->run.outer, __shfl_xor_sync((u32)ALL_LANES, block->run.outer, i));
    }
    const struct key_range tiles = block_tiles(&block->window);
    const int cost = block_cost(&tiles);
    const int sum = warp_inclusive_scan(cost, lane);
    const i64 first = (i64)(sum - cost) + BLOCK_START; /* the block's first tile */
    const i64 begin = span->begin > first ? span->begin - first : 0;
    const i64 count = tiles.end - tiles.begin, limit = span->end - first;
    const i64 end = limit < count ? limit : count;
    block->run.query = query;
    block->run.key = (tiles.begin + (int)begin) * TILE_KEYS;
    block->run.tiles = cost > 0 && end > begin ? (int)(end - begin) : 0;
    const int total = __shfl_sync((u32)ALL_LANES, sum, 31);
    span->begin -= total;
    span->end -= total;
    ++span->batch;
}
