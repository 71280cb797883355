//@use common/base.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/prefetch.cuh
//@use ptx/registers.cuh
//@use sparse_scores_fwd.heads.cuh
//@use sparse_scores_fwd.params.h
/*
 * The gather's warpgroup of sparse_scores_fwd's wgmma kernels, and what it shares with their
 * MATH_GROUPS math warpgroups, which take a query's key blocks in turn. A warp scans the slots,
 * sets the target of those blocks to 0 that have no valid one, and asks for the others; two warps
 * copy the rows, as far ahead as the ring has room; a warp loads each query's Q and its heads'
 * offsets.
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
 *   QUERY    [QUERY_BUFFERS][TILES] tiles of BLOCK_HEADS rows
 *   OFFSETS  [QUERY_BUFFERS][BLOCK_HEADS] fp32
 *   WORDS    [RING_BLOCKS]: struct block_word
 *   REQUESTS [REQUESTS]: struct request
 *   RANGE: common/work.cuh
 *
 * Barriers (parity counts uses; t: the ring's tile; m: the math warpgroup, of whose FULL barriers
 * each sees its own tiles alone; b: Q's buffer):
 *   barrier       count           who arrives                               who waits
 *   READY[r]      1               gather: the scan, request r is there      copies
 *   TAKEN[r]      2               gather: copies, its slots are read        scan
 *   FULL[t][m]    65              copies: every thread when its copies      math warpgroup m
 *                                 have landed, one for the word
 *   EMPTY[t]      4               math: warps, the tile's product is done   copies
 *   QUERY_FULL[b] 33              gather: the lanes that load Q when it     math
 *                                 has landed, the warp for the offsets
 *   QUERY_FREE[b] 4 a group       with Q in registers. Math: warps, they    gather: Q's warp
 *                                 have it
 *                 QUERY_ARRIVALS  else. Math: 4 for each of the query's     gather: Q's warp; the
 *                                 blocks, its products are done; the        scan, before its own
 *                                 scan: all that are missing, when it
 *                                 knows how many blocks there are
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 */

enum {
    WARPGROUP = 128, /* threads */
    GATHER_WARPGROUP = MATH_GROUPS,
    COPY_WARPS = 2, /* of the gather's, the first ones; the next one scans, the last loads Q */
    COPY_ROWS = COPY_WARPS * 4,    /* of a tile, copied at once: eight threads a row */
    ROWS = BLOCK_KEYS / COPY_ROWS, /* of a thread, in each tile */
    LANE_SLOTS = BLOCK_KEYS / 32,  /* of a lane, in each step of the scan */
    ALL_LANES = -1,
    MASKED = -1,

    TILES = DQK / 64, /* of a key block, and of Q */
    TILE_PITCH = 128, /* bytes of a row, 64 columns */
    KEY_TILE_BYTES = BLOCK_KEYS * TILE_PITCH,
    QUERY_TILE_BYTES = BLOCK_HEADS * TILE_PITCH,
    QUERY_BYTES = TILES * QUERY_TILE_BYTES,
    ATOM_BYTES = 8 * TILE_PITCH,                   /* eight rows of a tile */
    STEP_BYTES = 32,                               /* 16 columns of a row: a k-step */
    RING_BLOCKS = (RING_TILES + TILES - 1) / TILES /* that are in the ring, in part */
};

/* Places in BARRIERS. */
enum {
    FULL = 0, /* by tile and math warpgroup */
    EMPTY = FULL + MATH_GROUPS * RING_TILES,
    READY = EMPTY + RING_TILES,
    TAKEN = READY + REQUESTS,
    QUERY_FULL = TAKEN + REQUESTS,
    QUERY_FREE = QUERY_FULL + QUERY_BUFFERS
};

/* So many that the scan has at least one left to make: rows have 2^20 slots at most. (With
 * RACECHECK, where warps arrive lane by lane, 2^19.) It is the most that a barrier counts. */
enum { QUERY_ARRIVALS = (1 << 20) - 1 };

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int tile = 0; tile < RING_TILES; ++tile) {
            for (int group = 0; group < MATH_GROUPS; ++group) {
                mbarrier_init(barrier_at(FULL + MATH_GROUPS * tile + group), COPY_WARPS * 32 + 1);
            }
            mbarrier_init(barrier_at(EMPTY + tile), 4 * WARP_ARRIVALS);
        }
        for (int request = 0; request < REQUESTS; ++request) {
            mbarrier_init(barrier_at(READY + request), WARP_ARRIVALS);
            mbarrier_init(barrier_at(TAKEN + request), COPY_WARPS * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < QUERY_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(QUERY_FULL + buffer), 32 + WARP_ARRIVALS);
            mbarrier_init(barrier_at(QUERY_FREE + buffer),
                          QUERY_IN_REGISTERS ? 4 * MATH_GROUPS * WARP_ARRIVALS : QUERY_ARRIVALS);
        }
    }
    __syncthreads();
}

/* A key block as math needs it: 64 slots of a query from `slot` on, the valid ones' bits, and
 * whether it is the first of the query that its warpgroup has. */
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
    int rows[BLOCK_KEYS]; /* KV rows by slot, or MASKED */
    struct block_word word;
};

