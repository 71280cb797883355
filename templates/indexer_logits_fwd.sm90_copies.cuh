//@use common/base.cuh
//@use common/head_weight.cuh
//@use common/logit.cuh
//@use common/ring.cuh
//@use common/stored_logit.cuh
//@use common/warp_arrival.cuh
//@use ptx/bulk.cuh
//@use ptx/mbarrier.cuh
//@use ptx/policy.cuh
//@use ptx/redux.cuh
//@use ptx/shared.cuh
//@use ptx/tensor.cuh
//@use ptx/thread.cuh
//@use indexer_logits_fwd.params.h
//@use indexer_logits_fwd.sm90_runs.cuh
/*
 * The producer warps of indexer_logits_fwd.sm90.cu and .sm90_heads.cu: one for queries and one for
 * keys, and one that fills the logits outside the tiles.
 */

/* ---- queries and keys ------------------------------------------------------------------------ */

/* Starts the copy of a block's queries; by one thread. The copy engine is slow for boxes of few
 * rows, but an odd number of heads allows no larger ones: past the last head would be another
 * query. */
DEVICE void load_queries(const struct indexer_logits_fwd_params *params, int query, int buffer,
                         u32 full) {
    const u64 policy = policy_evict_first(); /* read by one CTA, or by a few in a row */
    u32 to = shared_address(queries_at(buffer));
    if (MAP_QUERIES == BLOCK_QUERIES && MAP_HEADS == HEADS) { /* a box is a half of all rows */
        for (int half = 0; half < HALVES; ++half) {
            tensor_load_3d_hint(to + (u32)(half * QUERY_HALF_BYTES), &params->q_map, full,
                                half * SWIZZLE / ELEMENT_BYTES, 0, query, policy);
        }
        return;
    }
#pragma unroll 1
    for (int i = 0; i < HALVES * SETS; ++i) {
        const int column = i / SETS * SWIZZLE / ELEMENT_BYTES,
                  first = query + i % SETS * SET_QUERIES;
        if (MAP_PAIRS > 0) {
            tensor_load_4d_hint(to, &params->q_map, full, column, 0, first, 0, policy);
        } else {
            for (int eight = 0; eight < SET_EIGHTS; ++eight) {
                tensor_load_3d_hint(to + (u32)(eight * ATOM_ROWS * SWIZZLE), &params->q_map, full,
                                    column, eight * 2, first, policy);
            }
        }
        to += SET_EIGHTS * ATOM_ROWS * SWIZZLE;
    }
}

/* Writes a run's data for the math and starts the copy of its queries. `window`: of this lane's
 * query; `leader`: the block's first lane. */
DEVICE void begin_run(const struct indexer_logits_fwd_params *params, const struct run *run,
                      const struct key_range *window, int leader, int buffer) {
    const int lane = (int)thread_number() % 32; /* read again, see ptx/thread.cuh */
    const u32 full = barrier_at(QUERY_FULL + buffer);
    if (lane == 0) {
        *run_at(buffer) = *run;
        mbarrier_expect(full, QUERY_BYTES);
        load_queries(params, run->query, buffer, full);
    }
#pragma unroll 8
    for (int i = lane; i < BLOCK_QUERIES * PADDED_HEADS; i += 32) {
        const int query = run->query + i / PADDED_HEADS, head = i % PADDED_HEADS;
        const bool exists = head < HEADS && query < params->tokens;
        if (WEIGHTS) {
            weights_at(buffer)[i] =
                exists ? head_weight(params->weights, query * params->weights_token_stride + head,
                                     params->weights_bf16)
                       : 0.0f;
        } else {
            weights_at(buffer)[i] = exists ? params->scale : 0.0f;
        }
    }
    if (LANE_QUERIES > 1) {
        for (int i = lane; i < BLOCK_QUERIES; i += 32) {
            windows_at(buffer)[i] = query_window(params, run->query + i);
        }
    } else if (lane >= leader && lane < leader + BLOCK_QUERIES) {
        windows_at(buffer)[lane - leader] = *window;
    }
    arrive_warp(full, 1);
}

/* Copies the KV tiles of a run, each once its stage is free. By one thread. */
DEVICE void load_tiles(const struct indexer_logits_fwd_params *params, const struct run *run,
                       struct ring_place *stage) {
#pragma unroll 1
    for (int tile = 0; tile < run->tiles; ++tile) {
        const u32 full = barrier_at(FULL + stage->index);
        mbarrier_wait(barrier_at(EMPTY + stage->index), stage->parity ^ 1);
        mbarrier_arrive_expect(full, KEY_BYTES);
        for (int half = 0; half < HALVES; ++half) {
            tensor_load_2d(shared_address(keys_at(stage->index) + (u32)(half * KEY_HALF_BYTES)),
                           &params->k_map, full, half * SWIZZLE / ELEMENT_BYTES,
                           run->key + tile * TILE_KEYS);
        }
        ring_advance(stage, STAGES);
    }
}

/* One of the two producer warps: blocks' queries with weights and windows, or KV tiles. Each finds
 * the runs by itself and runs ahead as far as its buffers allow, so that a block's start does not
 * delay keys. */
