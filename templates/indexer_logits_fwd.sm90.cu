//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/logit.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use ptx/bulk.cuh
//@use ptx/grid.cuh
//@use ptx/mbarrier.cuh
//@use ptx/policy.cuh
//@use ptx/proxy.cuh
//@use ptx/redux.cuh
//@use ptx/registers.cuh
//@use ptx/shared.cuh
//@use ptx/tensor.cuh
//@use ptx/thread.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_fp8_ss.cuh n = PART_COLUMNS
//@use ptx/wgmma_ss.cuh n = PART_COLUMNS, ta = 0, tb = 0
//@use indexer_logits_fwd.params.h
/*
 * The lightning indexer's logits with wgmma: every query's rows against every key in its window,
 * heads added up, everything else -inf. Mathematics and shapes: include/smelt/indexer_logits.h.
 *
 * Keys are the products' rows, and a block's queries with all their heads the columns:
 *
 *   D[64 keys, PART_COLUMNS] = K[64, DIM] Q[PART_COLUMNS of 4 * SETS queries x PADDED_HEADS, DIM]^T
 *
 * in PARTS. Four queries are a set, whose columns come by eights: queries 0 to 3, heads 2 i and
 * 2 i + 1 of each. A thread's columns of D are 8 j + 2 c and the next, c = lane % 4: all of them
 * are query c's. So it adds up the heads of a query by itself, even and odd ones apart, in
 * ascending order, and exchanges nothing; Q comes in that order by boxes of 4 queries and 2 heads,
 * or, where there are pairs of heads, of 4 queries and all pairs. Columns of heads from HEADS up to
 * PADDED_HEADS are zeros that are not added.
 *
 * Work. 64 keys are a slab; a block's slabs are those from the first to the last that one of its
 * windows meets. All blocks' slabs in a row, each block dearer by BLOCK_START slabs, are cut into
 * as many equal runs as the grid has thread blocks, one a multiprocessor. Every thread block finds
 * its own run from the windows when it begins (find_run): there is no plan in memory.
 *
 *   queries    a warp: a block's weights and windows; the copy engine brings its queries,
 *              QUERY_BUFFERS blocks in turn
 *   keys       a warp: the copy engine brings slabs of keys, STAGES ahead, across blocks
 *   filler     a warp: -inf into what no slab covers, by bulk stores
 *   math       GROUPS warpgroups, which take slabs in turn: the arithmetic of one runs beside the
 *              products of the others
 *
 * What binds is the register file: products of e4m3 read and write their accumulators so often that
 * an addition or a multiplication beside them costs about as many cycles as it reads registers
 * (indexer_logits_fwd.lost.md).
 *
 * Shared memory (offsets and sizes: the plan above). Rows are SWIZZLE bytes, ROW_BYTES of them in
 * HALVES; 8 of them are a swizzle's atom:
 *   QUERIES [QUERY_BUFFERS][HALVES][COLUMNS] rows
 *   KEYS    [STAGES][HALVES][64] rows
 *   LOWEST  FILL_BYTES of -inf, what the filler stores
 *   WEIGHTS [QUERY_BUFFERS][BLOCK_QUERIES][PADDED_HEADS] fp32
 *   WINDOWS [QUERY_BUFFERS][BLOCK_QUERIES] struct key_range
 *   RUNS    [QUERY_BUFFERS] struct run: the block's slabs that are this thread block's
 *   COSTS   [COARSE + 2 * 34] i64: of blocks, COARSE groups of them; find_run
 *
 * Barriers (parity counts uses; stages and buffers are used in turn):
 *   barrier        count       who arrives                                  who waits
 *   FULL[s]        1           keys, with the bytes of the boxes            math, one group
 *   EMPTY[s]       4           math: warps of that group, product complete  keys
 *   QUERY_FULL[b]  1           queries, with the bytes; weights, windows    math
 *                              and run are there
 *   QUERY_EMPTY[b] 4 * GROUPS  math: warps, done with the block             queries
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 *
 * Knobs: GROUPS, and the most columns of a product; legal values and the rule that picks them:
 * src/codegen/families/indexer_logits_fwd_sm90.c.
 */

