//@use common/base.cuh
//@use common/warp_arrival.cuh
//@use common/wgmma_tile.cuh
//@use ptx/mbarrier.cuh
/* Shared memory and barriers of sparse_gqa_bwd_keys.sm90.cu, whose head explains them. */

enum {
    KEY_TILES = (DQK + TILE_COLUMNS - 1) / TILE_COLUMNS, /* of columns */
    VALUE_TILES = (DV + TILE_COLUMNS - 1) / TILE_COLUMNS,
    PARTS = BLOCK_KEYS / 64, /* warpgroups of a team */
    TEAMS = 2 / PARTS,
    BLOCK_TILE_BYTES = BLOCK_KEYS * TILE_PITCH, /* a column tile of K or V */
    KEY_BYTES = KEY_TILES * BLOCK_TILE_BYTES,
    VALUE_BYTES = VALUE_TILES * BLOCK_TILE_BYTES,
    QUERY_BYTES = KEY_TILES * TILE_BYTES,
    GRAD_BYTES = VALUE_TILES * TILE_BYTES,
    UNIT_ROWS = 8,
    TILE_UNITS = 8,
    TILE_ROWS = 64,
    TEAM_BARRIER = 1 /* and the next, named */
};

/* mbarriers, as indices into BARRIERS. */
enum { FULL = 0, EMPTY = FULL + STAGES, KV_FULL = EMPTY + STAGES, KV_EMPTY = KV_FULL + 1 };

/* What a team is to do with a stage. */
enum { FIRST_TILE = 1, LAST_TILE = 2, NO_ROWS = 4, NO_MORE_TILES = 8 };

struct tile {
    int unit[TILE_UNITS]; /* number of each eight rows, or -1: they are discarded */
    int keys[TILE_UNITS]; /* of the block, that they read */
    int flags;            /* FIRST_TILE and LAST_TILE are the team's of an item */
    int item;             /* its number */
    int masked;           /* 1: some unit does not read all keys */
    int unused;
};

DEVICE struct tile *tile_at(int stage) {
    return (struct tile *)(arena + TILES_OFFSET) + stage;
}

DEVICE u32 query_at(int stage) {
    return (u32)(QUERY_OFFSET + stage * QUERY_BYTES);
}

DEVICE u32 grad_at(int stage) {
    return (u32)(GRAD_OFFSET + stage * GRAD_BYTES);
}

DEVICE u32 ds_at(int team, int buffer) {
    return (u32)(DS_OFFSET + (team * DS_BUFFERS + buffer) * BLOCK_TILE_BYTES);
}

/* Base and delta of a stage's rows. */
DEVICE float2 *rows_at(int stage) {
    return (float2 *)(arena + ROWS_OFFSET) + stage * TILE_ROWS;
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), WARP_ARRIVALS);
            mbarrier_init(barrier_at(EMPTY + stage), 4 * PARTS * WARP_ARRIVALS);
        }
        mbarrier_init(barrier_at(KV_FULL), WARP_ARRIVALS);
        mbarrier_init(barrier_at(KV_EMPTY), 4 * TEAMS * PARTS * WARP_ARRIVALS);
        mbarrier_fence_init();
    }
    __syncthreads();
}
