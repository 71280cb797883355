//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/logit.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use ptx/bulk.cuh
//@use ptx/grid.cuh
//@use ptx/mbarrier.cuh
//@use ptx/proxy.cuh
//@use ptx/redux.cuh
//@use ptx/registers.cuh
//@use ptx/shared.cuh
//@use ptx/tensor.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_fp8_ss.cuh n = GROUP_KEYS
//@use ptx/wgmma_ss.cuh n = GROUP_KEYS, ta = 0, tb = 0
//@use indexer_logits_fwd.params.h
/*
 * The lightning indexer's logits with wgmma: every query's rows against every key in its window,
 * heads added up, everything else -inf. Mathematics and shapes: include/smelt/indexer_logits.h.
 *
 * Queries are the products' rows and keys their columns:
 *
 *   D[64, GROUP_KEYS] = Q[32 queries x 2 heads, DIM] K[GROUP_KEYS, DIM]^T
 *
 * Rows come as eight queries with an even head, the same eight with the next head, and so on, so
 * that a thread's two rows of D are one query's: it adds up all heads of its query by itself, in
 * ascending order, over HEADS / 2 products (logit += weight * max(0, D)), with two weights at a
 * time and nothing exchanged. What that arithmetic costs beside running products is what binds with
 * e4m3: a weight that serves a whole row is what made it cheaper than keys as rows
 * (indexer_logits_fwd.lost.md).
 *
 * Items. 32 queries are a block, GROUPS * GROUP_KEYS keys a tile, and a block's tiles are those
 * from the first to the last that one of its windows meets. An item is a tile and a chunk of
 * blocks, as many as make the tile's keys worth loading; blocks of the chunk that do not meet it
 * are left out. Grid: one thread block a multiprocessor; items are numbered along the chunks'
 * tiles, chunk after chunk, and block b of the grid takes numbers b, b + gridDim.x, and so on:
 * neighbours are at work on the same queries, which come from memory once. Everyone counts by
 * himself, from the windows: no plan, no counter in memory.
 *
 *   producer   a warp: finds the items; the copy engine brings a tile's keys, two buffers in turn,
 *              and the queries, two heads at a time, STAGES ahead, across items
 *   filler     a warp: -inf into what no tile covers, by bulk stores
 *   math       GROUPS warpgroups, each with GROUP_KEYS of the tile's keys; all use the same
 * queries. One's arithmetic runs beside another's products
 *
 * Shared memory (offsets and sizes: the plan above). Rows are SWIZZLE bytes, ROW_BYTES of them in
 * HALVES; 8 of them are a swizzle's atom:
 *   KEYS    [KEY_BUFFERS][GROUPS][HALVES][GROUP_KEYS] rows
 *   QUERIES [STAGES][HALVES][4][2 heads][8 queries] rows
 *   LOWEST  FILL_BYTES of -inf, what the filler stores
 *   WORDS   [STAGES] struct block_word: which block and tile begin with this stage
 *
 * Barriers (parity counts uses; stages and buffers are used in turn):
 *   barrier        count       who arrives                            who waits
 *   FULL[s]        1           producer, with the bytes of the boxes  math
 *   EMPTY[s]       4 * GROUPS  math: warps, product complete          producer
 *   KEYS_FULL[b]   1           producer, with the bytes of the boxes  math, at an item's first
 * block KEYS_EMPTY[b]  4 * GROUPS  math: warps, last product complete     producer (Counts are of
 * warps where warps arrive: common/warp_arrival.cuh.)
 *
 * Knobs: GROUPS, GROUP_KEYS, STAGES; legal values and the rule that picks them:
 * src/codegen/families/indexer_logits_fwd_sm90.c.
 */