enum {
    ALL_LANES = -1,
    WARPGROUP = 128, /* threads */
    KEY_WARP = 0,    /* of the warpgroup after the math's */
    QUERY_WARP = 1,
    FILLER_WARP = 2,
    SLAB = BLOCK_KEYS, /* rows of a product */
    ATOM_ROWS = 8,
    SET_QUERIES = 4,
    BATCH_QUERIES = 32, /* whose windows a warp looks at together, a lane each */
    SETS = BLOCK_QUERIES / SET_QUERIES,
    SET_EIGHTS = PADDED_HEADS / 2, /* eights of columns */
    EIGHTS = SETS * SET_EIGHTS,
    COLUMNS = 8 * EIGHTS,
    PARTS = COLUMNS / PART_COLUMNS,
    PART_EIGHTS = EIGHTS / PARTS,
    ELEMENT_BYTES = FP8 ? 1 : 2,
    HALVES = ROW_BYTES / SWIZZLE,
    STEP_BYTES = 32, /* of a row in one product */
    STEPS = ROW_BYTES / STEP_BYTES,
    HALF_STEPS = SWIZZLE / STEP_BYTES,
    QUERY_HALF_BYTES = COLUMNS * SWIZZLE,
    QUERY_BYTES = HALVES * QUERY_HALF_BYTES,
    KEY_HALF_BYTES = SLAB * SWIZZLE,
    KEY_BYTES = HALVES * KEY_HALF_BYTES,
    PART_SETS = PART_EIGHTS / SET_EIGHTS + 1,               /* that end in a part, at most */
    VALUES = PART_COLUMNS / 2,                              /* of D, a thread's */
    WEIGHTS_PARTS = EIGHTS * 2 <= MOST_WEIGHTS ? PARTS : 1, /* whose weights a thread holds */
    HELD_WEIGHTS = WEIGHTS_PARTS * PART_EIGHTS * 2
};

/* Places in BARRIERS. */
enum {
    FULL = 0,
    EMPTY = FULL + STAGES,
    QUERY_FULL = EMPTY + STAGES,
    QUERY_EMPTY = QUERY_FULL + QUERY_BUFFERS
};

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

/* What a thread block does of a block of queries. */
struct run {
    int query, key; /* the first ones */
    int slabs;      /* 0: nothing more, no block at all */
    int inner;      /* keys inner <= k < outer are in the windows of all its queries */
    int outer;
    int unused;
};

DEVICE struct run *run_at(int buffer) {
    return (struct run *)(arena + RUNS_OFFSET) + buffer;
}

DEVICE float *weights_at(int buffer) {
    return (float *)(arena + WEIGHTS_OFFSET) + buffer * (BLOCK_QUERIES * PADDED_HEADS);
}

DEVICE struct key_range *windows_at(int buffer) {
    return (struct key_range *)(arena + WINDOWS_OFFSET) + buffer * BLOCK_QUERIES;
}

DEVICE i64 *costs(void) {
    return (i64 *)(arena + COSTS_OFFSET);
}

DEVICE void initialise(const struct indexer_logits_fwd_params *params) {
    if (threadIdx.x == 0) {
        tensor_prefetch(&params->q_map);
        tensor_prefetch(&params->k_map);
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), 1);
            mbarrier_init(barrier_at(EMPTY + stage), 4 * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < QUERY_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(QUERY_FULL + buffer), WARP_ARRIVALS);
            mbarrier_init(barrier_at(QUERY_EMPTY + buffer), 4 * GROUPS * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    for (int i = (int)threadIdx.x; i < FILL_BYTES / 4; i += THREADS) {
        ((float *)(arena + LOWEST_OFFSET))[i] = LOWEST_LOGIT;
    }
    fence_proxy_async();
}

/* ---- windows and what they cost -------------------------------------------------------------- */

DEVICE int batch_count(const struct indexer_logits_fwd_params *params) {
    return (params->tokens - 1) / BATCH_QUERIES + 1;
}

/* The query of this lane in a batch; tokens or more: none. */
DEVICE int lane_query(int batch) {
    return (int)((u32)batch * BATCH_QUERIES + threadIdx.x % 32);
}

