//@use common/base.cuh
//@use common/warp_arrival.cuh
//@use common/wgmma_tile.cuh
//@use ptx/mbarrier.cuh
/*
 * Shared memory and barriers of sparse_attn_fwd.sm90.cu, whose head says what each buffer holds and
 * which role arrives at each barrier.
 */

enum {
    SCORES_WARPGROUP = 0,
    OUTPUT_WARPGROUP = 1, /* and the next */
    GATHER_WARPGROUP = 3,
    SCORES_BARRIER = 1, /* named; the gather's is SCAN_BARRIER (common/warpgroup_slots.cuh) */

    BLOCK_HEADS = 64, /* of an item: rows of the products */
    LATENT_TILES = DV / TILE_COLUMNS,
    STAGE_BYTES = LATENT_TILES * TILE_BYTES,
    STEPS = DQK / 16,
    LATENT_STEPS = DV / 16,
    LATENT_SLICES = LATENT_STEPS - REGISTER_STEPS, /* k-steps of Q in shared memory, without rope */
    SLICE_BYTES = BLOCK_HEADS * STEP_BYTES,        /* of one such k-step */
    ROPE_STEPS = STEPS - LATENT_STEPS,
    LAST_HEAD = HEADS - 1,
    OUTPUT_COLUMNS = DV / 2, /* of a warpgroup */
    OUTPUT_TILES = LATENT_TILES / 2,

    SCORE_VALUES = 32,                    /* S per thread */
    OUTPUT_VALUES = OUTPUT_COLUMNS / 2,   /* O per thread */
    OUTPUT_HALF = OUTPUT_VALUES / 2,      /* of one wgmma */
    QUERY_FRAGMENTS = REGISTER_STEPS * 4, /* registers */
    QUAD_BYTES = 4 * 16                   /* of a row of O, stored by four threads at once */
};

/* mbarriers, as indices into BARRIERS. */
enum {
    FULL = 0,
    EMPTY_LOW = FULL + STAGES,
    EMPTY_HIGH = EMPTY_LOW + STAGES,
    P_FULL = EMPTY_HIGH + STAGES,
    ORDER = P_FULL + P_BUFFERS,
    P_FREE = ORDER + P_BUFFERS,
    ROPE_FULL = P_FREE + P_BUFFERS,
    ROPE_FREE = ROPE_FULL + 1
};

/* Offsets of buffers. */
DEVICE u32 latent_stage(int stage) {
    return (u32)(LATENT_OFFSET + stage * STAGE_BYTES);
}

DEVICE u32 probability_tile(int buffer) {
    return (u32)(PROBABILITIES_OFFSET + buffer * TILE_BYTES);
}

/* The word of a key block: its number of keys and its position in the query. */
enum { FIRST_BLOCK = 256, LAST_BLOCK = 512, COUNT_MASK = 255 };

DEVICE int *block_word(int stage) {
    return (int *)(arena + WORDS_OFFSET) + stage;
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), WARPGROUP + 1);
            mbarrier_init(barrier_at(EMPTY_LOW + stage), 8 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(EMPTY_HIGH + stage), 8 * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < P_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(P_FULL + buffer), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(ORDER + buffer), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(P_FREE + buffer), 8 * WARP_ARRIVALS);
        }
        mbarrier_init(barrier_at(ROPE_FULL), WARPGROUP);
        mbarrier_init(barrier_at(ROPE_FREE), 4 * WARP_ARRIVALS);
    }
    __syncthreads();
}