enum {
    ALL_LANES = -1,
    WARPGROUP = 128,   /* threads */
    PRODUCER_WARP = 0, /* of the warpgroup after the math's */
    FILLER_WARP = 1,
    ROWS = 64, /* of a product: BLOCK_QUERIES queries and two heads */
    ATOM_ROWS = 8,
    OCTETS = BLOCK_QUERIES / ATOM_ROWS,
    BATCH = 32, /* blocks whose windows the producer looks at together: a lane each */
    PAIRS = (HEADS + 1) / 2,
    ELEMENT_BYTES = FP8 ? 1 : 2,
    HALVES = ROW_BYTES / SWIZZLE,
    STEP_BYTES = 32, /* of a row in one product */
    STEPS = ROW_BYTES / STEP_BYTES,
    HALF_STEPS = SWIZZLE / STEP_BYTES,
    QUERY_HALF_BYTES = ROWS * SWIZZLE,
    QUERY_BYTES = HALVES * QUERY_HALF_BYTES,
    KEY_HALF_BYTES = GROUP_KEYS * SWIZZLE,
    KEY_BYTES = HALVES * KEY_HALF_BYTES,
    TILE_BYTES = GROUPS * KEY_BYTES,
    VALUES = GROUP_KEYS / 2, /* of D, a thread's */
    SUMS = GROUP_KEYS / 4    /* keys of a thread */
};

/* Places in BARRIERS. */
enum {
    FULL = 0,
    EMPTY = FULL + STAGES,
    KEYS_FULL = EMPTY + STAGES,
    KEYS_EMPTY = KEYS_FULL + KEY_BUFFERS
};

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

/* What begins with a stage: a block's first two heads, against the keys of a tile. */
struct block_word {
    int query, key; /* the first ones; query -1: nothing more */
    int flags;
    int unused;
};
enum { NEW_KEYS = 1, LAST_BLOCK = 2 }; /* of an item */

DEVICE struct block_word *block_word(int stage) {
    return (struct block_word *)(arena + WORDS_OFFSET) + stage;
}

DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), 1);
            mbarrier_init(barrier_at(EMPTY + stage), 4 * GROUPS * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < KEY_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(KEYS_FULL + buffer), 1);
            mbarrier_init(barrier_at(KEYS_EMPTY + buffer), 4 * GROUPS * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    for (int i = (int)threadIdx.x; i < FILL_BYTES / 4; i += THREADS) {
        ((float *)(arena + LOWEST_OFFSET))[i] = LOWEST_LOGIT;
    }
    fence_proxy_async();
    __syncthreads();
}

/* ---- windows --------------------------------------------------------------------------------- */

#define NO_KEY 0x7fffffff /* where an empty range begins; it ends at 0 */

DEVICE struct key_range empty_range(void) {
    const struct key_range range = {NO_KEY, 0};
    return range;
}

DEVICE struct key_range query_window(const struct indexer_logits_fwd_params *params, int query) {
    if (query < params->tokens) {
        const int begin = params->window_begin[query], end = params->window_end[query];
        const struct key_range window = window_among(begin, end, 0, params->rows);
        if (window.begin < window.end && has_keys(begin, end, params->rows, params->least)) {
            return window;
        }
    }
    return empty_range();
}

DEVICE int block_count(const struct indexer_logits_fwd_params *params) {
    return (params->tokens - 1) / BLOCK_QUERIES + 1;
}

/* From the first to the last key in the windows of a block. By whole warps, a lane a query. */
DEVICE struct key_range block_range(const struct indexer_logits_fwd_params *params, int block) {
    const int query = block * BLOCK_QUERIES + (int)threadIdx.x % 32;
    struct key_range range =
        block < block_count(params) ? query_window(params, query) : empty_range();
    range.begin = (int)warp_reduce_min((u32)range.begin);
    range.end = (int)warp_reduce_max((u32)range.end);
    return range;
}

/* Tiles that a range meets: numbers first <= tile < last. */
DEVICE int first_tile(const struct key_range *range) {
    return range->end > 0 ? range->begin / BLOCK_KEYS : 0;
}

DEVICE int last_tile(const struct key_range *range) {
    return range->end > 0 ? (range->end - 1) / BLOCK_KEYS + 1 : 0;
}

/* ---- producer -------------------------------------------------------------------------------- */

