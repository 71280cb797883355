//@use common/base.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use common/wgmma_tile.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/prefetch.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/warp.cuh
//@use sparse_scores_fwd.heads.cuh
//@use sparse_scores_fwd.params.h
/*
 * The gather's warps of sparse_scores_fwd's wgmma kernels, and their interface to the MATH_GROUPS
 * math warpgroups, which take a query's key blocks in slot. One warp scans the slots, sets the
 * target of blocks without valid slots to 0 and requests the other blocks; COPY_WARPS warps copy
 * the rows, as far ahead as the ring has room. Q is loaded in one of two ways. Either a warp of its
 * own loads it into QUERY, together with its heads' offsets; or (QUERY_IN_RING, for one math
 * warpgroup that keeps Q in registers) it goes through the ring ahead of the query's first block.
 * Then the scan prefetches it to L2 and stores the offsets, and the fourth kind of warp is a relay:
 * it waits for the copies, executes the proxy fence and signals the math warpgroup, which saves
 * that one the fence.
 *
 * A key block is BLOCK_KEYS consecutive slots: the row of a masked slot is zeros and its result is
 * discarded. Every query has at least MATH_GROUPS key blocks, so that each math warpgroup has one
 * of every query; blocks without a valid slot make up the number.
 *
 * The ring binds, except with many heads: gather bandwidth is the bytes in flight over the time
 * from a byte's load to its last use. So the ring takes all the shared memory that Q leaves, in
 * tiles of 64 columns with barriers of their own: a block's products begin with its first tile, and
 * each tile is released when its product is complete. Nothing is kept from one block to the next.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is rows of 64 columns, 128-byte
 * swizzled:
 *   KEYS     [RING_TILES] tiles of BLOCK_KEYS rows, a ring: a block's tiles follow each other
 *   QUERY    [QUERY_BUFFERS][TILES] tiles of BLOCK_HEADS rows; or none: with QUERY_IN_RING a tile
 *   of
 *            the ring holds TILE_QUERIES of them
 *   OFFSETS  [QUERY_BUFFERS][BLOCK_HEADS] fp32
 *   WORDS    [RING_BLOCKS]: struct block_word
 *   REQUESTS [REQUESTS]: struct request
 *   RANGE: common/work.cuh
 *
 * Barriers (parity counts uses; t: a tile of the ring; m: a math warpgroup, which waits only for
 * its own tiles' FULL barriers; b: a buffer of Q):
 *   barrier       count           arrives                                   waits
 *   READY[r]      1               gather: the scan, request r is posted     copies
 *   TAKEN[r]      COPY_WARPS      gather: copies, request r is read         scan
 *   FULL[t][m]    COPY_ARRIVALS   copies: every thread when its copies      math warpgroup m
 *                                 have landed, one for the word
 *   EMPTY[t]      4               math: warps, the tile's product is done,  copies
 *                                 or Q is in registers
 *   QUERY_FULL[b] 33              gather: the lanes that load Q when it     math
 *                                 has landed, the warp for the offsets
 *   QUERY_FREE[b] QUERY_ARRIVALS  math: 4 for each of the query's blocks,   gather: Q's warp; the
 *                                 its products are done; the scan: the      scan, before its own
 *                                 rest of the count, when it knows the
 *                                 number of blocks
 * With Q in the ring instead:
 *   LANDED[t]     COPY_ARRIVALS   copies, as FULL above                     relay
 *   FULL[t][0]    1               relay: has executed the proxy fence       math
 *   QUERY_FULL[b] 1               gather: the scan, for the offsets         math
 *   QUERY_FREE[b] 4               math: warps, they have the offsets        scan
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 */

enum {
    GATHER_WARPGROUP = MATH_GROUPS,
    COPY_ROWS = COPY_WARPS * 4,    /* of a tile, copied at once: eight threads per row */
    ROWS = BLOCK_KEYS / COPY_ROWS, /* per thread, in each tile */
    LANE_SLOTS = BLOCK_KEYS / 32,  /* per lane, in each step of the scan */
    MASKED = -1,
    RELAY = QUERY_IN_RING, /* the warp that loads Q otherwise is a relay */

