//@use common/base.cuh
//@use common/warp_arrival.cuh
//@use common/wgmma_tile.cuh
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh
/*
 * Shared memory and barriers of sparse_attn_bwd.sm90.cu, whose head says what each buffer holds and
 * which role arrives at each barrier.
 */

enum {
    TILES = DQK / TILE_COLUMNS,
    VALUE_TILES = DV / TILE_COLUMNS,
    MEMBER_ROWS = BLOCK_HEADS / GROUP_QUERIES, /* rows per query of an item */
    SIDES = PAIR ? 2 : 1,                      /* CTAs that process the same keys side by side */
    KEY_ROWS = HEAD_BLOCKS / SIDES,            /* partial rows per group and key */

    /* Q and dO are loaded and released in parts of PART_TILES tiles each: one tile, unless the
     * extra barriers cost time elsewhere (sparse_attn_bwd.lost.md). */
    PART_TILES = GROUP_QUERIES == 1 && !PAIR ? 1 : 3,
    PARTS = (TILES + PART_TILES - 1) / PART_TILES,

    BLOCKS_AHEAD = 4 /* key blocks whose descriptions are kept */
};

/* Named barriers. */
enum { SCORES_BARRIER = 1, GATHER_BARRIER = 2 };

/* 1: a pair's CTAs receive each other's sums in P's tile. */
enum { RECEIVES_IN_P = PAIR && RECEIVE_OFFSET == PROBABILITIES_OFFSET };

/* mbarriers, as indices into BARRIERS. */
enum {
    KEYS_FULL = 0,
    KEYS_FREE = KEYS_FULL + TILES,
    ANNOUNCED = KEYS_FREE + 1,
    DS_FULL = ANNOUNCED + 1,
    DS_FREE = DS_FULL + 1,
    QUERY_FULL = DS_FREE + 1,
    QUERY_FREE = QUERY_FULL + PARTS,
    /* Only with PAIR; the first two only with RECEIVES_IN_P. */
    P_FULL = QUERY_FREE + PARTS,
    P_FREE = P_FULL + 1,
    RECEIVED = P_FREE + 1,
    RECEIVE_FREE = RECEIVED + RECEIVE_BUFFERS
};

/* Waits for the pair's other CTA. All threads of both CTAs call it. */
DEVICE void sync_pair(void) {
    __syncwarp((u32)ALL_LANES);
    cluster_arrive();
    cluster_wait();
}

/* The offset of a K tile. */
DEVICE u32 key_tile(int tile) {
    return (u32)(KEYS_OFFSET + tile * TILE_BYTES);
}

/* ---- key blocks, by number, counted over all items of the CTA -------------------------------- */

/* block_word.flags: the number of keys, and the block's position in its item and in the CTA. */
enum {
    COUNT_MASK = 255,
    FIRST_BLOCK = 256,
    LAST_BLOCK = 512,
    MORE_BLOCKS = 1024,
    ODD_ITEM = 2048,  /* set for every other item of the CTA */
    BLOCK_UNIT = 4096 /* times the block's number % BLOCKS_AHEAD */
};

struct block_word {
    int item, flags;
    int partial_row; /* with DETERMINISTIC: the first key's row in the launch's partial rows; the
                        next key's is KEY_ROWS further */
    int unused;
};

DEVICE struct block_word *block_word(u32 block) {
    return (struct block_word *)(arena + WORDS_OFFSET) + block % BLOCKS_AHEAD;
}

/* The keys' numbers, -1 past the list's end. */
DEVICE int *block_keys(u32 block) {
    return (int *)(arena + KEY_NUMBERS_OFFSET) + block % BLOCKS_AHEAD * BLOCK_KEYS;
}

DEVICE unsigned char *block_masks(u32 block) {
    return arena + MASKS_OFFSET + block % BLOCKS_AHEAD * BLOCK_KEYS;
}

/* Global addresses of the keys' rows. Only the copies read them, so two blocks are kept. */
DEVICE u64 *block_addresses(u32 block) {
    return (u64 *)(arena + ADDRESSES_OFFSET) + block % 2 * BLOCK_KEYS;
}

/* ---- keeping in step (sparse_attn_bwd.sm90_in_step.cuh); in shared memory: registers are short */

enum { FIRST_SPIN_LIMIT = 256 }; /* polls of about a microsecond */

DEVICE int *spin_limit(void) {
    return (int *)(arena + SPIN_LIMIT_OFFSET);
}

/* The launch's mode. */
DEVICE int *step_mode(void) {
    return (int *)(arena + STEP_OFFSET);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Items are not negative: an unsigned division takes fewer registers. */
DEVICE int item_group(int item) {
    return (int)((u32)item / HEAD_BLOCKS);
}

DEVICE int first_head(int item) {
    return (int)((u32)item % HEAD_BLOCKS * BLOCK_HEADS);
}

DEVICE void initialise_shared(void) {
    if (threadIdx.x == 0) {
        for (int tile = 0; tile < TILES; ++tile) {
            mbarrier_init(barrier_at(KEYS_FULL + tile), WARPGROUP);
        }
        mbarrier_init(barrier_at(KEYS_FREE), 4 * WARP_ARRIVALS);
        mbarrier_init(barrier_at(ANNOUNCED), 4 * WARP_ARRIVALS);
        mbarrier_init(barrier_at(DS_FULL), 4 * WARP_ARRIVALS);
        mbarrier_init(barrier_at(DS_FREE), 8 * WARP_ARRIVALS);
        for (int part = 0; part < PARTS; ++part) {
            mbarrier_init(barrier_at(QUERY_FULL + part), 1);
            mbarrier_init(barrier_at(QUERY_FREE + part), 4 * WARP_ARRIVALS);
        }
        if (PAIR) {
            mbarrier_init(barrier_at(P_FULL), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(P_FREE), 4 * WARP_ARRIVALS);
            for (int buffer = 0; buffer < RECEIVE_BUFFERS; ++buffer) {
                mbarrier_init(barrier_at(RECEIVED + buffer), 1);
                mbarrier_init(barrier_at(RECEIVE_FREE + buffer), 4 * WARP_ARRIVALS);
            }
        }
        mbarrier_fence_init();
        *spin_limit() = FIRST_SPIN_LIMIT;
    }
    if (PAIR) {
        sync_pair();
    } else {
        __syncthreads();
    }
}