/* The blocks that the producer looks at together, a lane each: their chunks' tiles, counted by each
 * chunk's first lane (the others have none). */
struct batch {
    int first;              /* block, lane 0's */
    struct key_range range; /* of this lane's block */
    int tile;               /* the chunk's first */
    int tiles, before;      /* of the chunk; of the chunks before it in the batch */
    int total;              /* of the batch */
};

/* How many blocks a chunk has: as many as are worth a tile's keys, but fewer when there would be
 * too few items. */
DEVICE int chunk_blocks(const struct indexer_logits_fwd_params *params) {
    const i64 tiles = (params->rows - 1) / BLOCK_KEYS + 1;
    int blocks = CHUNK_BLOCKS;
    while (blocks > 1 && block_count(params) * tiles < (i64)ITEMS_EACH * blocks * gridDim.x) {
        blocks /= 2;
    }
    return blocks;
}

DEVICE void look_at_batch(struct batch *batch, const struct indexer_logits_fwd_params *params,
                          int first, int chunk) {
    const int lane = (int)threadIdx.x % 32;
    batch->first = first;
    batch->range = empty_range();
#pragma unroll 4
    for (int i = 0; i < BATCH; ++i) {
        const struct key_range range = block_range(params, first + i);
        if (lane == i) {
            batch->range = range;
        }
    }
    struct key_range all = batch->range;
    for (int i = 1; i < chunk; i *= 2) {
        all.begin = minimum(all.begin, __shfl_xor_sync((u32)ALL_LANES, all.begin, i));
        all.end = maximum(all.end, __shfl_xor_sync((u32)ALL_LANES, all.end, i));
    }
    batch->tile = first_tile(&all);
    batch->tiles = lane % chunk == 0 ? last_tile(&all) - batch->tile : 0;
    int sum = batch->tiles;
    for (int i = 1; i < 32; i *= 2) {
        const int below = __shfl_up_sync((u32)ALL_LANES, sum, i);
        sum += lane >= i ? below : 0;
    }
    batch->before = sum - batch->tiles;
    batch->total = __shfl_sync((u32)ALL_LANES, sum, 31);
}

/* Brings a tile's keys into a buffer, when it is free. */
DEVICE void load_keys(const struct indexer_logits_fwd_params *params,
                      const struct ring_place *buffer, int key) {
    const u32 full = barrier_at(KEYS_FULL + buffer->index);
    mbarrier_wait(barrier_at(KEYS_EMPTY + buffer->index), buffer->parity ^ 1);
    mbarrier_arrive_expect(full, TILE_BYTES);
    u32 to = shared_address((u32)(KEYS_OFFSET + buffer->index * TILE_BYTES));
    for (int group = 0; group < GROUPS; ++group) {
        for (int half = 0; half < HALVES; ++half) {
            tensor_load_2d(to, &params->k_map, full, half * SWIZZLE / ELEMENT_BYTES,
                           key + group * GROUP_KEYS);
            to += KEY_HALF_BYTES;
        }
    }
}

/* Brings the queries of a block, two heads a stage, when each stage is free. */
DEVICE void load_block(const struct indexer_logits_fwd_params *params, struct ring_place *stage,
                       const struct block_word *word) {
#pragma unroll 1
    for (int pair = 0; pair < PAIRS; ++pair) {
        const u32 full = barrier_at(FULL + stage->index);
        mbarrier_wait(barrier_at(EMPTY + stage->index), stage->parity ^ 1);
        if (pair == 0) {
            *block_word(stage->index) = *word;
        }
        mbarrier_arrive_expect(full, QUERY_BYTES);
        u32 to = shared_address((u32)(QUERIES_OFFSET + stage->index * QUERY_BYTES));
        for (int half = 0; half < HALVES; ++half) {
            for (int octet = 0; octet < OCTETS; ++octet) {
                tensor_load_3d(to, &params->q_map, full, half * SWIZZLE / ELEMENT_BYTES,
                               word->query + octet * ATOM_ROWS, 2 * pair);
                to += 2 * ATOM_ROWS * SWIZZLE;
            }
        }
        ring_advance(stage, STAGES);
    }
}