    TILES = DQK / 64, /* of a key block, and of Q */
    KEY_TILE_BYTES = BLOCK_KEYS * TILE_PITCH,
    QUERY_TILE_BYTES = BLOCK_HEADS * TILE_PITCH,
    QUERY_BYTES = TILES * QUERY_TILE_BYTES,
    /* With QUERY_IN_RING: Q's tiles per tile of the ring, and the tiles of the ring that Q takes.
     * */
    TILE_QUERIES = BLOCK_KEYS > BLOCK_HEADS ? BLOCK_KEYS / BLOCK_HEADS : 1,
    QUERY_PLACES = (TILES + TILE_QUERIES - 1) / TILE_QUERIES,
    RING_BLOCKS = (RING_TILES + TILES - 1) / TILES /* blocks that have a tile in the ring */
};

/* mbarriers, as indices into BARRIERS. */
enum {
    FULL = 0, /* by tile and math warpgroup */
    EMPTY = FULL + MATH_GROUPS * RING_TILES,
    LANDED = EMPTY + RING_TILES,
    READY = LANDED + (RELAY ? RING_TILES : 0),
    TAKEN = READY + REQUESTS,
    QUERY_FULL = TAKEN + REQUESTS,
    QUERY_FREE = QUERY_FULL + QUERY_BUFFERS
};

/* The largest count of a barrier, so that the scan always has at least one arrival left: index rows
 * have at most 2^20 slots. (With RACECHECK, where every lane arrives, 2^19.) */
enum { QUERY_ARRIVALS = (1 << 20) - 1 };

/* Per tile: one of every copying thread, and one for the word. */
enum { COPY_ARRIVALS = COPY_WARPS * 32 + 1 };

DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int tile = 0; tile < RING_TILES; ++tile) {
            for (int group = 0; group < MATH_GROUPS; ++group) {
                mbarrier_init(barrier_at(FULL + MATH_GROUPS * tile + group),
                              RELAY ? WARP_ARRIVALS : COPY_ARRIVALS);
            }
            if (RELAY) {
                mbarrier_init(barrier_at(LANDED + tile), COPY_ARRIVALS);
            }
            mbarrier_init(barrier_at(EMPTY + tile), 4 * WARP_ARRIVALS);
        }
        for (int request = 0; request < REQUESTS; ++request) {
            mbarrier_init(barrier_at(READY + request), WARP_ARRIVALS);
            mbarrier_init(barrier_at(TAKEN + request), COPY_WARPS * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < QUERY_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(QUERY_FULL + buffer),
                          QUERY_IN_RING ? WARP_ARRIVALS : 32 + WARP_ARRIVALS);
            mbarrier_init(barrier_at(QUERY_FREE + buffer),
                          QUERY_IN_RING ? 4 * WARP_ARRIVALS : QUERY_ARRIVALS);
        }
    }
    __syncthreads();
}

/* The math warpgroup's description of a key block: BLOCK_KEYS slots of a query from `slot` on. */
struct block_word {
    int query; /* -1: no more blocks */
    int slot;
    u32 valid[LANE_SLOTS]; /* a bit per slot */
    int opens;             /* 1: its warpgroup's first block of the query */
};

DEVICE struct block_word *block_word(int index) {
    return (struct block_word *)(arena + WORDS_OFFSET) + index;
}

/* A key block that the scan requests from the copies. */
struct request {
    int rows[BLOCK_KEYS]; /* KV rows by slot, negative for masked slots */
    struct block_word word;
};

DEVICE struct request *request_at(int index) {
    return (struct request *)(arena + REQUESTS_OFFSET) + index;
}

/* ---- gather: queries ------------------------------------------------------------------------- */

/* The row of a query's head in Q. Padded heads repeat the last one; their results are discarded. */
DEVICE const char *query_row(const struct sparse_scores_fwd_params *params, int batch, int token,
                             int head) {
    return (const char *)params->q +
           2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                minimum(head, HEADS - 1) * params->q_head_stride);
}