/* A query's window, { rows, 0 } when it is empty or does not count, or there is no such query. */
DEVICE struct key_range query_window(const struct indexer_logits_fwd_params *params, int query) {
    struct key_range window = {params->rows, 0};
    if (query >= 0 && query < params->tokens) {
        const int begin = __ldg(params->window_begin + query);
        const int end = __ldg(params->window_end + query);
        const struct key_range among = window_among(begin, end, 0, params->rows);
        if (among.begin < among.end && has_keys(begin, end, params->rows, params->least)) {
            window = among;
        }
    }
    return window;
}

/* The slabs of a block: numbers begin <= slab < end; of the lanes' windows of its queries. */
DEVICE struct key_range block_slabs(const struct key_range *window) {
    struct key_range keys = *window;
#pragma unroll
    for (int i = 1; i < BLOCK_QUERIES; i *= 2) {
        keys.begin = minimum(keys.begin, __shfl_xor_sync((u32)ALL_LANES, keys.begin, i));
        keys.end = maximum(keys.end, __shfl_xor_sync((u32)ALL_LANES, keys.end, i));
    }
    const struct key_range slabs = {keys.begin / SLAB,
                                    keys.end > 0 ? (keys.end - 1) / SLAB + 1 : 0};
    const struct key_range none = {0, 0};
    return slabs.begin < slabs.end ? slabs : none;
}

/* Of a block, in slabs; that of its first lane, 0 of the others. */
DEVICE int block_cost(const struct key_range *slabs) {
    const int count = slabs->end - slabs->begin;
    return threadIdx.x % BLOCK_QUERIES == 0 && count > 0 ? count + BLOCK_START : 0;
}

/* Batches of a group: as many as COARSE groups need, at least those whose windows are loaded at
 * once.
 */
DEVICE int group_batches(const struct indexer_logits_fwd_params *params) {
    return (batch_count(params) - 1) / (COARSE * TOGETHER) * TOGETHER + TOGETHER;
}

/* The cost of TOGETHER batches. By whole warps. */
DEVICE i64 batches_cost(const struct indexer_logits_fwd_params *params, int first) {
    struct key_range windows[TOGETHER];
    i64 cost = 0;
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
        windows[i] = query_window(params, lane_query(minimum(first, batch_count(params)) + i));
    }
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
        const struct key_range slabs = block_slabs(&windows[i]);
        cost += warp_reduce_add((u32)block_cost(&slabs));
    }
    return cost;
}

/* Writes the costs of groups of batches. By the whole thread block, which then meets. */
DEVICE void count_costs(const struct indexer_logits_fwd_params *params) {
    const int batches = group_batches(params);
#pragma unroll 1
    for (int group = (int)threadIdx.x / 32; group < COARSE; group += THREADS / 32) {
        const i64 first = (i64)group * batches;
        i64 cost = 0;
        if (first < batch_count(params)) {
#pragma unroll 1
            for (int i = 0; i < batches; i += TOGETHER) {
                cost += batches_cost(params, (int)first + i);
            }
        }
        if (threadIdx.x % 32 == 0) {
            costs()[group] = cost;
        }
    }
}

/* Where a thread block's run begins and ends, counted in slabs from the beginning of a batch. */
struct place {
    i64 begin, end;
    int batch;
};

/* Places in COSTS behind the groups': what a producer's warp keeps there, the sums of 32 parts of
 * the groups, then where its run begins. */
enum {
    QUERY_FOUND = COARSE,
    KEY_FOUND = QUERY_FOUND + 34,
};

/* This thread block's. By a warp, once all costs stand there; `own`: its place. */
DEVICE struct place find_run(const struct indexer_logits_fwd_params *params, int own) {
    enum { EACH = COARSE / 32 };
    const int lane = (int)threadIdx.x % 32;
    i64 *const sums = costs() + own, *const found = sums + 32;
    i64 mine = 0, before = 0, total = 0;
#pragma unroll 2
    for (int i = 0; i < EACH; ++i) {
        mine += costs()[lane * EACH + i];
    }
    sums[lane] = mine;
    __syncwarp((u32)ALL_LANES);
#pragma unroll 4
    for (int i = 0; i < 32; ++i) {
        before += i < lane ? sums[i] : 0;
        total += sums[i];
    }
    const i64 begin = total * blockIdx.x / gridDim.x;
    if (begin >= before && begin < before + mine) {
        int group = lane * EACH;
        while (begin >= before + costs()[group]) {
            before += costs()[group++];
        }
        found[0] = begin - before;
        found[1] = group;
    }
    __syncwarp((u32)ALL_LANES);
    struct place place = {0, 0, 0};
    if (total > 0) {
        place.begin = found[0];
        place.end = place.begin + total * (blockIdx.x + 1) / gridDim.x - begin;
        place.batch = (int)found[1] * group_batches(params);
    }
    return place;
}