/* Brings an item: a tile's keys, and of the batch's blocks `active`, a bit each. By one thread. */
DEVICE void load_item(const struct indexer_logits_fwd_params *params, struct ring_place *stage,
                      const struct ring_place *buffer, int first_block, u32 active, int key) {
    struct block_word word = {0, key, NEW_KEYS, 0};
    load_keys(params, buffer, key);
    while (active) {
        word.query = (first_block + __ffs((int)active) - 1) * BLOCK_QUERIES;
        active &= active - 1;
        word.flags |= active ? 0 : LAST_BLOCK;
        load_block(params, stage, &word);
        word.flags = 0;
    }
}

DEVICE void run_producer(const struct indexer_logits_fwd_params *params) {
    const int lane = (int)threadIdx.x % 32, chunk = chunk_blocks(params);
    const int blocks = block_count(params);
    struct ring_place stage = {0, 0}, buffer = {0, 0}; /* the first is lane 0's alone */
    int wanted = (int)blockIdx.x; /* number of the next item, counted from the batch's first */
    for (int first = 0; first < blocks; first += BATCH) {
        struct batch batch;
        look_at_batch(&batch, params, first, chunk);
        for (; wanted < batch.total; wanted += (int)gridDim.x) {
            const int tile = wanted - batch.before; /* of this lane's chunk */
            const bool mine = tile >= 0 && tile < batch.tiles;
            const int leader = __ffs((int)__ballot_sync((u32)ALL_LANES, mine)) - 1;
            const int key = __shfl_sync((u32)ALL_LANES, batch.tile + tile, leader) * BLOCK_KEYS;
            const u32 active = __ballot_sync(
                (u32)ALL_LANES, lane / chunk == leader / chunk && batch.range.end > key &&
                                    batch.range.begin - key < BLOCK_KEYS);
            if (active) { /* else between the windows of the chunk's blocks */
                if (lane == 0) {
                    load_item(params, &stage, &buffer, first, active, key);
                }
                ring_advance(&buffer, KEY_BUFFERS);
            }
            __syncwarp((u32)ALL_LANES);
        }
        wanted -= batch.total;
    }
    if (lane == 0) {
        const struct block_word nothing = {-1, 0, 0, 0};
        mbarrier_wait(barrier_at(EMPTY + stage.index), stage.parity ^ 1);
        *block_word(stage.index) = nothing;
        mbarrier_arrive(barrier_at(FULL + stage.index));
    }
}

/* ---- filler ---------------------------------------------------------------------------------- */

/* -inf into a run of logits; by one thread. */
DEVICE void fill_run(float *from, float *to) {
    for (; from < to && (u64)from % 16 != 0; ++from) {
        *from = LOWEST_LOGIT;
    }
    for (; from < to && (u64)to % 16 != 0; --to) {
        to[-1] = LOWEST_LOGIT;
    }
    while (from < to) {
        const i64 left = (i64)(to - from) * 4;
        const u32 bytes = left < FILL_BYTES ? (u32)left : FILL_BYTES;
        bulk_store(from, shared_address(LOWEST_OFFSET), bytes);
        bulk_commit();
        bulk_wait_read_2();
        from += bytes / 4;
    }
}

/* -inf into what the tiles of every gridDim.x-th block leave out. */
DEVICE void run_filler(const struct indexer_logits_fwd_params *params) {
    const int blocks = block_count(params);
    for (int block = (int)blockIdx.x; block < blocks; block += (int)gridDim.x) {
        const struct key_range range = block_range(params, block);
        const i64 first = (i64)first_tile(&range) * BLOCK_KEYS;
        const i64 last = (i64)last_tile(&range) * BLOCK_KEYS;
        const int queries = minimum(params->tokens - block * BLOCK_QUERIES, BLOCK_QUERIES);
        if (threadIdx.x % 32 == 0) {
            for (int i = 0; i < queries; ++i) {
                float *const row =
                    params->logits + (block * (i64)BLOCK_QUERIES + i) * params->logits_token_stride;
                fill_run(row, row + first);
                fill_run(row + last, row + params->rows);
            }
        }
        __syncwarp((u32)ALL_LANES);
    }
    bulk_wait_read_0();
}

