//@use common/base.cuh
//@use common/queries.cuh
//@use ptx/cp_async.cuh
/*
 * The slots of a query's index row where they stand, masked ones among them, in pairs of blocks of
 * BLOCK_KEYS, which is 64: by the four warps of a warpgroup, each of which looks at all slots of a
 * pair and copies the rows of 16 slots of either block. A pair's slots are loaded one pair ahead.
 *
 * A block in shared memory: ROW_TILES tiles of BLOCK_KEYS rows of 128 bytes, 128-byte swizzled, as
 * common/descriptor.cuh has them K-major.
 */

enum {
    ALL_LANES = -1,
    MASKED = -1,
    PAIR_SLOTS = 2 * BLOCK_KEYS,
    LANE_SLOTS = PAIR_SLOTS / 32,
    TILE_PITCH = 128, /* bytes of a row, 64 columns */
    TILE_BYTES = BLOCK_KEYS * TILE_PITCH,
    BLOCK_BYTES = ROW_TILES * TILE_BYTES
};

/* A query's index row. */
struct slot_row {
    const int *row;
    int slots; /* how many there are to look at */
};

/* A pair's slots, by lane: slots lane, lane + 32, ... of it. */
struct slot_pair {
    int values[LANE_SLOTS]; /* rows' numbers; what stands in a masked slot is any number before
                               vote_pair, MASKED after */
    u32 votes[LANE_SLOTS];  /* after vote_pair: a bit for each valid slot, in slot order */
};

DEVICE struct slot_row open_row(const struct work_params *params, int query) {
    const struct slot_row opened = {index_row(params, query), index_slots(params, query, query)};
    return opened;
}

/* Starts loading the pair that begins at slot `first`. */
DEVICE void load_pair(struct slot_pair *pair, const struct slot_row *row, int first) {
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        const int slot = first + i * 32 + (int)(threadIdx.x % 32);
        pair->values[i] = slot < row->slots ? row->row[slot] : MASKED;
    }
}

/* Finds out which slots are valid, of `rows` rows; whether any is. By the whole warp. */
DEVICE bool vote_pair(struct slot_pair *pair, int rows) {
    u32 any = 0;
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        const bool valid = pair->values[i] >= 0 && pair->values[i] < rows;
        pair->values[i] = valid ? pair->values[i] : MASKED;
        pair->votes[i] = __ballot_sync((u32)ALL_LANES, valid);
        any |= pair->votes[i];
    }
    return any != 0;
}

/* Whether a block of a pair, 0 or 1, has a valid slot. */
DEVICE bool block_has_any(const struct slot_pair *pair, int block) {
    return (pair->votes[2 * block] | pair->votes[2 * block + 1]) != 0;
}

/* Starts the copies of a block's rows to `to`: eight lanes 128 bytes of a row, four rows at a time;
 * zeros for a masked slot, and nothing is read for it. */
DEVICE void copy_block(const struct slot_pair *pair, int block, u32 to, const void *table,
                       u32 row_bytes) {
    const int warp = (int)(threadIdx.x % 128 / 32), lane = (int)(threadIdx.x % 32);
    const int value = warp < 2 ? pair->values[2 * block] : pair->values[2 * block + 1];
    const char *const columns = (const char *)table + lane % 8 * 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = i * 4 + lane / 8; /* of the warp's 16 */
        const int number = __shfl_sync((u32)ALL_LANES, value, warp % 2 * 16 + row);
        const char *const source = columns + (u64)(u32)maximum(number, 0) * row_bytes;
        const u32 place = to + (u32)((warp * 16 + row) * TILE_PITCH + ((lane ^ row) % 8) * 16);
#pragma unroll
        for (int tile = 0; tile < ROW_TILES; ++tile) {
            cp_async_16(place + (u32)(tile * TILE_BYTES), source + tile * TILE_PITCH,
                        number == MASKED ? 0 : 16);
        }
    }
}
