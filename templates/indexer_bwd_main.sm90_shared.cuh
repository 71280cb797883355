//@use common/base.cuh
//@use common/warp_arrival.cuh
//@use common/wgmma_tile.cuh
//@use ptx/mbarrier.cuh
//@use indexer_bwd_main.params.h
/*
 * Shared by the roles of indexer_bwd_main.sm90.cu, whose head comment has the shared-memory map and
 * the barriers: tile sizes, buffer addresses, barrier numbers, and which blocks of an item's list a
 * tile has.
 */

enum {
    SUMS_WARPGROUP = ROW_TILES, /* followed by the gather */

    TILE_ROWS = 64,
    COLUMN_TILES = DIM / TILE_COLUMNS,
    QUERY_TILE_BYTES = ROW_TILES * TILE_BYTES, /* 64 columns of all rows of an item */
    QUERY_BYTES = COLUMN_TILES * QUERY_TILE_BYTES,
    KEY_BYTES = COLUMN_TILES * TILE_BYTES,      /* of a block */
    GRAD_BYTES = GROUP_QUERIES * BLOCK_KEYS * 4 /* of a block */
};

/* ---- barriers and tiles ---------------------------------------------------------------------- */

/* Barrier numbers. A tile's barriers are adjacent. */
enum {
    QUERIES_FULL = 0,
    QUERIES_FREE = QUERIES_FULL + 2,
    DX_FULL = QUERIES_FREE + 2,
    DX_FREE = DX_FULL + 2 * ROW_TILES,
    KEYS_FULL = DX_FREE + 2 * ROW_TILES,
    KEYS_FREE = KEYS_FULL + STAGES * ROW_TILES
};

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < 2; ++i) {
            mbarrier_init(barrier_at(QUERIES_FULL + i), 1);
            mbarrier_init(barrier_at(QUERIES_FREE + i), (ROW_TILES + 1) * 4 * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < 2 * ROW_TILES; ++i) {
            mbarrier_init(barrier_at(DX_FULL + i), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(DX_FREE + i), 4 * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < STAGES * ROW_TILES; ++i) {
            mbarrier_init(barrier_at(KEYS_FULL + i), WARPGROUP);
            mbarrier_init(barrier_at(KEYS_FREE + i), 4 * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
}

/* Waits until one of two alternating buffers is full for use number `use`, or free for it. */
DEVICE void wait_full(u32 barriers, u32 use) {
    mbarrier_wait(barrier_at(barriers + use % 2), (int)(use / 2 & 1));
}

DEVICE void wait_free(u32 barriers, u32 use) {
    mbarrier_wait(barrier_at(barriers + use % 2), (int)(use / 2 & 1 ^ 1));
}

/* The same for a tile's stage of keys; `phases` has a bit per stage. */
DEVICE void wait_keys(u32 barriers, u32 tile, u32 stage, u32 *phases) {
    mbarrier_wait(barrier_at(barriers + tile * STAGES + stage), (int)(*phases >> stage & 1));
    *phases ^= 1u << stage;
}

DEVICE u32 queries_at(u32 item, u32 tile) {
    return QUERIES_OFFSET + item % 2 * QUERY_BYTES + tile * TILE_BYTES;
}

DEVICE u32 keys_at(u32 stage) {
    return KEYS_OFFSET + stage * KEY_BYTES;
}

DEVICE u32 grads_at(u32 stage) {
    return GRADS_OFFSET + stage * GRAD_BYTES;
}

DEVICE const int *block_numbers(u32 block) {
    return (const int *)(arena + NUMBERS_OFFSET) + block % NUMBER_STAGES * BLOCK_KEYS;
}

/* The buffer of dX for the tile's use number `use`. */
DEVICE int dx_at(u32 tile, u32 use) {
    return (int)(DX_OFFSET + (tile * 2 + use % 2) * TILE_BYTES);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* The CTA's first group; the next one is gridDim.x lower. */
DEVICE int first_group(const struct indexer_bwd_main_params *params) {
    return params->first_group + params->groups - 1 - (int)blockIdx.x;
}

DEVICE int group_blocks(const struct indexer_bwd_main_params *params, int group) {
    return (params->counts[group] + BLOCK_KEYS - 1) / BLOCK_KEYS;
}

/* The block of an iteration: alternately from both ends if there are two tiles. */
DEVICE int block_of_iteration(int i, int blocks) {
    return GROUP_TILES == 1 ? i : i % 2 ? blocks - 1 - i / 2 : i / 2;
}

/* The range of blocks of its group's list that a tile has. */
struct run {
    int begin, end;
};

DEVICE struct run tile_run(const struct indexer_bwd_main_params *params, int group, int tile) {
    struct run run = {0, group_blocks(params, group)};
    if (GROUP_TILES > 1 && tile == 0) {
        run.end = (params->runs[2 * (i64)group + 1] + BLOCK_KEYS - 1) / BLOCK_KEYS;
    } else if (GROUP_TILES > 1) {
        run.begin = params->runs[2 * (i64)group] / BLOCK_KEYS;
    }
    return run;
}

DEVICE bool has_block(struct run run, int block) {
    return block >= run.begin && block < run.end;
}
