//@use common/base.cuh
//@use common/gqa_products.cuh
//@use common/warp_arrival.cuh
//@use ptx/mbarrier.cuh
/* Shared memory and barriers of sparse_gqa_fwd.sm90.cu, whose head explains them. */

/* mbarriers, as indices into BARRIERS. */
enum { FULL = 0, EMPTY = FULL + STAGES, KV_FULL = EMPTY + STAGES, KV_EMPTY = KV_FULL + KV_BUFFERS };

/* What a consumer is to do with a stage. */
enum { FIRST_TILE = 1, LAST_TILE = 2, NO_ROWS = 4, NO_MORE_TILES = 8 };

struct tile {
    int unit[TILE_UNITS]; /* number of each eight rows, or -1: they are discarded */
    int keys[TILE_UNITS]; /* of the block, that they read */
    int flags;            /* FIRST_TILE and LAST_TILE are the consumer's of an item */
    int unused[3];
};

DEVICE struct tile *tile_at(int stage) {
    return (struct tile *)(arena + TILES_OFFSET) + stage;
}

DEVICE u32 keys_at(int buffer) {
    return (u32)(KEYS_OFFSET + buffer * KEY_BYTES);
}

DEVICE u32 values_at(int buffer) {
    return (u32)(VALUES_OFFSET + buffer * VALUE_BYTES);
}

DEVICE u32 query_at(int stage) {
    return (u32)(QUERY_OFFSET + stage * QUERY_BYTES);
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), WARP_ARRIVALS);
            mbarrier_init(barrier_at(EMPTY + stage), 4 * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < KV_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(KV_FULL + buffer), WARP_ARRIVALS);
            mbarrier_init(barrier_at(KV_EMPTY + buffer), 4 * CONSUMERS * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
}
