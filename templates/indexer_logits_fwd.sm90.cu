//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/logit.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use ptx/grid.cuh
//@use ptx/mbarrier.cuh
//@use ptx/named_barrier.cuh
//@use ptx/registers.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_fp8_ss.cuh n = PART_COLUMNS
//@use ptx/wgmma_ss.cuh n = PART_COLUMNS, ta = 0, tb = 0
//@use indexer_logits_fwd.params.h
//@use indexer_logits_fwd.sm90_copies.cuh
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
 * are query c's. So it adds up the heads of a query by itself, in ascending order, CHAINS of them
 * apart, and exchanges nothing; Q comes in that order by boxes of 4 queries and 2 heads,
 * or, where there are pairs of heads, of 4 queries and all pairs. Columns of heads from HEADS up to
 * PADDED_HEADS are zeros that are not added.
 *
 * Work. 64 keys are a slab; a block's slabs are those from the first to the last that one of its
 * windows meets. All blocks' slabs in a row, each block dearer by BLOCK_START slabs, are cut into
 * as many equal runs as the grid has thread blocks, one a multiprocessor. Every thread block finds
 * its own run from the windows when it begins (find_run): there is no plan in memory.
 *
 * Windows and runs: indexer_logits_fwd.sm90_runs.cuh; queries, keys and filler: _copies.cuh; sizes
 * and places: _tiles.cuh; here the math.
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
 *   STAGING [GROUPS][STAGED_SETS * 4][STAGED_ROW] fp32, with STAGES_LOGITS: a part's logits
 *
 * Named barriers, with STAGES_LOGITS: 1 + group, of that warpgroup's threads.
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

/* Heads of a query that are added up apart: even and odd ones, or 1: all together. Which is faster
 * was measured (templates/indexer_logits_fwd.lost.md). */
enum { CHAINS = FP8 || SETS >= 4 ? 2 : 1 };

/* What a thread is at, of the slab: its query of each set is number `column` of the four. */
struct cursor {
    int buffer;   /* the block's */
    int column;   /* lane % 4 */
    int key;      /* this thread's first; the second is 8 further on */
    bool inner;   /* all keys of the slab are in the windows of all queries of the block, which are
                     all there */
    bool aligned; /* rows of logits begin at multiples of 16 bytes */
    float *row;   /* of the first set's query, at the first key */
    int queries;  /* that are there, from the first set's on */
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
        if (FP8) {
            wgmma_fp8_ss_n${PART_COLUMNS}(d, a, b, k > 0);
        } else {
            wgmma_ss_n${PART_COLUMNS}_t00(d, a, b, k > 0);
        }
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

/* A set's logits of this thread's query and two keys, of its sums: those of both keys, of each
 * chain. */
DEVICE void finish_set(float *logits, const struct cursor *at, const float *sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float sum = CHAINS > 1 ? sums[i] + sums[2 + i] : sums[i];
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

/* Writes those of a warpgroup by whole lines, through shared memory: a warp's stores reach two
 * queries' keys of the slab each, where out of the products' registers they would reach four
 * queries' lines in pieces of 32 bytes, which the L2 cache may write to memory before the line is
 * whole. By the whole warpgroup; rows of logits begin at multiples of 16 bytes. */
DEVICE void write_lines(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                        int first_set, float logits[PART_SETS][2]) {
    const int thread = (int)threadIdx.x % WARPGROUP, warp = thread / 32, lane = thread % 32;
    const int group = (int)threadIdx.x / WARPGROUP, line = warp * 16 + lane / 4;
    float *const staged =
        (float *)(arena + STAGING_OFFSET) + group * (STAGED_SETS * SET_QUERIES * STAGED_ROW);
    float *const own = staged + at->column * STAGED_ROW + line;
    barrier_sync(1 + group, WARPGROUP); /* all have read the part before */
#pragma unroll
    for (int i = 0; i < STAGED_SETS; ++i) {
        own[i * SET_QUERIES * STAGED_ROW] = logits[i][0];
        own[i * SET_QUERIES * STAGED_ROW + 8] = logits[i][1];
    }
    barrier_sync(1 + group, WARPGROUP);
    const int first = warp * STAGED_SETS + lane / 16, key = lane % 16 * 4;
    const float *const from = staged + first * STAGED_ROW + key;
#pragma unroll
    for (int i = 0; i < STAGED_SETS; i += 2) {
        const int query = first_set * SET_QUERIES + first + i - at->column;
        float *const to = at->row + query * params->logits_token_stride + key - line;
        *(float4 *)to = *(const float4 *)(from + i * STAGED_ROW);
    }
}

/* Writes the logits of the sets that a part completes. One test for all of them: their arithmetic
 * is then one run of instructions. */
DEVICE void write_sets(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                       struct key_range sets, float logits[PART_SETS][2]) {
    if (STAGES_LOGITS && at->inner && at->aligned) {
        write_lines(params, at, sets.begin, logits);
    } else if (at->inner) {
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
            for (int k = 0; k < 2 * CHAINS; ++k) {
                sums[k] = 0.0f;
            }
        }
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
            if (eight % SET_EIGHTS * 2 + odd < HEADS) { /* the others' zeros may meet infinities */
                const float weight = weights[2 * i + odd];
                float *const sum = sums + odd % CHAINS * 2;
                sum[0] = add_product(sum[0], weight, d[4 * i + odd]);
                sum[1] = add_product(sum[1], weight, d[4 * i + 2 + odd]);
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
    float sums[2 * CHAINS];
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
    at.aligned = (((u64)params->logits | (u64)params->logits_token_stride * 4) & 15) == 0;
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
    if (params.launch_dependents) {
        grid_launch_dependents();
    }
    count_costs(&params);
    __syncthreads();
    const int group = __shfl_sync((u32)ALL_LANES, (int)threadIdx.x / WARPGROUP, 0);
    if (group < GROUPS) {
        registers_increase(MATH_REGISTERS);
        if (params.pdl) {
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
