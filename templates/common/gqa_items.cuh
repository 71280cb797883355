//@use common/base.cuh
//@use common/warp_arrival.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/tensor.cuh
//@use sparse_gqa_items.params.h
/*
 * Items of the block-stationary kernels of sparse_gqa, by their producer's warp: a KV head, a block of
 * BLOCK_KEYS keys, and up to SEGMENT pairs of its list. Blocks are copied into column tiles of 64
 * columns, 128-byte swizzled: BLOCK_TILE_BYTES each.
 */

struct item {
    int first, pairs;
    int batch, block;
    int kv_head, list_head; /* the latter among those that share the list */
    int number;             /* list after list, of the KV heads that share it in turn */
};

/* Item `number` of `items` in the order of processing, or no pairs if there is none. */
DEVICE struct item find_item(const struct gqa_items_params *params, int number, int items) {
    enum { GROUPS = KV_HEADS / LIST_HEADS };
    struct item item = {0, 0, 0, 0, 0, 0, 0};
    if (number < items) {
        const int2 segment = ((const int2 *)params->order)[number / LIST_HEADS];
        const int start = params->starts[segment.x], end = params->starts[segment.x + 1];
        const int row = segment.x / params->blocks; /* batch * GROUPS + group */
        item.first = start + segment.y * SEGMENT;
        item.pairs = minimum(end - item.first, SEGMENT);
        item.block = segment.x - row * params->blocks;
        item.batch = row / GROUPS;
        item.list_head = number % LIST_HEADS;
        item.kv_head = row % GROUPS * LIST_HEADS + item.list_head;
        item.number = (params->items[segment.x] + segment.y) * LIST_HEADS + item.list_head;
    }
    return item;
}

DEVICE int count_items(const struct gqa_items_params *params) {
    return params->items[params->lists] * LIST_HEADS;
}

/* Whether the item's queries together read its whole block, as far as there are rows; else *reach is
 * how many rows of it they read. */
DEVICE bool reads_whole_block(const struct gqa_items_params *params, const struct item *item,
                              int *reach) {
    int most = 0;
#pragma unroll 4
    for (int pair = (int)threadIdx.x % 32; pair < item->pairs; pair += 32) {
        most = maximum(most, params->pairs[2 * (item->first + pair) + 1]);
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        most = maximum(most, __shfl_xor_sync((u32)ALL_LANES, most, mask));
    }
    *reach = most;
    return most >= minimum(params->rows - item->block * BLOCK_KEYS, BLOCK_KEYS);
}

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

/* The pair of a lane's unit of a tile: query number and keys. Lanes 0 to 7 have one, up to the item's
 * last; the others have query number -1. */
DEVICE int2 load_pair(const struct gqa_items_params *params, const struct item *item, int tile) {
    const int lane = (int)threadIdx.x % 32, pair = (tile * 8 + lane) / UNITS;
    const int2 none = {-1, BLOCK_KEYS};
    return lane < 8 && pair < item->pairs ? ((const int2 *)params->pairs)[item->first + pair]
                                          : none;
}

/* The number of a lane's unit, or -1. */
DEVICE int unit_number(const struct item *item, int tile, int2 pair) {
    const int unit = tile * 8 + (int)threadIdx.x % 32;
    const int number = (item->first + unit / UNITS) * LIST_HEADS + item->list_head;
    return pair.x < 0 ? -1 : number * UNITS + unit % UNITS;
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
