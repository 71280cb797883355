//@use common/base.cuh
//@use common/warp_arrival.cuh
//@use common/wgmma_tile.cuh
//@use ptx/mbarrier.cuh
/* Shared memory and barriers of dense_scores_fwd.sm90.cu, whose head explains them. */

enum {
    PARTS = (DQK + TILE_COLUMNS - 1) / TILE_COLUMNS,
    COLUMNS = SLABS * 64, /* rows of the queries' tiles, columns of D */
    KEYS_BYTES = BLOCK_KEYS * TILE_PITCH,
    QUERIES_BYTES = COLUMNS * TILE_PITCH
};

/* mbarriers, as indices into BARRIERS. */
enum { FULL = 0, EMPTY = FULL + STAGES };

/* What follows a part. */
enum { LAST_TILE = 1 /* of these keys */, ADDS = 2 /* to an earlier round's sums */, NO_MORE = 4 };

struct step {
    int flags;
    int first_query, queries; /* of the tile; those that exist */
    int first_key, keys;
    int unused[3];
};

DEVICE struct step *step_at(int stage) {
    return (struct step *)(arena + STEPS_OFFSET) + stage;
}

DEVICE float *offsets_at(int stage) {
    return (float *)(arena + OFFSETS_OFFSET) + stage * COLUMNS;
}

DEVICE u32 stage_at(int stage) {
    return (u32)(STREAM_OFFSET + stage * STAGE_BYTES);
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), WARP_ARRIVALS);
            mbarrier_init(barrier_at(EMPTY + stage), 4 * CONSUMERS * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
}
