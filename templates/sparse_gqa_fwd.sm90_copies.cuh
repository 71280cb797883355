//@use common/base.cuh
//@use common/gqa_items.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use ptx/mbarrier.cuh
//@use ptx/shared.cuh
//@use sparse_gqa_fwd.block.params.h
//@use sparse_gqa_fwd.sm90_shared.cuh
/* The producer's warp of sparse_gqa_fwd.sm90.cu. */

/* Copies an item's K and V into a buffer once it is free. */
DEVICE void load_keys(const struct sparse_gqa_block_params *params, const struct item *item,
                      const struct ring_place *buffer) {
    const u32 keys = shared_address(keys_at(buffer->index));
    const u32 values = shared_address(values_at(buffer->index));
    const u32 full = barrier_at(KV_FULL + buffer->index);
    int reach;
    const bool whole = reads_whole_block(&params->items, item, &reach);
    mbarrier_wait(barrier_at(KV_EMPTY + buffer->index), buffer->parity ^ 1);
    if (!whole) {
        copy_block(&params->k, item, keys, KEY_TILES, DQK / 8, reach);
        copy_block(&params->v, item, values, VALUE_TILES, DV / 8, reach);
    } else if (threadIdx.x % 32 == 0) {
        mbarrier_expect(full, KEY_BYTES + VALUE_BYTES);
        load_block(&params->k, item, keys, KEY_TILES, full);
        load_block(&params->v, item, values, VALUE_TILES, full);
    }
    arrive_warp(full, 1);
}

/* Copies a tile's Q into a stage once it is free, and writes the tile's description. `pair`: what
 * load_pair returned. */
DEVICE void load_tile(const struct sparse_gqa_block_params *params, const struct item *item,
                      int tile, int2 pair, int flags, const struct ring_place *stage) {
    const int lane = (int)threadIdx.x % 32;
    struct tile *const description = tile_at(stage->index);
    const u32 full = barrier_at(FULL + stage->index);
    mbarrier_wait(barrier_at(EMPTY + stage->index), stage->parity ^ 1);
    if (lane < TILE_UNITS) {
        description->unit[lane] = unit_number(item, tile, pair);
        description->keys[lane] = pair.y;
    }
    if (lane == 0) {
        description->flags = flags;
        mbarrier_expect(full, QUERY_BYTES);
    }
    __syncwarp((u32)ALL_LANES);
    load_rows(&params->items, &params->q_map, item, tile, pair,
              shared_address(query_at(stage->index)), KEY_TILES, full);
    arrive_warp(full, 1);
}

/* A stage without rows. */
DEVICE void pass_stage(int flags, struct ring_place *stage) {
    mbarrier_wait(barrier_at(EMPTY + stage->index), stage->parity ^ 1);
    if (threadIdx.x % 32 == 0) {
        tile_at(stage->index)->flags = flags;
    }
    arrive_warp(barrier_at(FULL + stage->index), 1);
    ring_advance(stage, STAGES);
}

/* Copies an item's tiles; each tile's pairs are loaded one tile ahead. */
DEVICE void load_tiles(const struct sparse_gqa_block_params *params, const struct item *item,
                       struct ring_place *stage) {
    const int tiles = (item->pairs * UNITS + TILE_UNITS - 1) / TILE_UNITS;
    const int padded = (tiles + CONSUMERS - 1) / CONSUMERS * CONSUMERS;
    int2 pair = load_pair(&params->items, item, 0);
    for (int tile = 0; tile < padded; ++tile) {
        const int flags =
            (tile < CONSUMERS ? FIRST_TILE : 0) | (tile >= padded - CONSUMERS ? LAST_TILE : 0);
        if (tile < tiles) {
            const int2 next = load_pair(&params->items, item, tile + 1);
            load_tile(params, item, tile, pair, flags, stage);
            ring_advance(stage, STAGES);
            pair = next;
        } else {
            pass_stage(flags | NO_ROWS, stage);
        }
    }
}

DEVICE void run_producer(const struct sparse_gqa_block_params *params) {
    struct ring_place stage = {0, 0}, buffer = {0, 0};
    const int items = count_items(&params->items);
    int number = (int)blockIdx.x;
    struct item item = find_item(&params->items, number, items);
    while (item.pairs > 0) {
        number += (int)gridDim.x;
        const struct item next = find_item(&params->items, number, items);
        load_keys(params, &item, &buffer);
        load_tiles(params, &item, &stage);
        ring_advance(&buffer, KV_BUFFERS);
        item = next;
    }
    for (int i = 0; i < CONSUMERS; ++i) {
        pass_stage(NO_MORE_TILES, &stage);
    }
}