/* Prefetches a query's Q into the L2 cache. */
DEVICE void prefetch_query(const struct sparse_scores_fwd_params *params, int batch, int token) {
    for (int head = (int)(threadIdx.x % 32); head < HEADS; head += 32) {
        prefetch_l2(query_row(params, batch, token, head), DQK * 2);
    }
}

/* Stores the offsets of a query's heads. */
DEVICE void store_offsets(const struct sparse_scores_fwd_params *params, int batch, int token,
                          int buffer) {
    float *const offsets = (float *)(arena + OFFSETS_OFFSET) + buffer * BLOCK_HEADS;
    for (int head = (int)(threadIdx.x % 32); head < BLOCK_HEADS; head += 32) {
        offsets[head] = head_offset(params, batch, token, head);
    }
}

/* ---- gather: the scan -------------------------------------------------------------------------*/

/* The scan of a query's slots, one key block per step; slots are loaded one step ahead. */
struct scan {
    const int *row;
    int values[LANE_SLOTS]; /* KV rows; any invalid number for masked slots */
    int slots;              /* to scan */
};

/* Loads the slots from `slot` on. */
DEVICE void load_slots(struct scan *scan, int slot) {
    const int mine = slot + (int)(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        scan->values[i] = mine + 32 * i < scan->slots ? scan->row[mine + 32 * i] : MASKED;
    }
}

/* Opens an item's index row, if there is an item. */
DEVICE void open_scan(struct scan *scan, const struct work_params *params,
                      const struct work *work) {
    if (work->query >= 0) {
        scan->row = work_row(params, work);
        scan->slots = work_slots(params, work);
        load_slots(scan, 0);
    }
}

/* The state of the requests. */
struct requests {
    struct ring_place slot;
    int blocks; /* of the query, requested so far */
};

/* Requests a block of these rows; null: no valid slot. The warp synchronises before the arrival:
 * all lanes have written the request, and none still tests a phase that the arrival completes. */
DEVICE void post_request(struct requests *requests, const int *rows, int query, int slot) {
    const int lane = (int)(threadIdx.x % 32);
    struct request *const request = request_at(requests->slot.index);
    mbarrier_wait(barrier_at(TAKEN + requests->slot.index), requests->slot.parity ^ 1);
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        const int row = rows ? rows[i] : MASKED;
        const u32 valid = __ballot_sync((u32)ALL_LANES, row >= 0);
        request->rows[lane + 32 * i] = row;
        if (lane == 0) {
            request->word.valid[i] = valid;
        }
    }
    if (lane == 0) {
        request->word.query = query;
        request->word.slot = slot;
        request->word.opens = requests->blocks < MATH_GROUPS;
    }
    arrive_warp(barrier_at(READY + requests->slot.index), 1);
    ring_advance(&requests->slot, REQUESTS);
    ++requests->blocks;
}

/* Sets the target at a block's slots to 0. */
DEVICE void clear_block(const struct sparse_scores_fwd_params *params, int query, int slot) {
    const int batch = query_batch(&params->work, query), lane = (int)(threadIdx.x % 32);
    float *const target = target_row(params, batch, query - batch * params->work.tokens);
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        if (slot + lane + 32 * i < params->work.width) {
            target[slot + lane + 32 * i] = 0.0f;
        }
    }
}

/* Requests the query's blocks that have valid slots, and clears the others. */
DEVICE void request_blocks(const struct sparse_scores_fwd_params *params, struct scan *scan,
                           struct requests *requests, int query) {
    for (int slot = 0; slot < params->work.width; slot += BLOCK_KEYS) {
        int rows[LANE_SLOTS];
        bool any = false;
#pragma unroll
        for (int i = 0; i < LANE_SLOTS; ++i) {
            rows[i] = scan->values[i] < params->work.rows ? scan->values[i] : MASKED;
            any = any || rows[i] >= 0;
        }
        load_slots(scan, slot + BLOCK_KEYS);
        if (__any_sync((u32)ALL_LANES, any)) {
            post_request(requests, rows, query, slot);
        } else {
            clear_block(params, query, slot);
        }
    }
}

