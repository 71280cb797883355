//@use common/base.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
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
 * The gather's warps of sparse_scores_fwd's wgmma kernels, and what they share with their
 * MATH_GROUPS math warpgroups, which take a query's key blocks in turn. A warp scans the slots,
 * sets the target of those blocks to 0 that have no valid one, and asks for the others; COPY_WARPS
 * copy the rows, as far ahead as the ring has room. Q is either loaded by a warp of its own into
 * QUERY, with its heads' offsets, or (QUERY_IN_RING, for one math warpgroup that keeps it in
 * registers) goes through the ring ahead of the query's first block; then the scan has it brought
 * to L2 and stores the offsets, and the fourth kind of warp is a relay: it tells math what has
 * landed, and makes it known to the products in math's place.
 *
 * A key block is BLOCK_KEYS slots in their places: the row of a masked one is zeros and its result
 * is not looked at. A query has at least as many key blocks as there are math warpgroups, so that
 * each of those has one of every query; what is missing are blocks without a valid slot.
 *
 * What binds, but with many heads, is the ring: gathered bytes per second are the bytes under way
 * over the time that a byte takes from L2 to its use. So it takes all the shared memory that Q
 * leaves, in tiles of 64 columns, each with barriers of its own: a block's products begin with its
 * first tile, and each tile makes room when its product is done. Nothing is kept from one block to
 * the next.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is rows of 64 columns, 128-byte
 * swizzled:
 *   KEYS     [RING_TILES] tiles of BLOCK_KEYS rows, a ring: a block's tiles follow each other
 *   QUERY    [QUERY_BUFFERS][TILES] tiles of BLOCK_HEADS rows; or none: those in the ring are
 *            TILE_QUERIES to a tile there
 *   OFFSETS  [QUERY_BUFFERS][BLOCK_HEADS] fp32
 *   WORDS    [RING_BLOCKS]: struct block_word
 *   REQUESTS [REQUESTS]: struct request
 *   RANGE: common/work.cuh
 *
 * Barriers (parity counts uses; t: the ring's tile; m: the math warpgroup, of whose FULL barriers
 * each sees its own tiles alone; b: Q's buffer):
 *   barrier       count           who arrives                               who waits
 *   READY[r]      1               gather: the scan, request r is there      copies
 *   TAKEN[r]      COPY_WARPS      gather: copies, its slots are read        scan
 *   FULL[t][m]    COPY_ARRIVALS   copies: every thread when its copies      math warpgroup m
 *                                 have landed, one for the word
 *   EMPTY[t]      4               math: warps, the tile's product is done,  copies
 *                                 or Q is in registers
 *   QUERY_FULL[b] 33              gather: the lanes that load Q when it     math
 *                                 has landed, the warp for the offsets
 *   QUERY_FREE[b] QUERY_ARRIVALS  math: 4 for each of the query's blocks,   gather: Q's warp; the
 *                                 its products are done; the scan: all      scan, before its own
 *                                 that are missing, when it knows how
 *                                 many blocks there are
 * With Q in the ring instead:
 *   LANDED[t]     COPY_ARRIVALS   copies, as FULL above                     relay
 *   FULL[t][0]    1               relay: the products know of it            math
 *   QUERY_FULL[b] 1               gather: the scan, for the offsets         math
 *   QUERY_FREE[b] 4               math: warps, they have the offsets        scan
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 */

enum {
    GATHER_WARPGROUP = MATH_GROUPS,
    COPY_ROWS = COPY_WARPS * 4,    /* of a tile, copied at once: eight threads a row */
    ROWS = BLOCK_KEYS / COPY_ROWS, /* of a thread, in each tile */
    LANE_SLOTS = BLOCK_KEYS / 32,  /* of a lane, in each step of the scan */
    MASKED = -1,
    RELAY = QUERY_IN_RING, /* a warp has no Q to load */

    TILES = DQK / 64, /* of a key block, and of Q */
    TILE_PITCH = 128, /* bytes of a row, 64 columns */
    KEY_TILE_BYTES = BLOCK_KEYS * TILE_PITCH,
    QUERY_TILE_BYTES = BLOCK_HEADS * TILE_PITCH,
    QUERY_BYTES = TILES * QUERY_TILE_BYTES,
    /* Where Q is in the ring: its tiles in one of the ring, and how many of those they take. */
    TILE_QUERIES = BLOCK_KEYS > BLOCK_HEADS ? BLOCK_KEYS / BLOCK_HEADS : 1,
    QUERY_PLACES = (TILES + TILE_QUERIES - 1) / TILE_QUERIES,
    ATOM_BYTES = 8 * TILE_PITCH,                   /* eight rows of a tile */
    STEP_BYTES = 32,                               /* 16 columns of a row: a k-step */
    RING_BLOCKS = (RING_TILES + TILES - 1) / TILES /* that are in the ring, in part */
};

/* Places in BARRIERS. */
enum {
    FULL = 0, /* by tile and math warpgroup */
    EMPTY = FULL + MATH_GROUPS * RING_TILES,
    LANDED = EMPTY + RING_TILES,
    READY = LANDED + (RELAY ? RING_TILES : 0),
    TAKEN = READY + REQUESTS,
    QUERY_FULL = TAKEN + REQUESTS,
    QUERY_FREE = QUERY_FULL + QUERY_BUFFERS
};

/* So many that the scan has at least one left to make: rows have 2^20 slots at most. (With
 * RACECHECK, where warps arrive lane by lane, 2^19.) It is the most that a barrier counts. */
enum { QUERY_ARRIVALS = (1 << 20) - 1 };

/* For a tile: every copying thread's, and one for the word. */
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

/* A key block as math needs it: BLOCK_KEYS slots of a query from `slot` on, the valid ones' bits,
 * and whether it is the first of the query that its warpgroup has. */
struct block_word {
    int query; /* -1: there are no more blocks */
    int slot;
    u32 valid[LANE_SLOTS];
    int opens;
};

DEVICE struct block_word *block_word(int index) {
    return (struct block_word *)(arena + WORDS_OFFSET) + index;
}

/* What the scan asks the copies for. */
struct request {
    int rows[BLOCK_KEYS]; /* KV rows by slot; of masked ones a number below 0 */
    struct block_word word;
};

DEVICE struct request *request_at(int index) {
    return (struct request *)(arena + REQUESTS_OFFSET) + index;
}

/* ---- gather: queries ------------------------------------------------------------------------- */

/* Where the row of a query's head begins in Q. Past the last head it is that of the last, so that
 * what is read is there; what is computed of it counts nothing. */
DEVICE const char *query_row(const struct sparse_scores_fwd_params *params, int batch, int token,
                             int head) {
    return (const char *)params->q +
           2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                minimum(head, HEADS - 1) * params->q_head_stride);
}

