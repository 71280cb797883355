//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/logit.cuh
//@use common/ring.cuh
//@use common/stored_logit.cuh
//@use common/warp_arrival.cuh
//@use ptx/mbarrier.cuh
//@use ptx/named_barrier.cuh
//@use ptx/registers.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma.cuh
//@use indexer_logits_fwd.params.h
//@use indexer_logits_fwd.sm90_copies.cuh
//@use indexer_logits_fwd.sm90_kernel.cuh columns = PART_COLUMNS
/*
 * The lightning indexer's logits with wgmma: every query's heads against every key in its window,
 * summed over heads; -inf elsewhere. Mathematics and shapes: include/smelt/indexer_logits.h.
 *
 * Keys are the products' rows; a block's queries with all their heads are the columns:
 *
 *   D[64 keys, PART_COLUMNS] = K[64, DIM] Q[PART_COLUMNS of 4 * SETS queries x PADDED_HEADS, DIM]^T
 *
 * in PARTS. Four queries are a set. Each eight of its columns are queries 0 to 3, heads 2 i and
 * 2 i + 1 of each. A thread's columns of D are 8 j + 2 c and the next, c = lane % 4: all belong to
 * query c. It sums the heads of its queries alone, in ascending order in CHAINS independent sums,
 * without exchanges; where a group of heads ends, the sum is a logit and the next one begins. With
 * BLOCK_MAX > 1 the lanes of a block's keys find its largest logit, and one writes it. Tensor copies
 * bring Q in this order, in boxes of 4 queries and 2 heads, or, if HEADS is even, of 4 queries and
 * all pairs of heads. Columns of heads from HEADS to PADDED_HEADS are zeros and are not added.
 *
 * Schedule: 64 keys are a KV tile. A block of queries needs the tiles from the first to the last
 * one that any of its windows meets. All blocks' tiles in a row, plus BLOCK_START tiles per block
 * for its start-up cost, are cut into equal runs, one per CTA, one CTA per SM. Every CTA computes
 * its own run from the windows when it starts (find_span), without a schedule in memory.
 *
 * Windows and runs: indexer_logits_fwd.sm90_runs.cuh; queries, keys and filler: _copies.cuh; sizes
 * and shared memory: _tiles.cuh; here the math.
 *
 *   queries    one warp: a block's weights and windows; tensor copies of its queries, QUERY_BUFFERS
 *              blocks ahead
 *   keys       one warp: tensor copies of KV tiles, STAGES ahead, across blocks
 *   filler     one warp: -inf outside the tiles, by bulk stores
 *   math       WARPGROUPS warpgroups alternate tiles: the arithmetic of one overlaps the products of
 *              the others
 *
 * The bottleneck is the register file: e4m3 products access their accumulators so often that other
 * arithmetic costs about as many cycles as it reads registers (indexer_logits_fwd.lost.md).
 *
 * Shared memory (offsets and sizes: the plan above). Rows are SWIZZLE bytes, ROW_BYTES of them in
 * HALVES; 8 rows are a swizzle atom:
 *   QUERIES [QUERY_BUFFERS][HALVES][COLUMNS] rows
 *   KEYS    [STAGES][HALVES][64] rows
 *   LOWEST  FILL_BYTES of -inf, the filler's source
 *   WEIGHTS [QUERY_BUFFERS][BLOCK_QUERIES][PADDED_HEADS] fp32
 *   WINDOWS [QUERY_BUFFERS][BLOCK_QUERIES] struct key_range
 *   RUNS    [QUERY_BUFFERS] struct run: the CTA's tiles of the block
 *   COSTS   [COARSE + 2 * 34] i64: costs of COARSE groups of blocks; scratch of find_span
 *   STAGING [WARPGROUPS][STAGED_SETS * 4][STAGED_ROW] fp32, with STAGES_LOGITS: a part's logits
 *
 * Named barriers, with STAGES_LOGITS: STAGING_BARRIER + group, of that warpgroup.
 *
 * Barriers (parity counts uses; stages and buffers are used cyclically):
 *   barrier        count       arrives                                      waits
 *   FULL[s]        1           keys, with the boxes' bytes                  math, one group
 *   EMPTY[s]       4           math: warps of that group, product complete  keys
 *   QUERY_FULL[b]  1           queries, with the bytes; weights, windows    math
 *                              and run are written
 *   QUERY_EMPTY[b] 4 * WARPGROUPS  math: warps, done with the block             queries
 * (Counts of 4 are of warps: common/warp_arrival.cuh.)
 *
 * Knobs: WARPGROUPS, and the most columns of a product; legal values and the rule that picks them:
 * src/codegen/families/indexer_logits_fwd_sm90.c.
 */

