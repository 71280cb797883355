//@use common/base.cuh
//@use common/few_item.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use common/warp_slots.cuh united = united
//@use common/wgmma_tile.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/registers.cuh
//@takes united
/*
 * The ring of key tiles of the kernels for few heads (sparse_attn_fwd.sm90_few.cu, whose head has the
 * shared-memory map and the barriers, and sparse_gqa_fwd.sm90_few.cu): gathers the key blocks of two
 * items at a time for the two math warpgroups. An item is a query, or a query and one of its KV heads.
 * One warp of the gather's warpgroup scans the slots of both items and requests one of their blocks
 * alternately; COPY_WARPS warps copy the rows, and wait for slots in flight only when the scan,
 * REQUESTS blocks ahead, is late.
 *
 * With COPY_TEAMS = 1 two warps copy each block together, each part of it as soon as there is room for
 * it. Where that takes too many instructions per byte, there are several teams of one warp each. The
 * teams take the blocks in turn: each copies a whole block, while the others copy theirs. The teams wait
 * for room in the order of the blocks, since a barrier's parity is the same in every second phase: a team
 * that has found room arrives at the next team's ordering barrier, ORDER.
 *
 * A block's tiles of 64 columns: LEADING_TILES, which only the scores need, then VALUE_TILES. They are
 * filled in FULL_PARTS parts and released in PARTS parts of the values and one of the leading tiles.
 * The leading tiles are filled in LEADING_PARTS parts of their own or, with 0 of them, with the first
 * part of the values.
 *
 * What depends on the operator is in the file that the kernel uses before this one:
 *   few_params            the tag of the kernel's params struct, which has a member `work`
 *   KEY_NUMBERS           1: the math needs the numbers of a block's rows
 *   SLOT_ROWS, TOPK       rows of a slot; rows of a query at most
 *   LEADING_TILES, VALUE_TILES, LEADING_PARTS
 *   struct few_item       an item, with a member `query`, -1: none; item_of, by a warp
 *   slots_of              the slots of an item of the grid
 *   prefetch_head         prefetches a head's rows into the L2 cache
 *   struct key_tensor     which rows an item reads; tensor_of
 *   struct key_source     where they are; open_source
 *   struct key_row        where one row is; find_key_row; `any`: whether the block has rows
 *   row_chunk             the address of a tile's 16 bytes, this thread's of eight
 *   has_chunk             whether the tile's row has them
 *
 * Block n occupies the ring's tiles TILES * n to TILES * n + TILES - 1, modulo RING_TILES. So its
 * tile t replaces tile t - RING_TILES + TILES * d of block n - d, where d makes that a valid tile
 * number: RING_BLOCKS or RING_BLOCKS - 1, known at compile time.
 */

enum {
    COPY_WARPS = COPY_TEAMS > 1 ? COPY_TEAMS : 2, /* the gather's first warps; the next one scans */
    TEAM_WARPS = COPY_WARPS / COPY_TEAMS,
    TEAM_THREADS = TEAM_WARPS * 32,
    COPY_ROWS = TEAM_THREADS / 8,                /* rows that a team copies at once */
    WORD_ARRIVALS = KEY_NUMBERS ? COPY_ROWS : 1, /* threads that describe a block */
    KEY_TILE_BYTES = BLOCK_KEYS * TILE_PITCH
};

enum {
    TILES = LEADING_TILES + VALUE_TILES,
    PARTS = (VALUE_TILES + PART_TILES - 1) / PART_TILES,
    LEADING_PART = PARTS, /* with which the leading tiles are released */
    FULL_PARTS = LEADING_PARTS + PARTS,
    RING_BLOCKS = (RING_TILES + TILES - 1) / TILES /* blocks that have a tile in the ring */
};

/* mbarriers, as indices into BARRIERS. */
enum {
    FULL = 0, /* by block, part and math warpgroup */
    EMPTY =
        FULL + RING_BLOCKS * FULL_PARTS * 2, /* by block and part, the leading tiles' included */
    QUERY_FULL = EMPTY + RING_BLOCKS * (PARTS + 1), /* by math warpgroup */
    READY = QUERY_FULL + 2,
    TAKEN = READY + REQUESTS,
    ORDER = TAKEN + REQUESTS /* by team; none with one team */
};

/* The ring's tile that holds a block's tile; `first`: the block's first tile in the ring. */
DEVICE int ring_tile(int first, int tile) {
    return first + tile < RING_TILES ? first + tile : first + tile - RING_TILES;
}

