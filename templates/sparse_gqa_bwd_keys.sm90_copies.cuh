//@use common/base.cuh
//@use common/gqa_items.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use ptx/mbarrier.cuh
//@use ptx/shared.cuh
//@use sparse_gqa_bwd_keys.block.params.h
//@use sparse_gqa_bwd_keys.sm90_shared.cuh
/* The producer's warp of sparse_gqa_bwd_keys.sm90.cu. */

#define PLUS_INFINITY __int_as_float(0x7f800000)

/* Copies an item's K and V once the buffer is free. */
DEVICE void load_keys(const struct sparse_gqa_bwd_block_params *params, const struct item *item,
                      int parity) {
    const u32 keys = shared_address(KEYS_OFFSET), values = shared_address(VALUES_OFFSET);
    const u32 full = barrier_at(KV_FULL);
    int reach;
    const bool whole = reads_whole_block(&params->items, item, &reach);
    mbarrier_wait(barrier_at(KV_EMPTY), parity ^ 1);
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

/* What is loaded ahead of a tile: its pairs, and the statistics of two rows of each lane. */
struct ahead {
    int2 pair;
    int entry;
    float2 rows[2];
};

/* Loads the pairs of a tile and their entries. */
DEVICE void load_entries(const struct sparse_gqa_bwd_block_params *params, const struct item *item,
                         int tile, struct ahead *ahead) {
    const int pair = (tile * TILE_UNITS + (int)threadIdx.x % 32) / UNITS;
    ahead->pair = load_pair(&params->items, item, tile);
    ahead->entry = ahead->pair.x >= 0 ? params->queries[item->first + pair] : -1;
}

/* Loads the statistics of rows lane and lane + 32 of a tile. Rows of no query or head have the base of
 * an empty sum, so that their probabilities are 0. */
DEVICE void load_statistics(const struct sparse_gqa_bwd_block_params *params,
                            const struct item *item, int tile, struct ahead *ahead) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float2 none = {PLUS_INFINITY, 0.0f};
        const int unit = lane / 8 + 4 * i, entry = __shfl_sync((u32)ALL_LANES, ahead->entry, unit);
        const int head = (tile * TILE_UNITS + unit) % UNITS * UNIT_ROWS + lane % 8;
        const i64 row = (i64)entry * HEADS + item->kv_head * GROUP_HEADS + head;
        ahead->rows[i] =
            entry >= 0 && head < GROUP_HEADS ? ((const float2 *)params->statistics)[row] : none;
    }
}

/* Copies a tile's Q and dO into a stage once it is free, and writes what was loaded ahead. */
DEVICE void load_tile(const struct sparse_gqa_bwd_block_params *params, const struct item *item,
                      int tile, const struct ahead *ahead, int flags,
                      const struct ring_place *stage) {
    const int lane = (int)threadIdx.x % 32;
    struct tile *const description = tile_at(stage->index);
    const u32 full = barrier_at(FULL + stage->index);
    const int masked = __any_sync((u32)ALL_LANES, ahead->pair.y < BLOCK_KEYS);
    mbarrier_wait(barrier_at(EMPTY + stage->index), stage->parity ^ 1);
    if (lane < TILE_UNITS) {
        description->unit[lane] = unit_number(item, tile, ahead->pair);
        description->keys[lane] = ahead->pair.y;
    }
    rows_at(stage->index)[lane] = ahead->rows[0];
    rows_at(stage->index)[lane + 32] = ahead->rows[1];
    if (lane == 0) {
        description->flags = flags;
        description->item = item->number;
        description->masked = masked;
        mbarrier_expect(full, QUERY_BYTES + GRAD_BYTES);
    }
    __syncwarp((u32)ALL_LANES);
    load_rows(&params->items, &params->q_map, item, tile, ahead->pair,
              shared_address(query_at(stage->index)), KEY_TILES, full);
    load_rows(&params->items, &params->grad_out_map, item, tile, ahead->pair,
              shared_address(grad_at(stage->index)), VALUE_TILES, full);
    arrive_warp(full, 1);
}

/* A stage without rows. */
DEVICE void pass_stage(int flags, int item, struct ring_place *stage) {
    mbarrier_wait(barrier_at(EMPTY + stage->index), stage->parity ^ 1);
    if (threadIdx.x % 32 == 0) {
        tile_at(stage->index)->flags = flags;
        tile_at(stage->index)->item = item;
    }
    arrive_warp(barrier_at(FULL + stage->index), 1);
    ring_advance(stage, STAGES);
}

/* Copies an item's tiles; a tile's pairs are loaded two tiles ahead, its statistics one. */
DEVICE void load_tiles(const struct sparse_gqa_bwd_block_params *params, const struct item *item,
                       struct ring_place *stage) {
    const int tiles = (item->pairs * UNITS + TILE_UNITS - 1) / TILE_UNITS;
    const int padded = (tiles + TEAMS - 1) / TEAMS * TEAMS;
    struct ahead now, next;
    load_entries(params, item, 0, &now);
    load_entries(params, item, 1, &next);
    load_statistics(params, item, 0, &now);
    for (int tile = 0; tile < padded; ++tile) {
        const int flags =
            (tile < TEAMS ? FIRST_TILE : 0) | (tile >= padded - TEAMS ? LAST_TILE : 0);
        if (tile < tiles) {
            struct ahead after;
            load_entries(params, item, tile + 2, &after);
            load_statistics(params, item, tile + 1, &next);
            load_tile(params, item, tile, &now, flags, stage);
            ring_advance(stage, STAGES);
            now = next;
            next.pair = after.pair;
            next.entry = after.entry;
        } else {
            pass_stage(flags | NO_ROWS, item->number, stage);
        }
    }
}

DEVICE void run_producer(const struct sparse_gqa_bwd_block_params *params) {
    struct ring_place stage = {0, 0};
    const int items = count_items(&params->items);
    int number = (int)blockIdx.x, parity = 0;
    struct item item = find_item(&params->items, number, items);
    while (item.pairs > 0) {
        number += (int)gridDim.x;
        const struct item next = find_item(&params->items, number, items);
        load_keys(params, &item, parity);
        load_tiles(params, &item, &stage);
        parity ^= 1;
        item = next;
    }
    for (int i = 0; i < TEAMS; ++i) {
        pass_stage(NO_MORE_TILES, 0, &stage);
    }
}