/* ---- math ------------------------------------------------------------------------------------ */

/* What a thread is at: its query and the first of its keys in the tile. */
struct cursor {
    int query, key;
    struct key_range window;
    const float *weights; /* of the query */
    float next[2];        /* those of the next two heads */
};

/* Issues D of two heads of a block. */
DEVICE void issue_product(float *d, u64 queries, u64 keys) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
        const int half = k / HALF_STEPS, step = k % HALF_STEPS * STEP_BYTES;
        const u64 a = descriptor_advance(queries, (u32)(half * QUERY_HALF_BYTES + step));
        const u64 b = descriptor_advance(keys, (u32)(half * KEY_HALF_BYTES + step));
        //@for n in GROUP_KEYS..GROUP_KEYS + 1
        if (FP8) {
            wgmma_fp8_ss_n$n(d, a, b, k > 0);
        } else {
            wgmma_ss_n${n}_t00(d, a, b, k > 0);
        }
        //@end
    }
    wgmma_commit();
}

/*
 * A head added to the sums, D's columns in order. e4m3's products are so much faster than bf16's
 * that the maximum would bind, which runs at half the rate: x + |x| is twice max(0, x), exactly,
 * for no x is above 128 * 448^2. So are all sums then, until they are written.
 */
DEVICE void add_row(float *sums, float weight, const float *d) {
#pragma unroll
    for (int j = 0; j < SUMS; ++j) {
        const float x = d[j / 2 * 4 + j % 2];
        sums[j] = FP8 ? fmaf(weight, x + fabsf(x), sums[j]) : add_head(sums[j], weight, x);
    }
}

/* The number, among those of a tile's part, of this thread's key j. */
DEVICE int key_offset(int j) {
    return j / 2 * 8 + j % 2;
}

DEVICE float scaled(const struct indexer_logits_fwd_params *params, float sum, int key) {
    return canonical_logit(FP8 ? sum * (0.5f * __ldg(params->k_scale + key)) : sum);
}

/* Writes the sums where all keys are in the window, two neighbours at once. */
DEVICE void write_inner(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                        float *to, const float *sums) {
    float logits[SUMS];
#pragma unroll
    for (int j = 0; j < SUMS; ++j) {
        logits[j] = scaled(params, sums[j], at->key + key_offset(j));
    }
#pragma unroll
    for (int j = 0; j < SUMS; j += 2) {
        const float2 two = {logits[j], logits[j + 1]};
        *(float2 *)(to + key_offset(j)) = two;
    }
}

/* The same where some are not, or a row begins at an odd place. */
DEVICE void write_outer(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                        float *to, const float *sums) {
#pragma unroll
    for (int j = 0; j < SUMS; ++j) {
        const int offset = key_offset(j), left = params->rows - at->key;
        if (offset < left) {
            const int key = at->key + offset;
            const bool inside = key >= at->window.begin && key < at->window.end;
            to[offset] = inside ? scaled(params, sums[j], key) : LOWEST_LOGIT;
        }
    }
}

DEVICE void write_logits(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                         const float *sums) {
    if (at->query >= params->tokens) {
        return;
    }
    float *const to = params->logits + at->query * params->logits_token_stride + at->key;
    if ((u64)to % 8 == 0 && at->window.begin <= at->key && at->window.end - at->key >= GROUP_KEYS) {
        write_inner(params, at, to, sums);
    } else {
        write_outer(params, at, to, sums);
    }
}

DEVICE void load_weights(struct cursor *at, int pair) {
    at->next[0] = __ldg(at->weights + 2 * pair);
    at->next[1] = 2 * pair + 1 < HEADS ? __ldg(at->weights + 2 * pair + 1) : 0.0f;
}