/* ---- producer -------------------------------------------------------------------------------- */

/* What a lane knows of its block, in a batch. */
struct lane_block {
    struct key_range window; /* of the lane's query */
    struct run run;
};

/* The runs of a batch's blocks, each with its first lane; others have no slabs. Moves the place on
 * to the next batch. */
DEVICE void look_at_batch(struct lane_block *block, const struct indexer_logits_fwd_params *params,
                          struct place *place) {
    const int lane = (int)threadIdx.x % 32, query = lane_query(place->batch);
    block->window = query_window(params, query);
    const bool present = query < params->tokens;
    block->run.inner = present ? block->window.begin : 0;
    block->run.outer = present ? block->window.end : params->rows;
#pragma unroll
    for (int i = 1; i < BLOCK_QUERIES; i *= 2) {
        block->run.inner =
            maximum(block->run.inner, __shfl_xor_sync((u32)ALL_LANES, block->run.inner, i));
        block->run.outer =
            minimum(block->run.outer, __shfl_xor_sync((u32)ALL_LANES, block->run.outer, i));
    }
    const struct key_range slabs = block_slabs(&block->window);
    const int cost = block_cost(&slabs);
    int sum = cost;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        const int below = __shfl_up_sync((u32)ALL_LANES, sum, i);
        sum += lane >= i ? below : 0;
    }
    const i64 first = (i64)(sum - cost) + BLOCK_START; /* where the block's first slab stands */
    const i64 begin = place->begin > first ? place->begin - first : 0;
    const i64 count = slabs.end - slabs.begin, limit = place->end - first;
    const i64 end = limit < count ? limit : count;
    block->run.query = query;
    block->run.key = (slabs.begin + (int)begin) * SLAB;
    block->run.slabs = cost > 0 && end > begin ? (int)(end - begin) : 0;
    const int total = __shfl_sync((u32)ALL_LANES, sum, 31);
    place->begin -= total;
    place->end -= total;
    ++place->batch;
}

/* Starts the copy of a block's queries; by one thread. Boxes of few rows take the copy engine about
 * as long as large ones, and a number of heads that is odd has no larger ones: behind the last head
 * of a pair would be another query's. */