enum {
    EIGHTS = COLUMNS / 8,
    PART_EIGHTS = EIGHTS / PARTS,
    SUM_HEADS = HEADS / HEAD_GROUPS, /* of a logit */
    PART_SUMS = HEAD_GROUPS > 1 ? PART_EIGHTS * 2 / SUM_HEADS + 1
                                : PART_EIGHTS / SET_EIGHTS + 1, /* that end in a part, at most */
    VALUES = PART_COLUMNS / 2,                                  /* of D, per thread */
    WEIGHTS_PARTS = EIGHTS * 2 <= MOST_WEIGHTS ? PARTS : 1,     /* whose weights a thread holds */
    HELD_WEIGHTS = WEIGHTS_PARTS * PART_EIGHTS * 2,
    STAGED_SETS = PART_EIGHTS / SET_EIGHTS /* that end in a part, with STAGES_LOGITS */
};

/* Named barriers: one per math warpgroup, with STAGES_LOGITS. */
enum { STAGING_BARRIER = 1 };

/* Independent sums of a query's heads: even and odd ones apart, or one. The faster one was measured
 * (templates/indexer_logits_fwd.lost.md). */
enum { CHAINS = FP8 || SETS >= 4 ? 2 : 1 };

/* A thread's position: in each set its query is number `column` of the four. */
struct cursor {
    int buffer;   /* of the block */
    int column;   /* lane % 4 */
    int key;      /* this thread's first key; its second is 8 further */
    bool inner;   /* the tile is inside the windows of all the block's queries, and all of these
                     exist */
    bool aligned; /* four logits of a row can be stored at once */
    stored_logit *row; /* the logits of the first set's query, at the first key */
    int queries;       /* how many queries exist from the first set's on */
    float scale[2], next_scale[2];
};

/* Loads the weights that a thread holds, from part `part` on: those of its query in each set. */
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
 * Adds a head to a sum. e4m3 products are so fast that a maximum, at half the rate of an addition,
 * would be noticeable: x + |x| is exactly 2 max(0, x), since |x| <= 128 * 448^2. The sums are then
 * doubled until they are written.
 */
DEVICE float add_product(float sum, float weight, float x) {
    return !RELU ? fmaf(weight, x, sum)
           : FP8 ? fmaf(weight, x + fabsf(x), sum)
                 : add_head(sum, weight, x);
}

/* Loads the scales of this thread's keys `key` and key + 8. SCALES_AHEAD: one tile ahead, since a
 * load behind the stores of logits takes longer than a product. */
DEVICE void load_scales(const struct indexer_logits_fwd_params *params, struct cursor *at,
                        u32 key) {
    if (FP8) {
        const u32 last = (u32)params->rows - 1;
        at->next_scale[0] = __ldg(params->k_scale + (key < last ? key : last));
        at->next_scale[1] = __ldg(params->k_scale + (key + 8 < last ? key + 8 : last));
    }
}

/* The current tile's scales; with FP8 and ReLU halved, which undoes the doubling. */
DEVICE void take_scales(struct cursor *at) {
    const float factor = RELU ? 0.5f : 1.0f;
    at->scale[0] = FP8 ? factor * at->next_scale[0] : 1.0f;
    at->scale[1] = FP8 ? factor * at->next_scale[1] : 1.0f;
}

/* Turns a thread's sums into logits of its query and two keys: the sums of both keys, per chain. */
DEVICE void finish_sum(float *logits, const struct cursor *at, const float *sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float sum = CHAINS > 1 ? sums[i] + sums[2 + i] : sums[i];
        logits[i] = canonical_logit(FP8 ? sum * at->scale[i] : sum);
    }
}

/* The number of a sum: SUM_HEADS heads of a set's queries, in the order of the columns. */
DEVICE int set_of(int sum) {
    return sum / HEAD_GROUPS;
}

/* The logits of a sum in the rows of the first set's query. */
DEVICE stored_logit *logits_of(const struct indexer_logits_fwd_params *params,
                               const struct cursor *at, int sum) {
    return at->row + set_of(sum) * SET_QUERIES * params->logits_token_stride +
           sum % HEAD_GROUPS * params->logits_group_stride;
}