DEVICE struct request *request_at(int index) {
    return (struct request *)(arena + REQUESTS_OFFSET) + index;
}

/* ---- gather: the scan -------------------------------------------------------------------------*/

/* A query's slots, a key block's at a time; loaded one step ahead. */
struct scan {
    const int *row;
    int slots;              /* that may be valid */
    int values[LANE_SLOTS]; /* KV rows, or anything else for masked slots */
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

/* Asks for a block of these rows. When the lanes have met all wrote them, and none still looks at a
 * phase that the request ends. */
DEVICE void ask(struct asking *asking, const int *rows, int query, int slot) {
    const int lane = (int)(threadIdx.x % 32);
    struct request *const request = request_at(asking->turn.index);
    mbarrier_wait(barrier_at(TAKEN + asking->turn.index), asking->turn.parity ^ 1);
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        const u32 valid = __ballot_sync((u32)ALL_LANES, rows[i] >= 0);
        request->rows[lane + 32 * i] = rows[i];
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

/* Asks for a block without a valid slot. */
DEVICE void ask_none(struct asking *asking, int query, int slot) {
    int rows[LANE_SLOTS];
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        rows[i] = MASKED;
    }
    ask(asking, rows, query, slot);
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
            const int row = scan->values[i];
            rows[i] = row >= 0 && row < params->work.rows ? row : MASKED;
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
    mbarrier_wait(barrier, buffer->parity ^ 1);
    if (threadIdx.x % 32 == 0) {
        mbarrier_arrive_count(barrier, QUERY_ARRIVALS - blocks * 4 * WARP_ARRIVALS);
    }
    __syncwarp((u32)ALL_LANES);
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
        ask_blocks(params, &scan, &asking, now.query);
        work = next_work(&params->work, &now);
        open_scan(&scan, &params->work, &work);
        while (asking.blocks < MATH_GROUPS) {
            ask_none(&asking, now.query, params->work.width);
        }
        if (!QUERY_IN_REGISTERS) {
            end_query(&buffer, asking.blocks);
        }
    }
    ask_none(&asking, -1, 0);
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

/* Where the copies are: which of the ring's tiles and words comes next, for whom. */
struct filling {
    struct ring_place place;
    int index, group;
};

/* Arrives for a tile; for a block's first one with its word, whose place is free as the tile's is.
 */
DEVICE void give_tile(const struct filling *filling, const struct block_word *word) {
    const u32 full = barrier_at(FULL + MATH_GROUPS * filling->place.index + filling->group);
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

/* The warps that copy: each block's tiles as they come free. */
DEVICE void run_copies(const struct sparse_scores_fwd_params *params) {
    struct ring_place turn = {0, 0};
    struct filling filling = {{0, 0}, 0, 0};
    struct block_rows block, next;
    take_request(params, &turn, &block);
    while (block.word.query >= 0) {
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            if (tile == TILES - 1) { /* while room is waited for, as a rule */
                take_request(params, &turn, &next);
            }
            mbarrier_wait(barrier_at(EMPTY + filling.place.index), filling.place.parity ^ 1);
            copy_tile(&block, filling.place.index, tile);
            give_tile(&filling, tile == 0 ? &block.word : 0);
            ring_advance(&filling.place, RING_TILES);
        }
        block = next;
        next_block(&filling);
    }
    give_end(&filling, &block.word);
    cp_async_wait_all();
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
        float *const offsets = (float *)(arena + OFFSETS_OFFSET) + buffer.index * BLOCK_HEADS;
        prefetch_query(params, batch, token);
        mbarrier_wait(barrier_at(QUERY_FREE + buffer.index), buffer.parity ^ 1);
        load_query(params, batch, token, buffer.index);
        cp_async_arrive_noinc(barrier_at(QUERY_FULL + buffer.index));
        for (int head = (int)(threadIdx.x % 32); head < BLOCK_HEADS; head += 32) {
            offsets[head] = head_offset(params, batch, token, head);
        }
        arrive_warp(barrier_at(QUERY_FULL + buffer.index), 1);
        ring_advance(&buffer, QUERY_BUFFERS);
    }
    cp_async_wait_all();
}

/* The gather's warpgroup. */
DEVICE void run_gather(const struct sparse_scores_fwd_params *params) {
    if (GATHER_REGISTERS > 0) {
        registers_decrease(GATHER_REGISTERS);
    }
    const int warp = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x % WARPGROUP / 32), 0);
    if (warp < COPY_WARPS) {
        run_copies(params);
    } else if (warp == COPY_WARPS) {
        run_scan(params);
    } else {
        run_queries(params);
    }
}

/* ---- math ------------------------------------------------------------------------------------ */

/* Waits until a tile of the warpgroup's is there. `parities`: of its FULL barriers, by tile. */
DEVICE void await_tile(int place, int group, u32 *parities) {
    mbarrier_wait(barrier_at(FULL + MATH_GROUPS * place + group), (int)(*parities >> place & 1));
    *parities ^= 1u << place;
}
