//@use common/base.cuh
//@use common/gqa_copies.cuh
//@use sparse_gqa_items.params.h
/*
 * Items of the block-stationary kernels of sparse_gqa, by their producer's warp: a KV head, a block of
 * BLOCK_KEYS keys, and up to SEGMENT pairs of its list.
 */

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