/* A key block's word: its number of keys, whether it is its item's last, and whether the next
 * block is the same math warpgroup's, because the other one has no more items. */
enum { LAST_BLOCK = 256, ALONE = 512, COUNT_MASK = 255 };

struct block_word {
    int word;
    struct few_item next; /* with LAST_BLOCK: the warpgroup's next item, if any */
};

DEVICE struct block_word *block_word(int index) {
    return (struct block_word *)(arena + WORDS_OFFSET) + index;
}

/* The numbers of a block's rows, for kernels that have NUMBERS; 0 past its keys. */
DEVICE int *block_numbers(int index) {
    return (int *)(arena + (KEY_NUMBERS ? NUMBERS_OFFSET : 0)) + index * BLOCK_KEYS;
}

/* The item after `work`, if there is one. */
DEVICE struct work work_after(const struct few_params *params, const struct work *work) {
    return work->query < 0 ? *work : next_work(&params->work, work);
}

/* A key block that the scan requests from the copies. */
struct request {
    int word;                 /* the block's, and SECOND or NO_MORE */
    int first;                /* its first entry in the flow's slot ring */
    struct key_tensor tensor; /* of the block */
    struct few_item next;     /* the block's */
};

enum { SECOND = 1024 /* math warpgroup */, NO_MORE = 2048 };

DEVICE struct request *request_at(int index) {
    return (struct request *)(arena + REQUESTS_OFFSET) + index;
}

/* Begins the scan of an item's slots, of none if there is no item. */
DEVICE void begin_scan(const struct few_params *params, struct warp_scan *scan,
                       const struct work *work) {
    //@if united
    struct united_slots slots = {params->groups.keys, params->groups.masks, 0, 0};
    if (work->query >= 0) {
        slots = slots_of(params, work);
    }
    warp_scan_begin(scan, slots.row, slots.masks, slots.count, slots.limit);
    //@else
    struct item_slots slots = {params->work.indices, 0, 0};
    if (work->query >= 0) {
        slots = slots_of(params, work);
    }
    warp_scan_begin(scan, slots.row, slots.count, slots.rows);
    //@end
}

/* The scan's state for one math warpgroup's items. */
struct flow {
    struct few_item item; /* whose key blocks are being requested */
    int start;            /* its first entry in the slot ring */
    int entries, taken;   /* valid slots found, and those already in key blocks */
    bool ended;           /* the item's scan is complete; `scan` is the next item's */
    struct few_item next;
    struct warp_scan scan;
};

DEVICE void begin_flow(struct flow *flow, int start, const struct few_item *item) {
    const struct few_item none = {-1};
    flow->item = *item;
    flow->start = start;
    flow->entries = 0;
    flow->taken = 0;
    flow->ended = false;
    flow->next = none;
}

/* Prefetches an item's Q into the L2 cache, for load_query. */
DEVICE void prefetch_query(const struct few_params *params, const struct few_item *item) {
    for (int head = (int)(threadIdx.x % 32); item->query >= 0 && head < ITEM_HEADS; head += 32) {
        prefetch_head(params, item, head);
    }
}

/* Scans until a flow's next key block is known, and whether it is the item's last; at the end of
 * the index row it opens the next item's. `latest`: the last item opened. */