DEVICE struct key_range window_of_sum(const struct cursor *at, int sum) {
    return windows_at(at->buffer)[set_of(sum) * SET_QUERIES + at->column];
}

/* Writes a sum's logits of a tile at the edge of a window or tensor. */
DEVICE void write_edge(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                       int sum, const float *logits) {
    if (set_of(sum) * SET_QUERIES >= at->queries) {
        return;
    }
    const struct key_range window = window_of_sum(at, sum);
    stored_logit *const to = logits_of(params, at, sum);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int key = at->key + 8 * i;
        if (key < params->rows) {
            store_logit(&to[8 * i],
                        key >= window.begin && key < window.end ? logits[i] : LOWEST_LOGIT);
        }
    }
}

/* Puts -inf in place of logits outside the window of the sum's query. */
DEVICE void mask_sum(const struct cursor *at, int sum, float *logits) {
    const struct key_range window = window_of_sum(at, sum);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int key = at->key + 8 * i;
        logits[i] = key >= window.begin && key < window.end ? logits[i] : LOWEST_LOGIT;
    }
}

/* Writes the largest logits of a sum's blocks, which are within the warp's 16 keys. By the whole
 * warp. */
DEVICE void write_blocks(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                         int sum, float *logits) {
    enum { LANES = BLOCK_MAX < 8 ? BLOCK_MAX : 8 }; /* with keys of a block */
    const int lane = (int)threadIdx.x % 32;
    stored_logit *const to = logits_of(params, at, sum);
    const bool exists = set_of(sum) * SET_QUERIES < at->queries;
    if (BLOCK_MAX == 16) {
        logits[0] = fmaxf(logits[0], logits[1]);
    }
#pragma unroll
    for (int i = 0; i < (BLOCK_MAX == 16 ? 1 : 2); ++i) {
#pragma unroll
        for (int keys = 1; keys < LANES; keys *= 2) {
            logits[i] = fmaxf(logits[i], __shfl_xor_sync((u32)ALL_LANES, logits[i], keys * 4));
        }
        if (exists && lane / 4 % LANES == 0 && at->key + 8 * i < params->rows) {
            store_logit(&to[8 * i / BLOCK_MAX], logits[i]);
        }
    }
}

/* Writes the sets' logits of a warpgroup in whole cache lines, by way of shared memory: each of a
 * warp's stores then covers the tile's keys of two queries. Directly from the accumulators it would
 * cover four queries in pieces of 32 bytes, which L2 may write to memory before the line is
 * complete. By the whole warpgroup; rows of logits must be aligned. */
DEVICE void write_lines(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                        int first_set, float logits[PART_SUMS][2]) {
    const int thread = (int)threadIdx.x % WARPGROUP, warp = thread / 32, lane = thread % 32;
    const int group = (int)threadIdx.x / WARPGROUP, line = warp * 16 + lane / 4;
    float *const staged =
        (float *)(arena + STAGING_OFFSET) + group * (STAGED_SETS * SET_QUERIES * STAGED_ROW);
    float *const own = staged + at->column * STAGED_ROW + line;
    barrier_sync(STAGING_BARRIER + group, WARPGROUP); /* all threads have read the previous part */
#pragma unroll
    for (int i = 0; i < STAGED_SETS; ++i) {
        own[i * SET_QUERIES * STAGED_ROW] = logits[i][0];
        own[i * SET_QUERIES * STAGED_ROW + 8] = logits[i][1];
    }
    barrier_sync(STAGING_BARRIER + group, WARPGROUP);
    const int first = warp * STAGED_SETS + lane / 16, key = lane % 16 * 4;
    const float *const from = staged + first * STAGED_ROW + key;
#pragma unroll
    for (int i = 0; i < STAGED_SETS; i += 2) {
        const int query = first_set * SET_QUERIES + first + i - at->column;
        stored_logit *const to = at->row + query * params->logits_token_stride + key - line;
        store_four_logits(to, *(const float4 *)(from + i * STAGED_ROW));
    }
}

/* Writes the logits of the sums that a part completes. One test for all of them keeps their
 * arithmetic in one basic block. */