/* Makes the rest of QUERY_FREE's arrivals for a query of `blocks` blocks, once the phase of the
 * buffer's previous query is complete. */
DEVICE void end_query(struct ring_place *buffer, int blocks) {
    const u32 barrier = barrier_at(QUERY_FREE + buffer->index);
    if (threadIdx.x % 32 == 0) { /* one lane: no other may test a phase that this completes */
        mbarrier_wait(barrier, buffer->parity ^ 1);
        mbarrier_arrive_count(barrier, QUERY_ARRIVALS - blocks * 4 * WARP_ARRIVALS);
    }
    ring_advance(buffer, QUERY_BUFFERS);
}

/* With QUERY_IN_RING: prefetches Q to L2 and stores its heads' offsets. */
DEVICE void begin_query(const struct sparse_scores_fwd_params *params, const struct work *work,
                        struct ring_place *buffer) {
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
    prefetch_query(params, batch, token);
    mbarrier_wait(barrier_at(QUERY_FREE + buffer->index), buffer->parity ^ 1);
    store_offsets(params, batch, token, buffer->index);
    arrive_warp(barrier_at(QUERY_FULL + buffer->index), 1);
    ring_advance(buffer, QUERY_BUFFERS);
}

/* The scanning warp. */
DEVICE void run_scan(const struct sparse_scores_fwd_params *params) {
    struct requests requests = {{0, 0}, 0};
    struct ring_place buffer = {0, 0};
    struct scan scan;
    struct work work = first_work(&params->work);
    open_scan(&scan, &params->work, &work);
    while (work.query >= 0) {
        const struct work now = work;
        requests.blocks = 0;
        if (QUERY_IN_RING) {
            begin_query(params, &now, &buffer);
        }
        request_blocks(params, &scan, &requests, now.query);
        work = next_work(&params->work, &now);
        open_scan(&scan, &params->work, &work);
        while (requests.blocks < MATH_GROUPS) {
            post_request(&requests, 0, now.query, params->work.width);
        }
        if (!QUERY_IN_RING) {
            end_query(&buffer, requests.blocks);
        }
    }
    post_request(&requests, 0, -1, 0);
}

/* ---- gather: the copies ---------------------------------------------------------------------- */

/* A copying thread's rows of a key block, at its 16 bytes of their first tile. */
struct block_rows {
    struct block_word word;
    u32 present; /* a bit per row; the others become zeros */
    const char *from[ROWS];
};

/* Waits for the next request and takes it. */
DEVICE void take_request(const struct sparse_scores_fwd_params *params, struct ring_place *slot,
                         struct block_rows *block) {
    mbarrier_wait(barrier_at(READY + slot->index), slot->parity);
    const struct request *const request = request_at(slot->index);
    block->word = request->word;
    block->present = 0;
    const int batch = query_batch(&params->work, maximum(block->word.query, 0));
    const char *const source =
        (const char *)params->kv + 2 * (batch * params->kv_batch_stride) + threadIdx.x % 8 * 16;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int row = request->rows[threadIdx.x % WARPGROUP / 8 + i * COPY_ROWS];
        block->present |= row >= 0 ? 1u << i : 0;
        block->from[i] = source + (u64)(u32)maximum(row, 0) * params->kv_row_bytes;
    }
    arrive_warp(barrier_at(TAKEN + slot->index), 1);
    ring_advance(slot, REQUESTS);
}

/* Starts the copy of a block's tile into tile `place` of the ring, eight threads per row. */
DEVICE void copy_tile(const struct block_rows *block, int place, int tile) {
    const u32 thread = threadIdx.x % WARPGROUP;
    const u32 to = shared_address((u32)(KEYS_OFFSET + place * KEY_TILE_BYTES) +
                                  thread / 8 * TILE_PITCH + ((thread % 8) ^ (thread / 8 % 8)) * 16);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        cp_async_16(to + (u32)(i * COPY_ROWS * TILE_PITCH), block->from[i] + tile * TILE_PITCH,
                    block->present >> i & 1 ? 16 : 0);
    }
}