/* Brings a query's Q into the L2 cache, ahead of load_query. */
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

/* A query's slots, a key block's at a time; loaded one step ahead. */
struct scan {
    const int *row;
    int values[LANE_SLOTS]; /* KV rows, or anything else for masked slots */
    int slots;              /* that may be valid */
};

/* Loads the slots from `slot` on. */
DEVICE void load_slots(struct scan *scan, int slot) {
    const int mine = slot + (int)(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        scan->values[i] = mine + 32 * i < scan->slots ? scan->row[mine + 32 * i] : MASKED;
    }
}

/* Begins the slots of an item, if it is one. */
DEVICE void open_scan(struct scan *scan, const struct work_params *params,
                      const struct work *work) {
    if (work->query >= 0) {
        scan->row = work_row(params, work);
        scan->slots = work_slots(params, work);
        load_slots(scan, 0);
    }
}

/* How the requests go on. */
struct asking {
    struct ring_place turn;
    int blocks; /* of the query, so far */
};

/* Asks for a block of these rows, null for one without a valid slot. When the lanes have met all
 * wrote them, and none still looks at a phase that the request ends. */
DEVICE void ask(struct asking *asking, const int *rows, int query, int slot) {
    const int lane = (int)(threadIdx.x % 32);
    struct request *const request = request_at(asking->turn.index);
    mbarrier_wait(barrier_at(TAKEN + asking->turn.index), asking->turn.parity ^ 1);
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
        request->word.opens = asking->blocks < MATH_GROUPS;
    }
    arrive_warp(barrier_at(READY + asking->turn.index), 1);
    ring_advance(&asking->turn, REQUESTS);
    ++asking->blocks;
}

/* Sets the target of a block's slots to 0. */
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

/* Asks for the query's blocks that have valid slots, and clears the others. */
DEVICE void ask_blocks(const struct sparse_scores_fwd_params *params, struct scan *scan,
                       struct asking *asking, int query) {
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
            ask(asking, rows, query, slot);
        } else {
            clear_block(params, query, slot);
        }
    }
}

/* Makes the arrivals that a query of so many blocks lacks, when those for the one before it in its
 * buffer are complete. */
