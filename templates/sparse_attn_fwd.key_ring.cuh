//@use common/base.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use common/warp_slots.cuh
//@use common/wgmma_tile.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/prefetch.cuh
//@use ptx/registers.cuh
//@use sparse_attn_fwd.params.h
/*
 * The ring of KV tiles of sparse_attn_fwd.sm90_few.cu, whose head has the shared-memory map and the
 * barriers: gathers the key blocks of two queries at a time for its two math warpgroups. One warp
 * of the gather's warpgroup scans the slots of both queries and requests one of their blocks
 * alternately; COPY_WARPS warps copy the rows, and wait for slots in flight only when the scan, two
 * blocks ahead, is late.
 *
 * Block n occupies the ring's tiles TILES * n to TILES * n + TILES - 1, modulo RING_TILES. So its
 * tile t replaces tile t - RING_TILES + TILES * d of block n - d, where d makes that a valid tile
 * number: RING_BLOCKS or RING_BLOCKS - 1, known at compile time.
 */

enum {
    COPY_WARPS = 2, /* the gather's first warps; the next one scans */
    COPY_ROWS = 8,  /* of a key block, copied at once */
    REQUESTS = 2,   /* key blocks by which the scan is ahead of the copies */
    KEY_TILE_BYTES = BLOCK_KEYS * TILE_PITCH,
    LAST_HEAD = HEADS - 1
};

/* The tiles of a key block, in the ring's order: its rope columns, then its values. They are filled
 * and released in parts; the rope columns are filled with the first part, released separately. */
enum {
    TILES = DQK / 64,
    VALUE_TILES = DV / 64,
    ROPE_TILES = TILES - VALUE_TILES,
    PARTS = VALUE_TILES / PART_TILES,
    ROPE_PART = PARTS,
    RING_BLOCKS = (RING_TILES + TILES - 1) / TILES /* blocks that have a tile in the ring */
};

/* mbarriers, as indices into BARRIERS. */
enum {
    FULL = 0,                               /* by block, part and math warpgroup */
    EMPTY = FULL + RING_BLOCKS * PARTS * 2, /* by block and part, the rope columns' included */
    QUERY_FULL = EMPTY + RING_BLOCKS * (PARTS + 1), /* by math warpgroup */
    READY = QUERY_FULL + 2,
    TAKEN = READY + REQUESTS
};

/* The ring's tile that holds a block's tile; `first`: the block's first tile in the ring. */
DEVICE int ring_tile(int first, int tile) {
    return first + tile < RING_TILES ? first + tile : first + tile - RING_TILES;
}

/* A key block's word: its number of keys, whether it is its query's last, and whether the next
 * block is the same math warpgroup's, because the other one has no more queries. */
enum { LAST_BLOCK = 256, ALONE = 512, COUNT_MASK = 255 };

struct block_word {
    int word;
    int next; /* with LAST_BLOCK: the warpgroup's next query, or -1 */
};

DEVICE struct block_word *block_word(int index) {
    return (struct block_word *)(arena + WORDS_OFFSET) + index;
}

/* The item after `work`, if there is one. */
DEVICE struct work work_after(const struct sparse_attn_fwd_params *params,
                              const struct work *work) {
    return work->query < 0 ? *work : next_work(&params->work, work);
}

/* The row of a query's head in Q. Padded heads repeat the last one; their results are discarded. */
DEVICE const char *query_row(const struct sparse_attn_fwd_params *params, int query, int head) {
    const int batch = query_batch(&params->work, query),
              token = query - batch * params->work.tokens;
    return (const char *)params->q +
           2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                minimum(head, LAST_HEAD) * params->q_head_stride);
}

/* A key block that the scan requests from the copies. */
struct request {
    int word;  /* the block's, and SECOND or NO_MORE */
    int next;  /* the block's */
    int batch; /* of the KV rows */
    int first; /* its first entry in the flow's slot ring */
};

enum { SECOND = 1024 /* math warpgroup */, NO_MORE = 2048 };

DEVICE struct request *request_at(int index) {
    return (struct request *)(arena + REQUESTS_OFFSET) + index;
}

/* The scan's state for one math warpgroup's queries. */
struct flow {
    int query;          /* whose key blocks are being requested, or -1: none left */
    int start;          /* its first entry in the slot ring */
    int entries, taken; /* valid slots found, and those already in key blocks */
    bool ended;         /* the query's scan is complete; `scan` is the next query's */
    int next;           /* query, or -1 */
    struct warp_scan scan;
};

