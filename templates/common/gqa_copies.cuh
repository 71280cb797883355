//@use common/base.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/proxy.cuh
//@use ptx/tensor.cuh
//@use sparse_gqa_items.params.h
/*
 * Copies of sparse_gqa's kernels that take whole blocks of BLOCK_KEYS keys, by their producer's warp:
 * into column tiles of 64 columns, 128-byte swizzled: BLOCK_TILE_BYTES each.
 */

/* What is copied: a block of keys, and up to SEGMENT pairs of its list or rows of a tile of queries. */
struct item {
    int first, pairs;
    int batch, block;
    int kv_head, list_head; /* the latter among those that share the list */
    int number;             /* list after list, of the KV heads that share it in turn */
};

/* Starts the copies of a whole block; rows past the last one become zeros. By one lane. */
DEVICE void load_block(const struct gqa_block_source *source, const struct item *item, u32 to,
                       int tiles, u32 full) {
    for (int i = 0; i < tiles; ++i) {
        tensor_load_4d(to + (u32)(i * BLOCK_TILE_BYTES), &source->map, full, i * 64, item->kv_head,
                       item->block * BLOCK_KEYS, item->batch);
    }
}

/* Copies the rows of a block up to `reach`. The rows from there on are not read, since they may hold
 * NaN, which P = 0 times V would pass on; they become zeros, like columns from `chunks` times 16 bytes
 * on. By a warp, which waits for the copies: such blocks are few, at most those that end at the
 * queries themselves. */
DEVICE void copy_block(const struct gqa_block_source *source, const struct item *item, u32 to,
                       int tiles, int chunks, int reach) {
    const char *const from =
        (const char *)source->data + 2 * (item->batch * source->batch_stride +
                                          (i64)item->block * BLOCK_KEYS * source->row_stride +
                                          item->kv_head * source->head_stride);
#pragma unroll 2
    for (int i = (int)threadIdx.x % 32; i < BLOCK_KEYS * tiles * 8; i += 32) {
        const int row = i / (tiles * 8), chunk = i % (tiles * 8);
        const bool present = row < reach && chunk < chunks;
        cp_async_16(
            to + (u32)(chunk / 8 * BLOCK_TILE_BYTES + row * 128 + ((chunk % 8) ^ (row % 8)) * 16),
            present ? from + 2 * row * source->row_stride + chunk * 16 : from, present ? 16 : 0);
    }
    cp_async_wait_all();
    fence_proxy_async();
}

/* Starts the copies of a tile's 64 rows, of `tiles` times 64 columns: lane i copies box i, of BOX_UNITS
 * units and 64 columns. Rows without a query become zeros. */
DEVICE void load_rows(const struct gqa_items_params *params, const struct tensor_map *map,
                      const struct item *item, int tile, int2 pair, u32 to, int tiles, u32 full) {
    const int lane = (int)threadIdx.x % 32, boxes = 8 / BOX_UNITS * tiles;
    const int unit = lane % boxes / tiles * BOX_UNITS, column = lane % tiles;
    const int query = __shfl_sync((u32)ALL_LANES, pair.x, unit);
    const int token = query < 0 ? params->tokens : query - item->batch * params->tokens;
    const int head = item->kv_head * GROUP_HEADS + (tile * 8 + unit) % UNITS * 8;
    if (lane < boxes) {
        tensor_load_4d(to + (u32)(column * TILE_BYTES + unit * 8 * 128), map, full, column * 64,
                       head, token, item->batch);
    }
}