DEVICE void end_query(struct ring_place *buffer, int blocks) {
    const u32 barrier = barrier_at(QUERY_FREE + buffer->index);
    if (threadIdx.x % 32 == 0) { /* alone: none else looks at a phase that this may end */
        mbarrier_wait(barrier, buffer->parity ^ 1);
        mbarrier_arrive_count(barrier, QUERY_ARRIVALS - blocks * 4 * WARP_ARRIVALS);
    }
    ring_advance(buffer, QUERY_BUFFERS);
}

/* Where Q is in the ring: has it brought to L2, and stores the offsets of its heads. */
DEVICE void begin_query(const struct sparse_scores_fwd_params *params, const struct work *work,
                        struct ring_place *buffer) {
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
    prefetch_query(params, batch, token);
    mbarrier_wait(barrier_at(QUERY_FREE + buffer->index), buffer->parity ^ 1);
    store_offsets(params, batch, token, buffer->index);
    arrive_warp(barrier_at(QUERY_FULL + buffer->index), 1);
    ring_advance(buffer, QUERY_BUFFERS);
}

/* The warp that scans. */
DEVICE void run_scan(const struct sparse_scores_fwd_params *params) {
    struct asking asking = {{0, 0}, 0};
    struct ring_place buffer = {0, 0};
    struct scan scan;
    struct work work = first_work(&params->work);
    open_scan(&scan, &params->work, &work);
    while (work.query >= 0) {
        const struct work now = work;
        asking.blocks = 0;
        if (QUERY_IN_RING) {
            begin_query(params, &now, &buffer);
        }
        ask_blocks(params, &scan, &asking, now.query);
        work = next_work(&params->work, &now);
        open_scan(&scan, &params->work, &work);
        while (asking.blocks < MATH_GROUPS) {
            ask(&asking, 0, now.query, params->work.width);
        }
        if (!QUERY_IN_RING) {
            end_query(&buffer, asking.blocks);
        }
    }
    ask(&asking, 0, -1, 0);
}

/* ---- gather: the copies ---------------------------------------------------------------------- */

/* A copying thread's rows of a key block, at 16 bytes of their first columns. */
struct block_rows {
    struct block_word word; /* the block's */
    u32 present;            /* a bit a row; the others are zeros */
    const char *from[ROWS];
};

/* Takes the next request, when it is there. */
DEVICE void take_request(const struct sparse_scores_fwd_params *params, struct ring_place *turn,
                         struct block_rows *block) {
    mbarrier_wait(barrier_at(READY + turn->index), turn->parity);
    const struct request *const request = request_at(turn->index);
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
    arrive_warp(barrier_at(TAKEN + turn->index), 1);
    ring_advance(turn, REQUESTS);
}

/* Copies a tile of a block into the ring's tile number `place`: eight threads a row. */
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

/* Copies as many of a query's tiles of Q as go into the ring's tile number `place`, from tile
 * `first` on, below each other. */
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

/* Where the copies are: which of the ring's tiles and words comes next, for whom. */
struct filling {
    struct ring_place place;
    int index, group;
};

/* Of a tile of a math warpgroup's. */
DEVICE u32 full_barrier(int place, int group) {
    return barrier_at(FULL + MATH_GROUPS * place + group);
}

/* Arrives for a tile; for a block's first one with its word, whose place is free as the tile's is.
 */
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

/* Tells each math warpgroup that there are no more blocks, by the first tile of one. */
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

/* Copies a query's Q, ahead of its first block, whose word comes with it. */
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

/* The warps that copy: each block's tiles as they come free. */
DEVICE void run_copies(const struct sparse_scores_fwd_params *params) {
    struct ring_place turn = {0, 0};
    struct filling filling = {{0, 0}, 0, 0};
    struct block_rows block, next;
    take_request(params, &turn, &block);
    while (block.word.query >= 0) {
        const bool opens = QUERY_IN_RING && block.word.opens;
        if (opens) {
            copy_queries(params, &filling, &block.word);
        }
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            if (tile == TILES - 1) { /* while room is waited for, as a rule */
                take_request(params, &turn, &next);
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

/* The warp that tells math what has landed, and fences in its place. */
DEVICE void run_relay(void) {
    struct ring_place place = {0, 0};
    int index = 0, places = 0; /* places: of the block and its query's Q */
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

/* Starts the copy of a query's Q: four rows at once. */
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

/* The warp that loads each query's Q and its heads' offsets. */
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

/* Waits until a tile of the warpgroup's is there. `parities`: of its FULL barriers, by tile. */
DEVICE void await_tile(int place, int group, u32 *parities) {
    mbarrier_wait(barrier_at(FULL + MATH_GROUPS * place + group), (int)(*parities >> place & 1));
    *parities ^= 1u << place;
}
