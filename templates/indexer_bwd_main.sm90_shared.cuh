//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/warp_arrival.cuh
//@use ptx/mbarrier.cuh
//@use indexer_bwd_main.params.h
/*
 * What the roles of indexer_bwd_main.sm90.cu share, whose head has the shared-memory map and says
 * who arrives at each barrier: the sizes of tiles, the barriers' places, and which blocks of an
 * item's list a tile has.
 */

enum {
    WARPGROUP = 128, /* threads */
    ALL_LANES = -1,
    SUMS_WARPGROUP = ROW_TILES, /* the gather is the one behind it */

    TILE_ROWS = 64,
    TILE_COLUMNS = 64,
    TILE_PITCH = 2 * TILE_COLUMNS, /* bytes of a row */
    TILE_BYTES = TILE_ROWS * TILE_PITCH,
    ATOM_BYTES = 8 * TILE_PITCH,     /* eight rows of a tile */
    ROW_STEP_BYTES = 2 * ATOM_BYTES, /* 16 rows of a tile: a k-step along rows */
    COLUMN_TILES = DIM / TILE_COLUMNS,
    QUERY_TILE_BYTES = ROW_TILES * TILE_BYTES, /* of 64 columns of all rows of an item */
    QUERY_BYTES = COLUMN_TILES * QUERY_TILE_BYTES,
    KEY_BYTES = COLUMN_TILES * TILE_BYTES,      /* of a block */
    GRAD_BYTES = GROUP_QUERIES * BLOCK_KEYS * 4 /* of a block */
};

/* ---- barriers and tiles ---------------------------------------------------------------------- */

/* Places in BARRIERS; those of a tile follow each other. */
enum {
    QUERIES_FULL = 0,
    QUERIES_FREE = QUERIES_FULL + 2,
    SLOPES_FULL = QUERIES_FREE + 2,
    SLOPES_FREE = SLOPES_FULL + 2 * ROW_TILES,
    KEYS_FULL = SLOPES_FREE + 2 * ROW_TILES,
    KEYS_FREE = KEYS_FULL + STAGES * ROW_TILES
};

DEVICE u32 barrier_at(u32 number) {
    return shared_address((u32)BARRIERS_OFFSET + number * 8);
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < 2; ++i) {
            mbarrier_init(barrier_at(QUERIES_FULL + i), 1);
            mbarrier_init(barrier_at(QUERIES_FREE + i), (ROW_TILES + 1) * 4 * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < 2 * ROW_TILES; ++i) {
            mbarrier_init(barrier_at(SLOPES_FULL + i), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(SLOPES_FREE + i), 4 * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < STAGES * ROW_TILES; ++i) {
            mbarrier_init(barrier_at(KEYS_FULL + i), WARPGROUP);
            mbarrier_init(barrier_at(KEYS_FREE + i), 4 * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
}

/* Waits for the end of the phase in which one of two places is filled for the use of that number,
 * of both together, or in which what was there before is given back. */
DEVICE void wait_full(u32 barriers, u32 use) {
    mbarrier_wait(barrier_at(barriers + use % 2), (int)(use / 2 & 1));
}

DEVICE void wait_free(u32 barriers, u32 use) {
    mbarrier_wait(barrier_at(barriers + use % 2), (int)(use / 2 & 1 ^ 1));
}

/* The same of a stage of keys, of a tile whose phases are a bit a stage. */
DEVICE void wait_keys(u32 barriers, u32 tile, u32 stage, u32 *phases) {
    mbarrier_wait(barrier_at(barriers + tile * STAGES + stage), (int)(*phases >> stage & 1));
    *phases ^= 1u << stage;
}

/* Tiles from an offset on as A or B, columns the depth; or as B, rows the depth. */
DEVICE u64 tile_descriptor(u32 offset) {
    return shared_descriptor(shared_address(offset), 16, ATOM_BYTES, 128);
}

DEVICE u64 columns_descriptor(u32 offset) {
    return shared_descriptor(shared_address(offset), TILE_BYTES, ATOM_BYTES, 128);
}

DEVICE u32 queries_at(u32 item, u32 tile) {
    return QUERIES_OFFSET + item % 2 * QUERY_BYTES + tile * TILE_BYTES;
}

DEVICE u32 keys_at(u32 stage) {
    return KEYS_OFFSET + stage * KEY_BYTES;
}

/* Of the use of that number by a tile. */
DEVICE int slopes_at(u32 tile, u32 use) {
    return (int)(SLOPES_OFFSET + (tile * 2 + use % 2) * TILE_BYTES);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* The thread block's first group; the next one is gridDim.x before it. */
DEVICE int first_group(const struct indexer_bwd_main_params *params) {
    return params->first_group + params->groups - 1 - (int)blockIdx.x;
}

/* Key blocks of a group. */
DEVICE int group_blocks(const struct indexer_bwd_main_params *params, int group) {
    return (params->counts[group] + BLOCK_KEYS - 1) / BLOCK_KEYS;
}

/* Where in the list the block is whose turn it is. */
DEVICE int block_in_turn(int turn, int blocks) {
    return GROUP_TILES == 1 ? turn : turn % 2 ? blocks - 1 - turn / 2 : turn / 2;
}

/* Which blocks of its group's list a tile has. */
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
