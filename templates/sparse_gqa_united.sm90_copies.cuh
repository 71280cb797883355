//@use common/base.cuh
//@use common/gqa_copies.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use ptx/mbarrier.cuh
//@use ptx/redux.cuh
//@use ptx/shared.cuh
//@use sparse_gqa_united.items.cuh
//@use sparse_gqa_united.params.h
//@use sparse_gqa_united.sm90_shared.cuh
/* The producer's warps of sparse_gqa_united.sm90.cu: one copies Q and K, the other V, so that neither
 * waits for a buffer of the other's. */

/* Copies each consumer's part of the tile's Q once its buffer is free, and posts its item. Lane i has the
 * query of unit i % 8 of consumer i / 8. */
DEVICE void load_queries(const struct sparse_gqa_united_params *params,
                         const struct tile_item *item, const struct item *place, int query,
                         const struct ring_place *buffer) {
    const int lane = (int)threadIdx.x % 32, limit = find_limit(params, query);
    for (int consumer = 0; consumer < CONSUMERS; ++consumer) {
        const u32 full = query_barrier(Q_FULL, buffer->index, consumer);
        struct posted_item *const posted = item_at(buffer->index, consumer);
        const int2 pair = {__shfl_sync((u32)ALL_LANES, query, consumer * 8 + lane % 8), 0};
        mbarrier_wait(query_barrier(Q_EMPTY, buffer->index, consumer), buffer->parity ^ 1);
        if (lane == 0) {
            posted->blocks = item->blocks;
            posted->kv_head = item->kv_head;
            mbarrier_expect(full, QUERY_BYTES);
        }
        if (lane / 8 == consumer && lane % UNITS == 0) {
            posted->query[lane % 8 / UNITS] = query;
            posted->limit[lane % 8 / UNITS] = limit;
        }
        __syncwarp((u32)ALL_LANES);
        load_rows(&params->items, &params->q_map, place, 0, pair,
                  shared_address(query_at(buffer->index, consumer)), KEY_TILES, full);
        arrive_warp(full, 1);
    }
}

/* Copies a part of a block, K or V, once its buffer is free. `chunks`: of 16 bytes of a row. */
DEVICE void load_half(const struct gqa_block_source *source, const struct item *place, u32 to,
                      int tiles, int chunks, bool whole, int reach, u32 full, u32 empty,
                      const struct ring_place *buffer) {
    mbarrier_wait(barrier_at(empty + (u32)buffer->index), buffer->parity ^ 1);
    const u32 barrier = barrier_at(full + (u32)buffer->index);
    if (!whole) {
        copy_block(source, place, to, tiles, chunks, reach);
    } else if (threadIdx.x % 32 == 0) {
        mbarrier_expect(barrier, (u32)(tiles * BLOCK_TILE_BYTES));
        load_block(source, place, to, tiles, barrier);
    }
    if (full == K_FULL && threadIdx.x % 32 == 0) {
        const struct step step = {(u32)place->pairs, place->block * BLOCK_KEYS};
        *step_at(buffer->index) = step;
    }
    arrive_warp(barrier, 1);
}

/* Copies K (with `keys`) or V of blocks [from, to) of the united list. */
DEVICE void load_blocks(const struct sparse_gqa_united_params *params, const struct tile_item *item,
                        struct item *place, int from, int to, bool keys,
                        struct ring_place *buffer) {
    int4 block = item->united[from];
    for (int i = from; i < to; ++i) {
        const int4 next = item->united[minimum(i + 1, to - 1)];
        place->block = block.x;
        place->pairs = block.y;
        const bool whole =
            block.z >= minimum(params->items.rows - block.x * BLOCK_KEYS, BLOCK_KEYS);
        if (keys) {
            load_half(&params->k, place, shared_address(keys_at(buffer->index)), KEY_TILES, DQK / 8,
                      whole, block.z, K_FULL, K_EMPTY, buffer);
        } else {
            load_half(&params->v, place, shared_address(values_at(buffer->index)), VALUE_TILES,
                      DV / 8, whole, block.z, V_FULL, V_EMPTY, buffer);
        }
        ring_advance(buffer, STAGES);
        block = next;
    }
}

/* Posts to each consumer that there is no further item. */
DEVICE void post_end(const struct ring_place *buffer) {
    for (int consumer = 0; consumer < CONSUMERS; ++consumer) {
        mbarrier_wait(query_barrier(Q_EMPTY, buffer->index, consumer), buffer->parity ^ 1);
        if (threadIdx.x % 32 == 0) {
            item_at(buffer->index, consumer)->blocks = 0;
        }
        arrive_warp(query_barrier(Q_FULL, buffer->index, consumer), 1);
    }
}

DEVICE void run_producer(const struct sparse_gqa_united_params *params, bool keys) {
    struct ring_place queries = {0, 0}, buffer = {0, 0};
    const int lane = (int)threadIdx.x % 32;
    int number = (int)blockIdx.x;
    for (;;) {
        const struct tile_item item = next_item(params, &number);
        if (item.blocks == 0) {
            if (keys) {
                post_end(&queries);
            }
            return;
        }
        const int query = lane < CONSUMERS * 8 ? find_query(params, &item, lane / UNITS) : -1;
        const int any = (int)warp_reduce_max((u32)(query + 1)) - 1;
        /* The first K come before Q, whose buffer is free only after an earlier item's last block. */
        const int ahead = keys ? minimum(STAGES - 1, item.blocks) : 0;
        struct item place = {0, 0, 0, 0, 0, 0, 0};
        place.batch = query_batch(&params->work, maximum(any, 0));
        place.kv_head = item.kv_head;
        if (keys) {
            load_blocks(params, &item, &place, 0, ahead, keys, &buffer);
            load_queries(params, &item, &place, query, &queries);
            ring_advance(&queries, Q_BUFFERS);
        }
        load_blocks(params, &item, &place, ahead, item.blocks, keys, &buffer);
    }
}