DEVICE void load_queries(const struct indexer_logits_fwd_params *params, int query, int buffer,
                         u32 full) {
    const u64 policy = policy_evict_first(); /* one thread block's, or a few in a row */
    u32 to = shared_address((u32)(QUERIES_OFFSET + buffer * QUERY_BYTES));
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

/* Writes what the math needs to know of a run, and starts the copy of its queries. `lane_block`:
 * this lane's; `leader`: the block's first lane. */
DEVICE void begin_run(const struct indexer_logits_fwd_params *params, const struct run *run,
                      const struct key_range *window, int leader, int buffer) {
    const int lane = (int)thread_number() % 32; /* what follows from it is computed anew */
    const u32 full = barrier_at(QUERY_FULL + buffer);
    if (lane == 0) {
        *run_at(buffer) = *run;
        mbarrier_expect(full, QUERY_BYTES);
        load_queries(params, run->query, buffer, full);
    }
#pragma unroll 4
    for (int i = lane; i < BLOCK_QUERIES * PADDED_HEADS; i += 32) {
        const int query = run->query + i / PADDED_HEADS, head = i % PADDED_HEADS;
        weights_at(buffer)[i] =
            head < HEADS && query < params->tokens
                ? __ldg(params->weights + query * params->weights_token_stride + head)
                : 0.0f;
    }
    if (lane >= leader && lane < leader + BLOCK_QUERIES) {
        windows_at(buffer)[lane - leader] = *window;
    }
    arrive_warp(full, 1);
}

/* Brings the slabs of a run, each when its stage is free. By one thread. */
DEVICE void load_slabs(const struct indexer_logits_fwd_params *params, const struct run *run,
                       struct ring_place *stage) {
#pragma unroll 1
    for (int slab = 0; slab < run->slabs; ++slab) {
        const u32 full = barrier_at(FULL + stage->index);
        mbarrier_wait(barrier_at(EMPTY + stage->index), stage->parity ^ 1);
        mbarrier_arrive_expect(full, KEY_BYTES);
        for (int half = 0; half < HALVES; ++half) {
            tensor_load_2d(shared_address((u32)(KEYS_OFFSET + stage->index * KEY_BYTES +
                                                half * KEY_HALF_BYTES)),
                           &params->k_map, full, half * SWIZZLE / ELEMENT_BYTES,
                           run->key + slab * SLAB);
        }
        ring_advance(stage, STAGES);
    }
}

/* One of the two warps that bring things: blocks' queries with what belongs to them, or slabs of
 * keys. Each finds the runs by itself and goes ahead as far as its own buffers allow: a block's
 * beginning holds up no keys. */
DEVICE void run_producer(const struct indexer_logits_fwd_params *params, bool queries) {
    struct ring_place stage = {0, 0}, buffer = {0, 0}; /* the first is lane 0's alone */
    struct place place = find_run(params, queries ? QUERY_FOUND : KEY_FOUND);
    while (place.end > 0 && place.batch < batch_count(params)) {
        struct lane_block block;
        look_at_batch(&block, params, &place);
        u32 blocks = __ballot_sync((u32)ALL_LANES, block.run.slabs > 0);
        for (; blocks; blocks &= blocks - 1) {
            const int leader = __ffs((int)blocks) - 1;
            const struct run run = {__shfl_sync((u32)ALL_LANES, block.run.query, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.key, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.slabs, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.inner, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.outer, leader),
                                    0};
            if (queries) {
                mbarrier_wait(barrier_at(QUERY_EMPTY + buffer.index), buffer.parity ^ 1);
                begin_run(params, &run, &block.window, leader, buffer.index);
                ring_advance(&buffer, QUERY_BUFFERS);
            } else if (threadIdx.x % 32 == 0) {
                load_slabs(params, &run, &stage);
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

/* Whether the filler waits for each of its stores before the next: where the products take longer,
 * a slab of FULL_COLUMNS columns as long as a store, as measured. Faster it would hold up the
 * math's loads and stores, and end no sooner than the math. By a whole warp. */
DEVICE bool fills_slowly(const struct indexer_logits_fwd_params *params) {
    enum { EACH = COARSE / 32, FULL_COLUMNS = 256, SIXTEENTH = 4 /* bits: for a sum in 32 */ };
    const int lane = (int)threadIdx.x % 32;
    i64 mine = 0;
    for (int i = 0; i < EACH; ++i) {
        mine += costs()[lane * EACH + i];
    }
    const i64 slabs = (i64)warp_reduce_add((u32)(mine >> SIXTEENTH)) << SIXTEENTH;
    const i64 others = (i64)params->tokens * params->rows - slabs * (SLAB * BLOCK_QUERIES);
    return others / (FILL_BYTES / 4) * FULL_COLUMNS <= slabs * COLUMNS;
}

/* -inf into a run of logits; by one thread. */
DEVICE void fill(float *from, float *to, bool slowly) {
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
        if (slowly) {
            bulk_wait_0();
        } else {
            bulk_wait_read_2();
        }
        from += bytes / 4;
    }
}

/* -inf into what the slabs of every gridDim.x-th batch leave out, row by row. */
DEVICE void run_filler(const struct indexer_logits_fwd_params *params) {
    const bool slowly = fills_slowly(params);
    for (int batch = (int)blockIdx.x; batch < batch_count(params); batch += (int)gridDim.x) {
        const int query = lane_query(batch);
        const struct key_range window = query_window(params, query);
        const struct key_range slabs = block_slabs(&window);
        float *const row = params->logits + query * params->logits_token_stride;
        for (int i = 0; i < BATCH_QUERIES; ++i) {
            if ((int)threadIdx.x % 32 == i && query >= 0 && query < params->tokens) {
                fill(row, row + (i64)slabs.begin * SLAB, slowly);
                fill(row + (i64)slabs.end * SLAB, row + params->rows, slowly);
            }
            __syncwarp((u32)ALL_LANES);
        }
    }
    bulk_wait_read_0();
}

/* ---- math ------------------------------------------------------------------------------------ */

/* What a thread is at, of the slab: its query of each set is number `column` of the four. */
struct cursor {
    int buffer;  /* the block's */
    int column;  /* lane % 4 */
    int key;     /* this thread's first; the second is 8 further on */
    bool inner;  /* all keys of the slab are in the windows of all queries of the block, which are
                    all there */
    float *row;  /* of the first set's query, at the first key */
    int queries; /* that are there, from the first set's on */
    float scale[2], next_scale[2];
};

/* Issues D of a slab and a part of the columns. */
DEVICE void issue_product(float *d, u64 keys, u64 queries) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
        const int half = k / HALF_STEPS, step = k % HALF_STEPS * STEP_BYTES;
        const u64 a = descriptor_advance(keys, (u32)(half * KEY_HALF_BYTES + step));
        const u64 b = descriptor_advance(queries, (u32)(half * QUERY_HALF_BYTES + step));
        // clang-format off
        //@for n in PART_COLUMNS..PART_COLUMNS + 1
        if (FP8) {
            wgmma_fp8_ss_n$n(d, a, b, k > 0);
        } else {
            wgmma_ss_n${n}_t00(d, a, b, k > 0);
        }
        //@end
        // clang-format on
    }
    wgmma_commit();
}

/* The weights of the parts from `part` on that a thread holds: of its query in each set. */
DEVICE void load_weights(float *held, const struct cursor *at, int part) {
#pragma unroll
    for (int i = 0; i < HELD_WEIGHTS / 2; ++i) {
        const int eight = part * PART_EIGHTS + i;
        const int query = eight / SET_EIGHTS * SET_QUERIES + at->column;
        const float2 two = *(const float2 *)(weights_at(at->buffer) + query * PADDED_HEADS +
                                             eight % SET_EIGHTS * 2);
        held[2 * i] = two.x;
        held[2 * i + 1] = two.y;
    }
}

/*
 * A head added to a sum. e4m3's products are so fast that the maximum, which runs at half the rate,
 * would weigh: x + |x| is twice max(0, x), exactly, since no x is above 128 * 448^2; the sums are
 * twice what they should be, then, until they are written.
 */
DEVICE float add_product(float sum, float weight, float x) {
    return FP8 ? fmaf(weight, x + fabsf(x), sum) : add_head(sum, weight, x);
}

/* Loads what this thread's two keys from `key` on are multiplied by. SCALES_AHEAD: a slab ahead,
 * since behind the stores of logits a load takes longer than a product. */
DEVICE void load_scales(const struct indexer_logits_fwd_params *params, struct cursor *at,
                        u32 key) {
    if (FP8) {
        const u32 last = (u32)params->rows - 1;
        at->next_scale[0] = __ldg(params->k_scale + (key < last ? key : last));
        at->next_scale[1] = __ldg(params->k_scale + (key + 8 < last ? key + 8 : last));
    }
}

/* Those of the slab at hand, 0.5 in them. */
DEVICE void take_scales(struct cursor *at) {
    at->scale[0] = FP8 ? 0.5f * at->next_scale[0] : 1.0f;
    at->scale[1] = FP8 ? 0.5f * at->next_scale[1] : 1.0f;
}

/* A set's logits of this thread's query and two keys, of its sums: even heads of both keys, odd
 * heads of both. */
DEVICE void finish_set(float *logits, const struct cursor *at, const float *sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float sum = sums[i] + sums[2 + i];
        logits[i] = canonical_logit(FP8 ? sum * at->scale[i] : sum);
    }
}

/* Writes a set's logits where the slab may be at a window's or a tensor's edge. */
DEVICE void write_edge(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                       int set, const float *logits) {
    const int query = set * SET_QUERIES;
    if (query >= at->queries) {
        return;
    }
    const struct key_range window = windows_at(at->buffer)[query + at->column];
    float *const to = at->row + query * params->logits_token_stride;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int key = at->key + 8 * i;
        if (key < params->rows) {
            to[8 * i] = key >= window.begin && key < window.end ? logits[i] : LOWEST_LOGIT;
        }
    }
}

