//@use common/base.cuh
//@use common/ring.cuh
//@use common/softmax.cuh
//@use common/warp_arrival.cuh
//@use ptx/mbarrier.cuh
//@use ptx/shared.cuh
//@use ptx/tensor.cuh
//@use dense_scores_fwd.items.cuh
//@use dense_scores_fwd.params.h
//@use dense_scores_fwd.sm90_shared.cuh
/* The producer's warp of dense_scores_fwd.sm90.cu. */

DEVICE void await_stage(const struct ring_place *stage) {
    mbarrier_wait(barrier_at(EMPTY + stage->index), stage->parity ^ 1);
}

DEVICE void pass_stage(struct ring_place *stage) {
    arrive_warp(barrier_at(FULL + stage->index), 1);
    ring_advance(stage, STAGES);
}

/* Copies an item's keys, a part a stage. */
DEVICE void load_keys(const struct dense_scores_fwd_params *params, const struct item *item,
                      struct ring_place *stage) {
    for (int part = 0; part < PARTS; ++part) {
        await_stage(stage);
        if (threadIdx.x % 32 == 0) {
            const u32 full = barrier_at(FULL + stage->index);
            step_at(stage->index)->flags = 0;
            mbarrier_expect(full, KEYS_BYTES);
            tensor_load_4d(shared_address(stage_at(stage->index)), &params->k_map, full,
                           part * TILE_COLUMNS, 0, item->key_head, item->first_key);
        }
        pass_stage(stage);
    }
}

/* Describes a round of a tile in its last part's stage. What is subtracted from scores is a power of
 * two, infinite for columns without a head. */
DEVICE void write_step(const struct dense_scores_fwd_params *params, const struct item *item,
                       int tile, int round, int flags, int stage) {
#pragma unroll 1
    for (int i = (int)threadIdx.x % 32; i < COLUMNS; i += 32) {
        const int query = tile * TILE_QUERIES + i / QUERY_ROWS;
        const int head = round * QUERY_ROWS + i % QUERY_ROWS;
        offsets_at(stage)[i] =
            query < item->queries && head < GROUP_HEADS
                ? LOG2_E *
                      params->lse[(item->first_query + query) * params->lse_token_stride +
                                  (item->key_head * GROUP_HEADS + head) * params->lse_head_stride]
                : -MINUS_INFINITY;
    }
    if (threadIdx.x % 32 == 0) {
        const struct step step = {flags,
                                  item->first_query + tile * TILE_QUERIES,
                                  item->queries - tile * TILE_QUERIES,
                                  item->first_key,
                                  item->keys,
                                  {0, 0, 0}};
        *step_at(stage) = step;
    }
}

/* Copies a round of a tile's queries, a part a stage. */
DEVICE void load_tile(const struct dense_scores_fwd_params *params, const struct item *item,
                      int tile, int round, int flags, struct ring_place *stage) {
    for (int part = 0; part < PARTS; ++part) {
        await_stage(stage);
        if (part == PARTS - 1) {
            write_step(params, item, tile, round, flags, stage->index);
        }
        if (threadIdx.x % 32 == 0) {
            const u32 full = barrier_at(FULL + stage->index);
            mbarrier_expect(full, QUERIES_BYTES);
            tensor_load_4d(shared_address(stage_at(stage->index)), &params->q_map, full,
                           part * TILE_COLUMNS, round * QUERY_ROWS, item->key_head,
                           item->first_query + tile * TILE_QUERIES);
        }
        pass_stage(stage);
    }
}

/* Copies an item's keys and `tiles` of one key head. */
DEVICE void load_item(const struct dense_scores_fwd_params *params, const struct item *item,
                      u32 tiles, struct ring_place *stage) {
    load_keys(params, item, stage);
    while (tiles) {
        const int tile = __ffs((int)tiles) - 1;
        tiles &= tiles - 1;
        for (int round = 0; round < ROUNDS; ++round) {
            load_tile(params, item, tile, round,
                      (adds_to(item->key_head, round) ? ADDS : 0) |
                          (tiles == 0 && round == ROUNDS - 1 ? LAST_TILE : 0),
                      stage);
        }
    }
}

DEVICE void run_producer(const struct dense_scores_fwd_params *params) {
    struct ring_place stage = {0, 0};
    const i64 items = count_items(params);
    for (i64 number = blockIdx.x; number < items; number += gridDim.x) {
        struct item item = find_item(params, number);
        const u32 tiles = tiles_with_keys(params, &item);
        for (; tiles && item.key_head < KV_HEADS; ++item.key_head) {
            load_item(params, &item, tiles, &stage);
        }
    }
    await_stage(&stage);
    if (threadIdx.x % 32 == 0) {
        step_at(stage.index)->flags = NO_MORE;
    }
    pass_stage(&stage);
}