DEVICE void look_ahead(const struct few_params *params, struct flow *flow, int group,
                       struct work *latest) {
    while (!flow->ended && flow->entries - flow->taken <= BLOCK_KEYS) {
        flow->entries = warp_scan_more(&flow->scan, slot_ring(group), flow->start, flow->entries);
        flow->ended = warp_scan_ended(&flow->scan, flow->entries);
        if (flow->ended) {
            *latest = work_after(params, latest);
            begin_scan(params, &flow->scan, latest);
            flow->next = item_of(params, latest);
            prefetch_query(params, &flow->next);
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

//@if united
/* How many of the slot ring's next entries, of `most`, are rows of the same batch; it is written to
 * *batch. By a warp. */
DEVICE int count_rows_of_batch(const struct few_params *params, const int *ring, int first,
                               int most, int *batch) {
    const int lane = (int)threadIdx.x % 32;
    u32 others[2];
    *batch = 0;
    if (params->groups.work.batches == 1 || most == 0) {
        return most;
    }
    *batch = batch_of_row(params, ring[first & RING_MASK]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int at = i * 32 + lane;
        const bool other =
            at < most && batch_of_row(params, ring[(first + at) & RING_MASK]) != *batch;
        others[i] = __ballot_sync((u32)ALL_LANES, other);
    }
    return others[0] ? __ffs((int)others[0]) - 1 : others[1] ? 31 + __ffs((int)others[1]) : most;
}

//@end
/* Requests a flow's next key block. */
DEVICE void request_block(const struct few_params *params, struct flow *flow,
                          const struct flow *other, int group, struct ring_place *slot,
                          struct work *latest) {
    look_ahead(params, flow, group, latest);
    //@if united
    struct key_tensor tensor = tensor_of(params, &flow->item);
    const int left = flow->entries - flow->taken;
    const int count = count_rows_of_batch(params, slot_ring(group), flow->start + flow->taken,
                                          minimum(left, BLOCK_KEYS), &tensor.batch);
    const bool last = flow->ended && left == count;
    //@else
    const int left = flow->entries - flow->taken, count = minimum(left, BLOCK_KEYS);
    const bool last = flow->ended && left <= BLOCK_KEYS;
    //@end
    // clang-format off
    const struct request request = {
        count | (last ? LAST_BLOCK : 0) | (other->item.query < 0 ? ALONE : 0) |
            (group == 1 ? SECOND : 0),
        flow->start + flow->taken,
        //@if united
        tensor,
        //@else
        tensor_of(params, &flow->item),
        //@end
        flow->next};
    // clang-format on
    post_request(slot, &request);
    flow->taken += count;
    if (last) {
        const struct few_item next = flow->next;
        begin_flow(flow, flow->start + flow->entries, &next);
    }
}

/* The scanning warp: requests a block of each flow in slot. The loop over flows is unrolled, so
 * that slots in flight stay in registers. */
DEVICE void run_scan(const struct few_params *params) {
    struct ring_place slot = {0, 0};
    struct flow flows[2];
    struct work latest = first_work(&params->work);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const struct few_item item = item_of(params, &latest);
        begin_flow(&flows[i], 0, &item);
        begin_scan(params, &flows[i].scan, &latest);
        if (i == 0) {
            latest = work_after(params, &latest);
        }
    }
    while (flows[0].item.query >= 0 || flows[1].item.query >= 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (flows[i].item.query >= 0) {
                request_block(params, &flows[i], &flows[1 - i], i, &slot, &latest);
            }
        }
    }
    const struct request end = {NO_MORE, 0, {0}, {-1}};
#pragma unroll 1
    for (int team = 0; team < COPY_TEAMS; ++team) {
        post_request(&slot, &end);
    }
}

/* The part with which a tile is released, and the one with which it is filled. */
DEVICE int part_of(int tile) {
    return tile < LEADING_TILES ? LEADING_PART : (tile - LEADING_TILES) / PART_TILES;
}

DEVICE int full_part_of(int tile) {
    if (LEADING_PARTS > 0 && tile < LEADING_TILES) {
        return tile / PART_TILES;
    }
    return LEADING_PARTS + maximum(tile - LEADING_TILES, 0) / PART_TILES;
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

/* Waits until the previous block's team has found room, and then until all of this block's tiles are
 * free. */
DEVICE void wait_in_order(const struct ring_place *block, int team, int parity) {
    mbarrier_wait(barrier_at(ORDER + team), parity);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        if (!is_free_with_previous(tile)) {
            wait_free(block, tile);
        }
    }
    arrive_warp(barrier_at(ORDER + (team + 1 == COPY_TEAMS ? 0 : team + 1)), 1);
}

/* A copying thread's rows of a key block: `row` and every COPY_ROWS-th after it. Rows from `count`
 * on become zeros. */
struct block_rows {
    int word; /* the block's */
    struct few_item next;
    int row, count;
    struct key_source source;
    struct key_row rows[BLOCK_KEYS / COPY_ROWS];
    int numbers[BLOCK_KEYS / COPY_ROWS]; /* with KEY_NUMBERS */
};

/* A copying thread's number in its team. */
DEVICE u32 team_thread(void) {
    return threadIdx.x % (COPY_TEAMS > 1 ? 32 : WARPGROUP);
}

/* Advances to the team's next request or block; `size`: the ring's. */
DEVICE void advance_team(struct ring_place *place, int size) {
    if (COPY_TEAMS == 1) {
        ring_advance(place, size);
        return;
    }
    place->index += COPY_TEAMS;
    if (place->index >= size) {
        place->index -= size;
        place->parity ^= 1;
    }
}

/* Waits for the team's next request and takes it. */
DEVICE void take_request(const struct few_params *params, struct ring_place *slot,
                         struct block_rows *rows) {
    mbarrier_wait(barrier_at(READY + slot->index), slot->parity);
    const struct request request = *request_at(slot->index);
    const int *const ring = slot_ring(request.word & SECOND ? 1 : 0);
    rows->word = request.word;
    rows->next = request.next;
    rows->row = (int)(team_thread() / 8);
    rows->count = request.word & COUNT_MASK;
    rows->source = open_source(params, &request.tensor);
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / COPY_ROWS; ++i) {
        const int key = rows->row + i * COPY_ROWS;
        const int number = key < rows->count ? ring[(request.first + key) & RING_MASK] : 0;
        rows->rows[i] = find_key_row(params, &rows->source, number, rows->count > 0);
        rows->numbers[i] = number;
    }
    arrive_warp(barrier_at(TAKEN + slot->index), 1);
    advance_team(slot, REQUESTS);
}