DEVICE void run_producer(const struct indexer_logits_fwd_params *params, bool queries) {
    struct ring_place stage = {0, 0}, buffer = {0, 0}; /* `stage` is used by lane 0 only */
    struct span span = find_span(params, queries ? QUERY_FOUND : KEY_FOUND);
    while (span.end > 0 && span.batch < batch_count(params)) {
        struct lane_block block;
        schedule_batch(&block, params, &span);
        u32 blocks = __ballot_sync((u32)ALL_LANES, block.run.tiles > 0);
        for (; blocks; blocks &= blocks - 1) {
            const int leader = __ffs((int)blocks) - 1;
            const struct run run = {__shfl_sync((u32)ALL_LANES, block.run.query, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.key, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.tiles, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.inner, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.outer, leader),
                                    0};
            if (queries) {
                mbarrier_wait(barrier_at(QUERY_EMPTY + buffer.index), buffer.parity ^ 1);
                begin_run(params, &run, &block.window, leader, buffer.index);
                ring_advance(&buffer, QUERY_BUFFERS);
            } else if (threadIdx.x % 32 == 0) {
                load_tiles(params, &run, &stage);
            }
            __syncwarp((u32)ALL_LANES);
        }
    }
    if (queries) {
        mbarrier_wait(barrier_at(QUERY_EMPTY + buffer.index), buffer.parity ^ 1);
        if (threadIdx.x % 32 == 0) {
            const struct run nothing = {0, 0, 0, 0, 0, 0};
            *run_at(buffer.index) = nothing;
        }
        arrive_warp(barrier_at(QUERY_FULL + buffer.index), 1);
    }
}

/* ---- filler ---------------------------------------------------------------------------------- */

/* Whether the filler waits for each store before the next one: if the products take longer than the
 * fill, a tile of FULL_COLUMNS columns counting as much as one store (measured). A faster fill
 * would then delay the math's loads and stores without ending the kernel sooner. By a whole warp.
 */
DEVICE bool fills_slowly(const struct indexer_logits_fwd_params *params) {
    enum { EACH = COARSE / 32, FULL_COLUMNS = 256, SIXTEENTH = 4 /* log2: for a u32 sum */ };
    const int lane = (int)threadIdx.x % 32;
    i64 mine = 0;
    for (int i = 0; i < EACH; ++i) {
        mine += costs()[lane * EACH + i];
    }
    const i64 tiles = (i64)warp_reduce_add((u32)(mine >> SIXTEENTH)) << SIXTEENTH;
    const i64 others = (i64)params->tokens * params->rows - tiles * (TILE_KEYS * BLOCK_QUERIES);
    return others * HEAD_GROUPS / BLOCK_MAX / (FILL_BYTES / 4) * FULL_COLUMNS <= tiles * COLUMNS;
}

/* Fills a range of logits with -inf; by one thread. */
DEVICE void fill(stored_logit *from, stored_logit *to, bool slowly) {
    enum { MOST = FILL_BYTES / sizeof(stored_logit) };
    for (; from < to && (u64)from % 16 != 0; ++from) {
        store_logit(from, LOWEST_LOGIT);
    }
    for (; from < to && (u64)to % 16 != 0; --to) {
        store_logit(to - 1, LOWEST_LOGIT);
    }
    while (from < to) {
        const i64 left = to - from;
        const u32 bytes = (left < MOST ? (u32)left : MOST) * (u32)sizeof(stored_logit);
        bulk_store(from, shared_address(LOWEST_OFFSET), bytes);
        bulk_commit();
        if (slowly) {
            bulk_wait(0);
        } else {
            bulk_wait_read(2);
        }
        from += bytes / sizeof(stored_logit);
    }
}

/* Fills the logits outside the tiles, row by row, one batch of every gridDim.x in serpentine order,
 * so that windows that grow with the queries load all fillers evenly. */
DEVICE void run_filler(const struct indexer_logits_fwd_params *params) {
    const bool slowly = fills_slowly(params);
    int step = 2 * (int)(gridDim.x - blockIdx.x) - 1; /* the next one: 2 * gridDim.x - step */
    for (int batch = (int)blockIdx.x; batch < batch_count(params);) {
        const int query = lane_query(batch);
        const struct key_range window = lane_window(params, query);
        const struct key_range tiles = block_tiles(&window);
        const i64 logits = ((i64)params->rows + BLOCK_MAX - 1) / BLOCK_MAX; /* of a row */
        stored_logit *const row =
            (stored_logit *)params->logits + query * params->logits_token_stride;
        for (int i = 0; i < BATCH_QUERIES; ++i) {
            const int own = i % LANE_QUERIES;
            if ((int)threadIdx.x % 32 == i / LANE_QUERIES && query >= 0 &&
                query + own < params->tokens) {
#pragma unroll 1
                for (int group = 0; group < HEAD_GROUPS; ++group) {
                    stored_logit *const to = row + own * params->logits_token_stride +
                                             group * params->logits_group_stride;
                    fill(to, to + (i64)tiles.begin * (TILE_KEYS / BLOCK_MAX), slowly);
                    fill(to + (i64)tiles.end * (TILE_KEYS / BLOCK_MAX), to + logits, slowly);
                }
            }
            __syncwarp((u32)ALL_LANES);
        }
        batch += step;
        step = 2 * (int)gridDim.x - step;
    }
    bulk_wait_read(0);
}