/* Starts the copy of Q's tiles from `first` on into tile `place` of the ring: as many as it holds,
 * one below the other. */
DEVICE void copy_query(const struct sparse_scores_fwd_params *params, int query, int place,
                       int first) {
    const u32 thread = threadIdx.x % WARPGROUP, chunk = thread % 8;
    const int batch = query_batch(&params->work, query);
    const u32 to = shared_address((u32)(KEYS_OFFSET + place * KEY_TILE_BYTES) +
                                  thread / 8 * TILE_PITCH + (chunk ^ (thread / 8 % 8)) * 16);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int row = (int)thread / 8 + i * COPY_ROWS, tile = first + row / BLOCK_HEADS;
        const char *const from =
            query_row(params, batch, query - batch * params->work.tokens, row % BLOCK_HEADS);
        cp_async_16(to + (u32)(i * COPY_ROWS * TILE_PITCH),
                    from + minimum(tile, TILES - 1) * TILE_PITCH + chunk * 16, 16);
    }
}

/* The copies' position: the next tile of the ring, the next word and its math warpgroup. */
struct filling {
    struct ring_place place;
    int index, group;
};

/* The FULL barrier of a math warpgroup's tile. */
DEVICE u32 full_barrier(int place, int group) {
    return barrier_at(FULL + MATH_GROUPS * place + group);
}

/* Arrives for a tile; for a block's first tile also writes the block's word. (Its slot is free
 * since the tile is.) */
DEVICE void give_tile(const struct filling *filling, const struct block_word *word) {
    const u32 full = RELAY ? barrier_at(LANDED + filling->place.index)
                           : full_barrier(filling->place.index, filling->group);
    cp_async_arrive_noinc(full);
    if (threadIdx.x % WARPGROUP == 0) {
        if (word) {
            *block_word(filling->index) = *word;
        }
        mbarrier_arrive(full);
    }
}

DEVICE void next_block(struct filling *filling) {
    filling->group = (filling->group + 1) % MATH_GROUPS;
    filling->index = filling->index + 1 < RING_BLOCKS ? filling->index + 1 : 0;
}

/* Sends each math warpgroup a block with query -1, which ends it. */
DEVICE void give_end(struct filling *filling, const struct block_word *word) {
#pragma unroll
    for (int group = 0; group < MATH_GROUPS; ++group) {
        mbarrier_wait(barrier_at(EMPTY + filling->place.index), filling->place.parity ^ 1);
        give_tile(filling, word);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            ring_advance(&filling->place, RING_TILES);
        }
        next_block(filling);
    }
}

/* Copies a query's Q ahead of its first block; the block's word comes with Q's first tile. */
DEVICE void copy_queries(const struct sparse_scores_fwd_params *params, struct filling *filling,
                         const struct block_word *word) {
#pragma unroll 1
    for (int tile = 0; tile < TILES; tile += TILE_QUERIES) {
        mbarrier_wait(barrier_at(EMPTY + filling->place.index), filling->place.parity ^ 1);
        copy_query(params, word->query, filling->place.index, tile);
        give_tile(filling, tile == 0 ? word : 0);
        ring_advance(&filling->place, RING_TILES);
    }
}

/* The copying warps: copy each block's tiles as they become free. */
DEVICE void run_copies(const struct sparse_scores_fwd_params *params) {
    struct ring_place slot = {0, 0};
    struct filling filling = {{0, 0}, 0, 0};
    struct block_rows block, next;
    take_request(params, &slot, &block);
    while (block.word.query >= 0) {
        const bool opens = QUERY_IN_RING && block.word.opens;
        if (opens) {
            copy_queries(params, &filling, &block.word);
        }
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            if (tile == TILES - 1) { /* usually while the copies wait for room */
                take_request(params, &slot, &next);
            }
            mbarrier_wait(barrier_at(EMPTY + filling.place.index), filling.place.parity ^ 1);
            copy_tile(&block, filling.place.index, tile);
            give_tile(&filling, tile == 0 && !opens ? &block.word : 0);
            ring_advance(&filling.place, RING_TILES);
        }
        block = next;
        next_block(&filling);
    }
    give_end(&filling, &block.word);
    cp_async_wait_all();
}