/* Starts the copy of a tile, eight threads per row; `first`: the block's first tile in the ring. */
DEVICE void copy_tile(const struct few_params *params, const struct block_rows *rows, int first,
                      int tile) {
    const u32 thread = team_thread();
    const u32 to = shared_address((u32)(KEYS_OFFSET + ring_tile(first, tile) * KEY_TILE_BYTES) +
                                  thread / 8 * TILE_PITCH + ((thread % 8) ^ (thread / 8 % 8)) * 16);
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / COPY_ROWS; ++i) {
        const bool present = rows->row + i * COPY_ROWS < rows->count && has_chunk(tile);
        cp_async_16((to ^ (u32)(i * COPY_ROWS % 8 * 16)) + (u32)(i * COPY_ROWS * TILE_PITCH),
                    row_chunk(params, &rows->source, &rows->rows[i], tile), present ? 16 : 0);
    }
}

/* Writes a block's word and, with KEY_NUMBERS, the numbers of its rows. */
DEVICE void describe_block(const struct block_rows *rows, int index, int full) {
    if (team_thread() == 0) {
        const struct block_word word = {rows->word, rows->next};
        *block_word(index) = word;
    }
    if (KEY_NUMBERS && team_thread() % 8 == 0) {
#pragma unroll
        for (int i = 0; i < BLOCK_KEYS / COPY_ROWS; ++i) {
            block_numbers(index)[rows->row + i * COPY_ROWS] = rows->numbers[i];
        }
    }
    if (team_thread() % 8 == 0 && (KEY_NUMBERS || team_thread() == 0)) {
        mbarrier_arrive(barrier_at(full));
    }
}

/* A copying warp: copies its team's blocks. With several teams it waits until a whole block's tiles are
 * free, else for each part. */
DEVICE void run_copies(const struct few_params *params, int warp) {
    const int team = COPY_TEAMS > 1 ? warp : 0;
    struct ring_place slot = {team, 0}, block = {team, 0};
    int first = team * TILES;
    int order = team == 0; /* a parity; team 0 does not wait before its first block */
    struct block_rows rows;
    take_request(params, &slot, &rows);
    while (!(rows.word & NO_MORE)) {
        const int full = FULL + block.index * FULL_PARTS * 2 + (rows.word & SECOND ? 1 : 0);
        struct block_rows next;
        if (COPY_TEAMS > 1) {
            wait_in_order(&block, team, order);
            order ^= 1;
        }
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            if (COPY_TEAMS == 1 && tile == maximum(TILES - PART_TILES, 0)) {
                take_request(params, &slot, &next); /* usually while the copies wait for room */
            }
            if (COPY_TEAMS == 1 && !is_free_with_previous(tile)) {
                wait_free(&block, tile);
            }
            if (tile == 0) {
                describe_block(&rows, block.index, full);
            }
            copy_tile(params, &rows, first, tile);
            if (tile + 1 == TILES || full_part_of(tile + 1) != full_part_of(tile)) {
                cp_async_arrive_noinc(barrier_at(full + full_part_of(tile) * 2));
            }
        }
        if (COPY_TEAMS > 1) {
            take_request(params, &slot, &next); /* not earlier: its registers would spill */
        }
        rows = next;
        advance_team(&block, RING_BLOCKS);
        first = ring_tile(first, COPY_TEAMS * TILES);
    }
    cp_async_wait_all();
}

/* The gather's warpgroup. */
DEVICE void run_gather(const struct few_params *params) {
    registers_decrease(GATHER_REGISTERS);
    const int warp = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x % WARPGROUP / 32), 0);
    if (warp < COPY_WARPS) {
        run_copies(params, warp);
    } else if (warp == COPY_WARPS) {
        run_scan(params);
    }
}