DEVICE void begin_flow(struct flow *flow, int start, int query) {
    flow->query = query;
    flow->start = start;
    flow->entries = 0;
    flow->taken = 0;
    flow->ended = false;
    flow->next = -1;
}

/* Prefetches a query's Q into the L2 cache, for load_query. */
DEVICE void prefetch_query(const struct sparse_attn_fwd_params *params, int query) {
    const int head = (int)(threadIdx.x % 32);
    if (query >= 0 && head < HEADS) {
        prefetch_l2(query_row(params, query, head), DQK * 2);
    }
}

/* Scans until a flow's next key block is known, and whether it is the query's last; at the end of
 * the index row it opens the next query's. `latest`: the last item opened. */
DEVICE void look_ahead(const struct sparse_attn_fwd_params *params, struct flow *flow, int group,
                       struct work *latest) {
    while (!flow->ended && flow->entries - flow->taken <= BLOCK_KEYS) {
        flow->entries = warp_scan_more(&flow->scan, slot_ring(group), flow->start,
                                       params->work.rows, flow->entries);
        flow->ended = warp_scan_ended(&flow->scan, flow->entries);
        if (flow->ended) {
            *latest = work_after(params, latest);
            warp_scan_open(&flow->scan, &params->work, latest);
            prefetch_query(params, latest->query);
            flow->next = latest->query;
        }
    }
}

/* Posts a request. The warp synchronises first: all lanes have written the block's entries, and
 * none still tests a barrier phase that this request completes. */
DEVICE void post_request(struct ring_place *slot, const struct request *request) {
    mbarrier_wait(barrier_at(TAKEN + slot->index), slot->parity ^ 1);
    if (threadIdx.x % 32 == 0) {
        *request_at(slot->index) = *request;
    }
    arrive_warp(barrier_at(READY + slot->index), 1);
    ring_advance(slot, REQUESTS);
}

/* Requests a flow's next key block. */
DEVICE void request_block(const struct sparse_attn_fwd_params *params, struct flow *flow,
                          const struct flow *other, int group, struct ring_place *slot,
                          struct work *latest) {
    look_ahead(params, flow, group, latest);
    const int left = flow->entries - flow->taken, count = minimum(left, BLOCK_KEYS);
    const bool last = flow->ended && left <= BLOCK_KEYS;
    const struct request request = {count | (last ? LAST_BLOCK : 0) |
                                        (other->query < 0 ? ALONE : 0) | (group == 1 ? SECOND : 0),
                                    flow->next, query_batch(&params->work, flow->query),
                                    flow->start + flow->taken};
    post_request(slot, &request);
    flow->taken += count;
    if (last) {
        begin_flow(flow, flow->start + flow->entries, flow->next);
    }
}

/* The scanning warp: requests a block of each flow in slot. The loop over flows is unrolled, so
 * that slots in flight stay in registers. */
DEVICE void run_scan(const struct sparse_attn_fwd_params *params) {
    struct ring_place slot = {0, 0};
    struct flow flows[2];
    struct work latest = first_work(&params->work);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        begin_flow(&flows[i], 0, latest.query);
        warp_scan_open(&flows[i].scan, &params->work, &latest);
        if (i == 0) {
            latest = work_after(params, &latest);
        }
    }
    while (flows[0].query >= 0 || flows[1].query >= 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (flows[i].query >= 0) {
                request_block(params, &flows[i], &flows[1 - i], i, &slot, &latest);
            }
        }
    }
    const struct request end = {NO_MORE, -1, 0, 0};
    post_request(&slot, &end);
}

/* The part with which a tile is released, and the one with which it is filled. */
DEVICE int part_of(int tile) {
    return tile < ROPE_TILES ? ROPE_PART : (tile - ROPE_TILES) / PART_TILES;
}

DEVICE int full_part_of(int tile) {
    return maximum(tile - ROPE_TILES, 0) / PART_TILES;
}

/* The part that a tile of a block replaces, of the block `back` blocks earlier. */
struct former {
    int back, part;
};

DEVICE struct former former_of(int tile) {
    const int back = (RING_TILES - tile + TILES - 1) / TILES;
    const struct former former = {back, part_of(tile - RING_TILES + back * TILES)};
    return former;
}

/* Whether a tile is free as soon as the one before it is. */
DEVICE bool is_free_with_previous(int tile) {
    const struct former one = former_of(tile), last = former_of(tile - 1);
    return tile > 0 && one.back == last.back && one.part == last.part;
}

