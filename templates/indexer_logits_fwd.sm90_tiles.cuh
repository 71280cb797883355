//@use common/base.cuh
//@use common/logit.cuh
//@use common/stored_logit.cuh
//@use common/warp_arrival.cuh
//@use ptx/mbarrier.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/tensor.cuh
//@use indexer_logits_fwd.params.h
/*
 * Sizes of tiles, blocks and parts of indexer_logits_fwd.sm90.cu and .sm90_heads.cu, and their shared
 * memory.
 */

enum {
    KEY_WARP = 0, /* of the warpgroup after math */
    QUERY_WARP = 1,
    FILLER_WARP = 2,
    TILE_KEYS = BLOCK_KEYS, /* of a product */
    ATOM_ROWS = 8,
    SET_QUERIES = 4,
    BATCH_QUERIES = 32 * LANE_QUERIES,          /* a warp looks at their windows together */
    BLOCK_LANES = BLOCK_QUERIES / LANE_QUERIES, /* that look at a block's */
    COLUMNS = BLOCK_QUERIES * PADDED_HEADS,     /* queries of a block with their heads */
    PARTS = COLUMNS / PART_COLUMNS,
    ELEMENT_BYTES = FP8 ? 1 : 2,
    HALVES = ROW_BYTES / SWIZZLE,
    STEP_BYTES = 32, /* of a row: a k-step */
    STEPS = ROW_BYTES / STEP_BYTES,
    HALF_STEPS = SWIZZLE / STEP_BYTES,
    QUERY_HALF_BYTES = COLUMNS * SWIZZLE,
    QUERY_BYTES = HALVES * QUERY_HALF_BYTES,
    KEY_HALF_BYTES = TILE_KEYS * SWIZZLE,
    KEY_BYTES = HALVES * KEY_HALF_BYTES,
    SETS = BLOCK_QUERIES / SET_QUERIES,
    SET_EIGHTS = PADDED_HEADS / 2 /* groups of eight columns */
};

/* Barrier numbers. */
enum {
    FULL = 0,
    EMPTY = FULL + STAGES,
    QUERY_FULL = EMPTY + STAGES,
    QUERY_EMPTY = QUERY_FULL + QUERY_BUFFERS
};

/* The CTA's part of a block of queries. */
struct run {
    int query, key; /* the first ones */
    int tiles;      /* 0: no block is left */
    int inner;      /* keys [inner, outer) are in the windows of all its queries */
    int outer;
    int unused;
};

DEVICE struct run *run_at(int buffer) {
    return (struct run *)(arena + RUNS_OFFSET) + buffer;
}

DEVICE float *weights_at(int buffer) {
    return (float *)(arena + WEIGHTS_OFFSET) + buffer * (BLOCK_QUERIES * PADDED_HEADS);
}

DEVICE struct key_range *windows_at(int buffer) {
    return (struct key_range *)(arena + WINDOWS_OFFSET) + buffer * BLOCK_QUERIES;
}

DEVICE u32 queries_at(int buffer) {
    return (u32)(QUERIES_OFFSET + buffer * QUERY_BYTES);
}

DEVICE u32 keys_at(int stage) {
    return (u32)(KEYS_OFFSET + stage * KEY_BYTES);
}

DEVICE i64 *costs(void) {
    return (i64 *)(arena + COSTS_OFFSET);
}

DEVICE void initialise(const struct indexer_logits_fwd_params *params) {
    if (threadIdx.x == 0) {
        tensor_prefetch(&params->q_map);
        tensor_prefetch(&params->k_map);
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), 1);
            mbarrier_init(barrier_at(EMPTY + stage), 4 * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < QUERY_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(QUERY_FULL + buffer), WARP_ARRIVALS);
            mbarrier_init(barrier_at(QUERY_EMPTY + buffer), 4 * WARPGROUPS * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    for (int i = (int)threadIdx.x; i < FILL_BYTES / (int)sizeof(stored_logit); i += THREADS) {
        store_logit((stored_logit *)(arena + LOWEST_OFFSET) + i, LOWEST_LOGIT);
    }
    fence_proxy_async();
}