/* Writes the logits of the sets that a part completes. One test for all of them: their arithmetic
 * is then one run of instructions. */
DEVICE void write_sets(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                       struct key_range sets, float logits[PART_SETS][2]) {
    if (at->inner) {
#pragma unroll
        for (int i = 0; i < sets.end - sets.begin; ++i) {
            const int query = (sets.begin + i) * SET_QUERIES;
            float *const to = at->row + query * params->logits_token_stride;
            to[0] = logits[i][0];
            to[8] = logits[i][1];
        }
    } else {
#pragma unroll
        for (int i = 0; i < sets.end - sets.begin; ++i) {
            write_edge(params, at, sets.begin + i, logits[i]);
        }
    }
}

/* Adds the heads of a part of the columns to the sums of their sets, and writes those of the sets
 * that end there. `weights`: of the part's first column on. */
DEVICE void add_part(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                     float *sums, const float *d, const float *weights, int part) {
    const struct key_range ending = {part * PART_EIGHTS / SET_EIGHTS,
                                     (part + 1) * PART_EIGHTS / SET_EIGHTS};
    float logits[PART_SETS][2];
#pragma unroll
    for (int i = 0; i < PART_EIGHTS; ++i) {
        const int eight = part * PART_EIGHTS + i;
        if (eight % SET_EIGHTS == 0) {
            sums[0] = sums[1] = sums[2] = sums[3] = 0.0f;
        }
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
            if (eight % SET_EIGHTS * 2 + odd < HEADS) { /* the others' zeros may meet infinities */
                const float weight = weights[2 * i + odd];
                sums[2 * odd] = add_product(sums[2 * odd], weight, d[4 * i + odd]);
                sums[2 * odd + 1] = add_product(sums[2 * odd + 1], weight, d[4 * i + 2 + odd]);
            }
        }
        if (eight % SET_EIGHTS == SET_EIGHTS - 1) {
            finish_set(logits[eight / SET_EIGHTS - ending.begin], at, sums);
        }
    }
    write_sets(params, at, ending, logits);
}