/* ---- gather: the relay ----------------------------------------------------------------------- */

/* The relay warp: waits for copies, executes the proxy fence and signals the math warpgroup. */
DEVICE void run_relay(void) {
    struct ring_place place = {0, 0};
    int index = 0, places = 0; /* places: tiles left of the block, and of Q ahead of it */
    for (;;) {
        mbarrier_wait(barrier_at(LANDED + place.index), place.parity);
        bool end = false;
        if (places == 0) {
            const struct block_word *const word = block_word(index);
            end = word->query < 0;
            places = TILES + (word->opens ? QUERY_PLACES : 0);
            index = index + 1 < RING_BLOCKS ? index + 1 : 0;
        }
        fence_proxy_async();
        arrive_warp(full_barrier(place.index, 0), 1);
        if (end) {
            break;
        }
        --places;
        ring_advance(&place, RING_TILES);
    }
}

/* ---- gather: Q ------------------------------------------------------------------------------- */

/* Starts the copy of a query's Q, four rows at once. */
DEVICE void load_query(const struct sparse_scores_fwd_params *params, int batch, int token,
                       int buffer) {
    const int chunk = (int)(threadIdx.x % 8);
    const u32 to = shared_address((u32)(QUERY_OFFSET + buffer * QUERY_BYTES));
#pragma unroll 1
    for (int head = (int)(threadIdx.x % 32 / 8); head < BLOCK_HEADS; head += 4) {
        const char *const from = query_row(params, batch, token, head) + chunk * 16;
        const u32 row = to + (u32)(head * TILE_PITCH + ((chunk ^ head) & 7) * 16);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            cp_async_16(row + (u32)(tile * QUERY_TILE_BYTES), from + tile * TILE_PITCH, 16);
        }
    }
}

/* The warp that loads each query's Q and its heads' offsets, without QUERY_IN_RING. */
DEVICE void run_queries(const struct sparse_scores_fwd_params *params) {
    struct ring_place buffer = {0, 0};
    for (struct work work = first_work(&params->work); work.query >= 0;
         work = next_work(&params->work, &work)) {
        const int batch = work_batch(&params->work, &work),
                  token = work_token(&params->work, &work);
        prefetch_query(params, batch, token);
        mbarrier_wait(barrier_at(QUERY_FREE + buffer.index), buffer.parity ^ 1);
        load_query(params, batch, token, buffer.index);
        cp_async_arrive_noinc(barrier_at(QUERY_FULL + buffer.index));
        store_offsets(params, batch, token, buffer.index);
        arrive_warp(barrier_at(QUERY_FULL + buffer.index), 1);
        ring_advance(&buffer, QUERY_BUFFERS);
    }
    cp_async_wait_all();
}

/* The gather's warpgroup. */
DEVICE void run_gather(const struct sparse_scores_fwd_params *params) {
    registers_decrease(GATHER_REGISTERS);
    const int warp = (int)warp_reduce_or(threadIdx.x / 32) - GATHER_WARPGROUP * 4;
    if (warp < COPY_WARPS) {
        run_copies(params);
    } else if (warp == COPY_WARPS) {
        run_scan(params);
    } else if (warp == COPY_WARPS + 1) {
        if (RELAY) {
            run_relay();
        } else {
            run_queries(params);
        }
    }
}

/* ---- math ------------------------------------------------------------------------------------ */

/* Waits until a tile of the warpgroup has landed. `parities`: a bit per FULL barrier. */
DEVICE void await_tile(int place, int group, u32 *parities) {
    mbarrier_wait(barrier_at(FULL + MATH_GROUPS * place + group), (int)(*parities >> place & 1));
    *parities ^= 1u << place;
}