DEVICE void write_sums(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                       struct key_range sums, float logits[PART_SUMS][2]) {
    if (BLOCK_MAX > 1) {
        if (!at->inner) {
#pragma unroll
            for (int i = 0; i < sums.end - sums.begin; ++i) {
                mask_sum(at, sums.begin + i, logits[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < sums.end - sums.begin; ++i) {
            write_blocks(params, at, sums.begin + i, logits[i]);
        }
    } else if (STAGES_LOGITS && at->inner && at->aligned) {
        write_lines(params, at, sums.begin, logits);
    } else if (at->inner) {
#pragma unroll
        for (int i = 0; i < sums.end - sums.begin; ++i) {
            stored_logit *const to = logits_of(params, at, sums.begin + i);
            store_logit(&to[0], logits[i][0]);
            store_logit(&to[8], logits[i][1]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < sums.end - sums.begin; ++i) {
            write_edge(params, at, sums.begin + i, logits[i]);
        }
    }
}

/* Sums that end before an eight of columns. */
DEVICE int sums_before(int eight) {
    const int heads = minimum(eight % SET_EIGHTS * 2, HEADS);
    return eight / SET_EIGHTS * HEAD_GROUPS + (HEAD_GROUPS > 1 ? heads / SUM_HEADS : 0);
}

/* Whether a sum ends with a column's head, `odd` of an eight: after the last one of the group, of a
 * set's only group after the padding. */
DEVICE bool ends_sum(int eight, int odd) {
    const int head = eight % SET_EIGHTS * 2 + odd;
    return HEAD_GROUPS > 1 ? head < HEADS && head % SUM_HEADS == SUM_HEADS - 1
                           : head == PADDED_HEADS - 1;
}

DEVICE void clear_sums(float *sums) {
    for (int i = 0; i < 2 * CHAINS; ++i) {
        sums[i] = 0.0f;
    }
}

/* Adds a part's heads to the sums of their sets and writes those that end in it. `weights`: from
 * the part's first column on. */
DEVICE void add_part(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                     float *sums, const float *d, const float *weights, int part) {
    const struct key_range ending = {sums_before(part * PART_EIGHTS),
                                     sums_before((part + 1) * PART_EIGHTS)};
    float logits[PART_SUMS][2];
    int ended = 0;
#pragma unroll
    for (int i = 0; i < PART_EIGHTS; ++i) {
        const int eight = part * PART_EIGHTS + i;
        if (eight % SET_EIGHTS == 0) {
            clear_sums(sums);
        }
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
            if (eight % SET_EIGHTS * 2 + odd < HEADS) { /* padding: 0 * infinity would be NaN */
                const float weight = weights[2 * i + odd];
                float *const sum = sums + odd % CHAINS * 2;
                sum[0] = add_product(sum[0], weight, d[4 * i + odd]);
                sum[1] = add_product(sum[1], weight, d[4 * i + 2 + odd]);
            }
            if (ends_sum(eight, odd)) {
                finish_sum(logits[ended++], at, sums);
                if (HEAD_GROUPS > 1) {
                    clear_sums(sums);
                }
            }
        }
    }
    write_sums(params, at, ending, logits);
}

/* A warpgroup's stage. Each warpgroup owns every WARPGROUPS-th stage, since STAGES is a multiple of
 * WARPGROUPS: with shared stages a warpgroup could wait two phases ahead, which returns at once. The
 * barrier's address and the keys' descriptor are advanced; recomputing them would cost a dozen
 * instructions per tile. With one stage per warpgroup they are recomputed all the same: with bf16,
 * whose keys leave room for no more stages, that was 1 to 6 % faster. */
struct own_stage {
    struct ring_place place;
    u32 full; /* address of its barrier FULL */
    u64 keys; /* descriptor */
};

enum { ADVANCES = STAGES > WARPGROUPS }; /* else `full` and `keys` are unused */

DEVICE u32 own_full(const struct own_stage *stage) {
    return ADVANCES ? stage->full : barrier_at(FULL + stage->place.index);
}

DEVICE void next_own(struct own_stage *stage) {
    stage->place.index += WARPGROUPS;
    stage->full += WARPGROUPS * 8;
    stage->keys = descriptor_advance(stage->keys, WARPGROUPS * KEY_BYTES);
    if (stage->place.index >= STAGES) {
        stage->place.index -= STAGES;
        stage->place.parity ^= 1;
        stage->full -= STAGES * 8;
        stage->keys -= descriptor_advance(0, STAGES * KEY_BYTES);
    }
}

/* One tile: products, sums, logits. Its keys have landed. `all_keys`, `queries`: descriptors of the
 * first stage's keys and of the block's queries. Advances to the warpgroup's next stage and returns
 * whether its keys have landed. */
DEVICE bool score_tile(const struct indexer_logits_fwd_params *params, struct cursor *at,
                       float *weights, struct own_stage *stage, u64 all_keys, u64 queries) {
    float sums[2 * CHAINS];
    bool landed = false;
    const int index = stage->place.index;
    const u32 own_empty = stage->full + (EMPTY - FULL) * 8;
    const u64 keys =
        ADVANCES ? stage->keys : descriptor_advance(all_keys, (u32)(index * KEY_BYTES));
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        float d[VALUES];
        issue_product(d, keys, KEY_HALF_BYTES,
                      descriptor_advance(queries, (u32)(part * PART_COLUMNS * SWIZZLE)),
                      QUERY_HALF_BYTES);
        if (WEIGHTS_PARTS < PARTS) {
            load_weights(weights, at, part);
        }
        if (part == 0) {
            if (!SCALES_AHEAD) {
                load_scales(params, at, (u32)at->key);
            }
            take_scales(at);
            if (SCALES_AHEAD) {
                load_scales(params, at, (u32)at->key + WARPGROUPS * TILE_KEYS);
            }
            next_own(stage);
            landed = mbarrier_test(own_full(stage), stage->place.parity);
        }
        wgmma_wait(0);
        if (part == PARTS - 1) {
            arrive_warp(ADVANCES ? own_empty : barrier_at(EMPTY + index), 1);
        }
        add_part(params, at, sums, d,
                 weights + (WEIGHTS_PARTS < PARTS ? 0 : part * PART_EIGHTS * 2), part);
    }
    return landed;
}

DEVICE void run_math(const struct indexer_logits_fwd_params *params, int group) {
    const u64 all_keys = operand_at(keys_at(0)), all_queries = operand_at(queries_at(0));
    const int lane = (int)threadIdx.x % 32;
    const int line = (int)threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    struct own_stage stage = {{group, 0},
                              barrier_at(FULL + group),
                              descriptor_advance(all_keys, (u32)(group * KEY_BYTES))};
    struct ring_place buffer = {0, 0};
    struct cursor at;
    float weights[HELD_WEIGHTS];
    int tile = group; /* the warpgroup's next tile of the run */
    bool landed = false;
    at.column = lane % 4;
    at.aligned = is_aligned_for_four((u64)params->logits |
                                     (u64)params->logits_token_stride * sizeof(stored_logit));
    for (;;) {
        at.buffer = buffer.index;
        mbarrier_wait(barrier_at(QUERY_FULL + buffer.index), buffer.parity);
        const struct run run = *run_at(buffer.index);
        if (run.tiles == 0) {
            return;
        }
        if (WEIGHTS_PARTS == PARTS) {
            load_weights(weights, &at, 0);
        }
        const u64 queries = descriptor_advance(all_queries, (u32)(buffer.index * QUERY_BYTES));
        const bool whole = params->tokens - run.query >= BLOCK_QUERIES;
        at.queries = params->tokens - run.query - at.column;
        at.key = run.key + tile * TILE_KEYS + line;
        at.row = (stored_logit *)params->logits +
                 (run.query + at.column) * params->logits_token_stride + at.key / BLOCK_MAX;
        if (SCALES_AHEAD) {
            load_scales(params, &at, (u32)at.key);
        }
#pragma unroll 1
        for (; tile < run.tiles; tile += WARPGROUPS) {
            const int first = run.key + tile * TILE_KEYS;
            at.inner = whole && first >= run.inner && run.outer - first >= TILE_KEYS;
            if (!landed) {
                mbarrier_wait(own_full(&stage), stage.place.parity);
            }
            landed = score_tile(params, &at, weights, &stage, all_keys, queries);
            at.key += WARPGROUPS * TILE_KEYS;
            at.row += WARPGROUPS * TILE_KEYS / BLOCK_MAX;
        }
        tile -= run.tiles;
        arrive_warp(barrier_at(QUERY_EMPTY + buffer.index), 1);
        ring_advance(&buffer, QUERY_BUFFERS);
    }
}