/* A stage of the warpgroup's own: every GROUPS-th is, for good, since STAGES is a multiple of
 * GROUPS. Shared with another, its barrier could be waited for two phases ahead, which passes. Its
 * barrier's address and its keys' descriptor go from one to the next: made anew they would cost a
 * dozen instructions a slab. A warpgroup that has one stage alone makes them anew all the same:
 * with bf16, whose keys leave room for no more, that was 1 to 6 % faster. */
struct own_stage {
    struct ring_place place;
    u32 full; /* its barrier FULL */
    u64 keys; /* the descriptor */
};

enum { GOES_ON = STAGES > GROUPS }; /* else `full` and `keys` are not looked at */

DEVICE u32 own_full(const struct own_stage *stage) {
    return GOES_ON ? stage->full : barrier_at(FULL + stage->place.index);
}

DEVICE void next_own(struct own_stage *stage) {
    stage->place.index += GROUPS;
    stage->full += GROUPS * 8;
    stage->keys = descriptor_advance(stage->keys, GROUPS * KEY_BYTES);
    if (stage->place.index >= STAGES) {
        stage->place.index -= STAGES;
        stage->place.parity ^= 1;
        stage->full -= STAGES * 8;
        stage->keys -= descriptor_advance(0, STAGES * KEY_BYTES);
    }
}

/* One slab: products, sums, logits. Its keys have landed. `all_keys` and `queries`: descriptors, of
 * the first stage's keys and of the block's queries. Moves on to the warpgroup's next stage and
 * tells whether its keys have landed, too. */