DEVICE void wait_free(const struct ring_place *block, int tile) {
    const struct former former = former_of(tile);
    struct ring_place at = *block;
    if (former.back < RING_BLOCKS) {
        ring_advance(&at, RING_BLOCKS);
    }
    mbarrier_wait(barrier_at(EMPTY + at.index * (PARTS + 1) + former.part), at.parity ^ 1);
}

/* A copying thread's rows of a key block: `row` and every COPY_ROWS-th after it. Rows from `count`
 * on become zeros. */
struct block_rows {
    int word, next; /* the block's */
    int row, count;
    const char *from[BLOCK_KEYS / COPY_ROWS]; /* 16 bytes of the first columns */
};

/* Waits for the next request and takes it. */
DEVICE void take_request(const struct sparse_attn_fwd_params *params, struct ring_place *slot,
                         struct block_rows *rows) {
    mbarrier_wait(barrier_at(READY + slot->index), slot->parity);
    const struct request request = *request_at(slot->index);
    const int *const ring = slot_ring(request.word & SECOND ? 1 : 0);
    const char *const source = (const char *)params->kv +
                               2 * (request.batch * params->kv_batch_stride) + threadIdx.x % 8 * 16;
    rows->word = request.word;
    rows->next = request.next;
    rows->row = (int)(threadIdx.x % WARPGROUP / 8);
    rows->count = request.word & COUNT_MASK;
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / COPY_ROWS; ++i) {
        const int key = rows->row + i * COPY_ROWS;
        const int number = key < rows->count ? ring[(request.first + key) & RING_MASK] : 0;
        rows->from[i] = source + (u64)(u32)number * params->kv_row_bytes;
    }
    arrive_warp(barrier_at(TAKEN + slot->index), 1);
    ring_advance(slot, REQUESTS);
}

/* Starts the copy of a tile, eight threads per row; `first`: the block's first tile in the ring. */
DEVICE void copy_tile(const struct block_rows *rows, int first, int tile) {
    const u32 thread = threadIdx.x % WARPGROUP;
    const u32 to = shared_address((u32)(KEYS_OFFSET + ring_tile(first, tile) * KEY_TILE_BYTES) +
                                  thread / 8 * TILE_PITCH + ((thread % 8) ^ (thread / 8 % 8)) * 16);
    const int column = tile < ROPE_TILES ? VALUE_TILES + tile : tile - ROPE_TILES;
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / COPY_ROWS; ++i) {
        const bool present = rows->row + i * COPY_ROWS < rows->count;
        cp_async_16(to + (u32)(i * COPY_ROWS * TILE_PITCH), rows->from[i] + column * TILE_PITCH,
                    present ? 16 : 0);
    }
}

/* The copying warps: copy each block's tiles as they become free. */
DEVICE void run_copies(const struct sparse_attn_fwd_params *params) {
    struct ring_place slot = {0, 0}, block = {0, 0};
    int first = 0;
    struct block_rows rows;
    take_request(params, &slot, &rows);
    while (!(rows.word & NO_MORE)) {
        const int full = FULL + block.index * PARTS * 2 + (rows.word & SECOND ? 1 : 0);
        struct block_rows next;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            if (tile == TILES - PART_TILES) { /* usually while the copies wait for room */
                take_request(params, &slot, &next);
            }
            if (!is_free_with_previous(tile)) {
                wait_free(&block, tile);
            }
            if (tile == 0 && threadIdx.x % WARPGROUP == 0) {
                const struct block_word word = {rows.word, rows.next};
                *block_word(block.index) = word;
                mbarrier_arrive(barrier_at(full));
            }
            copy_tile(&rows, first, tile);
            if (tile + 1 == TILES || full_part_of(tile + 1) != full_part_of(tile)) {
                cp_async_arrive_noinc(barrier_at(full + full_part_of(tile) * 2));
            }
        }
        rows = next;
        ring_advance(&block, RING_BLOCKS);
        first = ring_tile(first, TILES);
    }
    cp_async_wait_all();
}

/* The gather's warpgroup. */
DEVICE void run_gather(const struct sparse_attn_fwd_params *params) {
    registers_decrease(GATHER_REGISTERS);
    const int warp = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x % WARPGROUP / 32), 0);
    if (warp < COPY_WARPS) {
        run_copies(params);
    } else if (warp == COPY_WARPS) {
        run_scan(params);
    }
}
