//@use common/base.cuh
//@use common/ring.cuh
//@use common/softmax.cuh
//@use common/streamed_wgmma.cuh
//@use dense_scores_fwd.items.cuh
//@use dense_scores_fwd.params.h
//@use dense_scores_fwd.sm90_shared.cuh
/* The producer's warp of dense_scores_fwd.sm90.cu. */

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
        copy_part(&params->q_map, part, COLUMN_BYTES, round * QUERY_ROWS, item->key_head,
                  item->first_query + tile * TILE_QUERIES, stage);
    }
}

/* Copies an item's keys and `tiles` of one key head. */
DEVICE void load_item(const struct dense_scores_fwd_params *params, const struct item *item,
                      u32 tiles, struct ring_place *stage) {
    await_stage(stage);
    if (threadIdx.x % 32 == 0) {
        step_at(stage->index)->flags = 0; /* keys follow */
    }
    copy_parts(&params->k_map, RESIDENT_BYTES, 0, item->key_head, item->first_key, stage);
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