DEVICE bool score_slab(const struct indexer_logits_fwd_params *params, struct cursor *at,
                       float *weights, struct own_stage *stage, u64 all_keys, u64 queries) {
    float sums[4];
    bool landed = false;
    const int index = stage->place.index;
    const u32 own_empty = stage->full + (EMPTY - FULL) * 8;
    const u64 keys = GOES_ON ? stage->keys : descriptor_advance(all_keys, (u32)(index * KEY_BYTES));
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        float d[VALUES];
        issue_product(d, keys, descriptor_advance(queries, (u32)(part * PART_COLUMNS * SWIZZLE)));
        if (WEIGHTS_PARTS < PARTS) {
            load_weights(weights, at, part);
        }
        if (part == 0) {
            if (!SCALES_AHEAD) {
                load_scales(params, at, (u32)at->key);
            }
            take_scales(at);
            if (SCALES_AHEAD) {
                load_scales(params, at, (u32)at->key + GROUPS * SLAB);
            }
            next_own(stage);
            landed = mbarrier_test(own_full(stage), stage->place.parity);
        }
        wgmma_wait_0();
        if (part == PARTS - 1) {
            arrive_warp(GOES_ON ? own_empty : barrier_at(EMPTY + index), 1);
        }
        add_part(params, at, sums, d,
                 weights + (WEIGHTS_PARTS < PARTS ? 0 : part * PART_EIGHTS * 2), part);
    }
    return landed;
}

/* `group`: 0 to GROUPS - 1. Slabs are numbered through all runs; this warpgroup has those whose
 * number leaves `group` when divided by GROUPS. */
DEVICE void run_math(const struct indexer_logits_fwd_params *params, int group) {
    const u64 all_keys =
        shared_descriptor(shared_address(KEYS_OFFSET), 16, ATOM_ROWS * SWIZZLE, SWIZZLE);
    const u64 all_queries =
        shared_descriptor(shared_address(QUERIES_OFFSET), 16, ATOM_ROWS * SWIZZLE, SWIZZLE);
    const int lane = (int)threadIdx.x % 32;
    const int line = (int)threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    struct own_stage stage = {{group, 0},
                              barrier_at(FULL + group),
                              descriptor_advance(all_keys, (u32)(group * KEY_BYTES))};
    struct ring_place buffer = {0, 0};
    struct cursor at;
    float weights[HELD_WEIGHTS];
    int slab = group; /* the next own one, of the run */
    bool landed = false;
    at.column = lane % 4;
    for (;;) {
        at.buffer = buffer.index;
        mbarrier_wait(barrier_at(QUERY_FULL + buffer.index), buffer.parity);
        const struct run run = *run_at(buffer.index);
        if (run.slabs == 0) {
            return;
        }
        if (WEIGHTS_PARTS == PARTS) {
            load_weights(weights, &at, 0);
        }
        const u64 queries = descriptor_advance(all_queries, (u32)(buffer.index * QUERY_BYTES));
        const bool whole = params->tokens - run.query >= BLOCK_QUERIES;
        at.queries = params->tokens - run.query - at.column;
        at.key = run.key + slab * SLAB + line;
        at.row = params->logits + (run.query + at.column) * params->logits_token_stride + at.key;
        if (SCALES_AHEAD) {
            load_scales(params, &at, (u32)at.key);
        }
#pragma unroll 1
        for (; slab < run.slabs; slab += GROUPS) {
            const int first = run.key + slab * SLAB;
            at.inner = whole && first >= run.inner && run.outer - first >= SLAB;
            if (!landed) {
                mbarrier_wait(own_full(&stage), stage.place.parity);
            }
            landed = score_slab(params, &at, weights, &stage, all_keys, queries);
            at.key += GROUPS * SLAB;
            at.row += GROUPS * SLAB;
        }
        slab -= run.slabs;
        arrive_warp(barrier_at(QUERY_EMPTY + buffer.index), 1);
        ring_advance(&buffer, QUERY_BUFFERS);
    }
}

KERNEL void __launch_bounds__(THREADS, 1)
    KERNEL_NAME(const __grid_constant__ struct indexer_logits_fwd_params params) {
    initialise(&params);
    if (params.chained) {
        grid_launch_dependents();
    }
    count_costs(&params);
    __syncthreads();
    const int group = __shfl_sync((u32)ALL_LANES, (int)threadIdx.x / WARPGROUP, 0);
    if (group < GROUPS) {
        registers_increase(MATH_REGISTERS);
        if (params.early) {
            grid_wait();
        }
        run_math(&params, group);
    } else {
        registers_decrease(OTHER_REGISTERS);
        const int warp = (int)threadIdx.x % WARPGROUP / 32;
        if (warp == KEY_WARP || warp == QUERY_WARP) {
            run_producer(&params, warp == QUERY_WARP);
        } else if (warp == FILLER_WARP && params.fills) {
            run_filler(&params);
        }
    }
}