/* The block that begins with a stage, which has landed, and this thread's place in it. */
DEVICE struct block_word begin_block(struct cursor *at,
                                     const struct indexer_logits_fwd_params *params, int stage,
                                     int group) {
    const struct block_word word = *block_word(stage);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WARPGROUP / 32;
    if (word.query >= 0) {
        at->query = word.query + warp * ATOM_ROWS + lane / 4;
        at->key = word.key + group * GROUP_KEYS + lane % 4 * 2;
        at->window = query_window(params, at->query);
        at->weights =
            params->weights + minimum(at->query, params->tokens - 1) * params->weights_token_stride;
        load_weights(at, 0);
    }
    return word;
}

/* The sums of a block; its first stage has landed. */
DEVICE void add_heads(float *sums, struct cursor *at, struct ring_place *stage, u64 queries,
                      u64 keys) {
#pragma unroll
    for (int j = 0; j < SUMS; ++j) {
        sums[j] = 0.0f;
    }
#pragma unroll 1
    for (int pair = 0; pair < PAIRS; ++pair) {
        float d[VALUES];
        const int index = stage->index;
        if (pair > 0) {
            mbarrier_wait(barrier_at(FULL + index), stage->parity);
        }
        issue_product(d, descriptor_advance(queries, (u32)(index * QUERY_BYTES)), keys);
        const float even = at->next[0], odd = at->next[1];
        if (pair + 1 < PAIRS) {
            load_weights(at, pair + 1);
        }
        ring_advance(stage, STAGES);
        wgmma_wait_0();
        arrive_warp(barrier_at(EMPTY + index), 1);
        add_row(sums, even, d);
        if (HEADS % 2 == 0 || pair + 1 < PAIRS) {
            add_row(sums, odd, d + 2);
        }
    }
}

DEVICE void run_math(const struct indexer_logits_fwd_params *params, int group) {
    const u64 queries =
        shared_descriptor(shared_address(QUERIES_OFFSET), 16, ATOM_ROWS * SWIZZLE, SWIZZLE);
    const u64 keys = shared_descriptor(shared_address((u32)(KEYS_OFFSET + group * KEY_BYTES)), 16,
                                       ATOM_ROWS * SWIZZLE, SWIZZLE);
    struct ring_place stage = {0, 0}, buffer = {0, 0};
    struct cursor at;
    float sums[SUMS];
    for (;;) {
        mbarrier_wait(barrier_at(FULL + stage.index), stage.parity);
        const struct block_word word = begin_block(&at, params, stage.index, group);
        if (word.query < 0) {
            return;
        }
        if (word.flags & NEW_KEYS) {
            mbarrier_wait(barrier_at(KEYS_FULL + buffer.index), buffer.parity);
        }
        add_heads(sums, &at, &stage, queries,
                  descriptor_advance(keys, (u32)(buffer.index * TILE_BYTES)));
        if (word.flags & LAST_BLOCK) {
            arrive_warp(barrier_at(KEYS_EMPTY + buffer.index), 1);
            ring_advance(&buffer, KEY_BUFFERS);
        }
        write_logits(params, &at, sums);
    }
}

KERNEL void __launch_bounds__(THREADS, 1)
    KERNEL_NAME(const __grid_constant__ struct indexer_logits_fwd_params params) {
    initialise();
    if (params.early) {
        grid_wait();
    }
    const int group = __shfl_sync((u32)ALL_LANES, (int)threadIdx.x / WARPGROUP, 0);
    if (group < GROUPS) {
        registers_increase(MATH_REGISTERS);
        run_math(&params, group);
    } else {
        registers_decrease(OTHER_REGISTERS);
        const int warp = (int)threadIdx.x % WARPGROUP / 32;
        if (warp == PRODUCER_WARP) {
            run_producer(&params);
        } else if (warp == FILLER_WARP && params.fills) {
            run_filler(&params);
        }
    }
}
