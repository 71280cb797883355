//@use common/base.cuh
//@use common/few_item.cuh
//@use common/few_ring.cuh united = united
//@use common/few_tiles.cuh united = united
//@use ptx/memory.cuh
//@use ptx/shared.cuh
//@takes united
/*
 * The output of an item of the kernels for few heads: staged in the value tiles of its last block and
 * stored head by head. In the file that the kernel uses before this one:
 *   OUTPUT_COLUMNS        of the output
 *   find_output           where it is stored, or with `united`
 *   output_row            where a head's is, or null: nowhere
 */

enum {
    OUTPUT_CHUNKS = OUTPUT_COLUMNS / 8, /* of 16 bytes: a head's output */
    /* 64 columns of the heads' output that a tile of the ring holds, and the parts of values whose
     * tiles hold all of it. */
    STAGED = BLOCK_HEADS <= 32 ? 2 : 1,
    HELD_PARTS = ((VALUE_TILES + STAGED - 1) / STAGED + PART_TILES - 1) / PART_TILES
};

/* The staging address of 64 columns of an item's output, heads by columns, in the value tiles of its
 * last block. */
DEVICE u32 staging_tile(int first, int tile) {
    return shared_address((u32)(KEYS_OFFSET +
                                ring_tile(first, LEADING_TILES + tile / STAGED) * KEY_TILE_BYTES +
                                tile % STAGED * QUERY_TILE_BYTES));
}

/* Stores the staged output to global memory, 16 bytes per thread. */
DEVICE void store_output(const struct few_params *params, const struct few_item *item, int first) {
    enum {
        WHOLE = WARPGROUP % OUTPUT_CHUNKS == 0
    }; /* a thread has one chunk of each of its heads */
    //@if !united
    const struct output_rows rows = find_output(params, item);
    //@end
    const int thread = (int)(threadIdx.x % WARPGROUP);
#pragma unroll
    for (int i = 0; i < ITEM_HEADS * OUTPUT_CHUNKS; i += WARPGROUP) {
        const int chunk = (WHOLE ? thread : i + thread) % OUTPUT_CHUNKS;
        const int head =
            WHOLE ? i / OUTPUT_CHUNKS + thread / OUTPUT_CHUNKS : (i + thread) / OUTPUT_CHUNKS;
        if (ITEM_HEADS * OUTPUT_CHUNKS % WARPGROUP == 0 || head < ITEM_HEADS) {
            u32 words[4];
            load_shared_16(words, staging_tile(first, chunk / 8) +
                                      (u32)(head * TILE_PITCH + ((chunk ^ head) & 7) * 16));
            //@if united
            char *const row = output_row(params, item, head);
            if (row) {
                store_streaming_16(row + chunk * 16, words);
            }
            //@else
            store_streaming_16(rows.first + head * rows.head_bytes + chunk * 16, words);
            //@end
        }
    }
}
