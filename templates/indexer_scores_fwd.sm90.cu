//@use common/base.cuh
//@use common/queries.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use common/wgmma_tile.cuh
//@use indexer_scores_fwd.heads.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/named_barrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/shared.cuh
//@use ptx/warp.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_fp8_ss.cuh n = BLOCK_HEADS
//@use ptx/wgmma_ss.cuh n = BLOCK_HEADS, ta = 0, tb = 0
//@use indexer_scores_fwd.params.h
/*
 * The lightning indexer's logits at the selected slots, with wgmma. Mathematics and shapes:
 * include/smelt/indexer_scores.h; with WINDOWS the lists are candidates of include/smelt/indexer_logits.h.
 * A slot is one of GRANULARITY rows of an entry (indexer_scores_fwd.heads.cuh).
 *
 * Grid: one CTA per multiprocessor; CTA b takes queries b, b + gridDim.x, ... A query's slots are
 * split into blocks of BLOCK_KEYS, distributed cyclically over WARPGROUPS pairs of a gather warp and a
 * math warpgroup. The next query starts with the next pair, which balances short queries.
 *
 *   role     warps                work
 *   math     WARPGROUPS warpgroups    per part of 64 slots: X[64, BLOCK_HEADS] = K[64, DIM] Q^T, then
 *                                 the weighted sum of max(0, X) over heads, along a thread's own
 *                                 columns
 *   gather   one warpgroup, one   scans its blocks' slots and copies their keys as far ahead as its
 *            warp per math        ring allows; copies its share of each query's heads and weights;
 *            warpgroup            writes the -inf of blocks without a valid slot itself. A query's
 *                                 first block always goes to its math warpgroup, so that all of
 *                                 them see every query
 *
 * The gather is the bottleneck: 256 bytes of L2 per key, then shared memory. Pairs synchronise on
 * queries only and are at most one query apart, so that one pair's products and sums overlap the
 * others'. (ptxas serialises two products in flight in one warpgroup.)
 *
 * Shared memory (offsets and sizes: the plan above):
 *   KEYS     [WARPGROUPS][STAGES] blocks; per part, ROW_TILES tiles of 64 rows of 128 bytes, 128-byte
 *            swizzled; narrower keys fill a row's first bytes
 *   QUERY    [QUERIES][ROW_TILES] tiles of BLOCK_HEADS rows, swizzled likewise. Rows beyond HEADS
 *            repeat the last head and are discarded
 *   WEIGHTS  [QUERIES][BLOCK_HEADS] fp32; beyond HEADS likewise
 *   WORDS    [WARPGROUPS][STAGES]: struct block_word
 *   ROWS     [WARPGROUPS][STAGES][BLOCK_KEYS] int, with FP8: row numbers, for the keys' scales
 *   LARGEST  [WARPGROUPS][HEAD_GROUPS][RUNS] fp32, with WIDE_BLOCKS: the largest logits of the
 *            warps' slots
 *
 * Named barriers, with WIDE_BLOCKS: LARGEST_BARRIER + group, of that warpgroup.
 *
 * Barriers (parity counts uses; g: a pair):
 *   barrier         count        arrives                                    waits
 *   FULL[g][stage]  32+1         gather: every lane when its copies have    its warpgroup of math
 *                                landed, and one for the word
 *   EMPTY[g][stage] 4            math: every warp when its products are     its gather warp
 *                                done
 *   QUERY_FULL[q]   WARPGROUPS*32    gather: every lane when its copies have    math
 *                   + WARPGROUPS     landed; every warp for its weights
 *   QUERY_EMPTY[q]  WARPGROUPS*4     math: every warp, on reaching the next     gather
 *                                query
 * (Counts of 4 are of warps: common/warp_arrival.cuh.)
 *
 * Knobs: WARPGROUPS, BLOCK_KEYS, STAGES: src/codegen/families/indexer_scores_fwd_sm90.c.
 */

enum {
    BLOCKS = WARPGROUPS * STAGES,
    STEP_SLOTS = WARPGROUPS * BLOCK_KEYS, /* from a pair's block to its next one of a query */
    QUERIES = 2,                          /* in shared memory */
    PART_KEYS = 64,                       /* rows of a wgmma */
    PARTS = BLOCK_KEYS / PART_KEYS,       /* of a block, one product each */
    VOTES = BLOCK_KEYS / 32,
    PART_BYTES = ROW_TILES * TILE_BYTES,
    BLOCK_BYTES = PARTS * PART_BYTES,
    QUERY_TILE_BYTES = BLOCK_HEADS * TILE_PITCH,
    QUERY_BYTES = ROW_TILES * QUERY_TILE_BYTES,
    EIGHT = 8,                       /* rows of an atom */
    ROW_BYTES = DIM * ELEMENT_BYTES, /* in global memory; in a tile a row has 128 */
    ROW_LANES = ROW_BYTES < TILE_PITCH ? ROW_BYTES / 16 : EIGHT, /* that copy a row of a tile */
    LANE_ROWS = EIGHT / ROW_LANES,                               /* of an atom, copied at once */
    VALUES = BLOCK_HEADS / 2,                                    /* of a thread: X of a part */
    WIDE_BLOCKS = BLOCK_MAX > WARP_SLOTS, /* several warps have slots of a block of BLOCK_MAX */
    RUNS = BLOCK_KEYS / WARP_SLOTS,       /* warps' slots in a block of BLOCK_KEYS */
    NO_QUERY = -1
};

/* Named barriers: one per math warpgroup, with WIDE_BLOCKS. */
enum { LARGEST_BARRIER = 1 };

/* Barrier numbers. */
enum {
    FULL = 0,
    EMPTY = FULL + BLOCKS,
    QUERY_FULL = EMPTY + BLOCKS,
    QUERY_EMPTY = QUERY_FULL + QUERIES
};

/* The description of a block. */
struct __align__(16) block_word {
    int query;        /* NO_QUERY: no block is left */
    int first;        /* its first slot */
    u32 votes[VOTES]; /* valid slots, a bit each */
};

DEVICE struct block_word *block_word(int block) {
    return (struct block_word *)(arena + WORDS_OFFSET) + block;
}

/* The row numbers of a block's slots, MASKED or a row, with FP8. */
DEVICE int *block_rows(int block) {
    return (int *)(arena + ROWS_OFFSET) + block * BLOCK_KEYS;
}

DEVICE u32 block_keys(int block) {
    return (u32)(KEYS_OFFSET + block * BLOCK_BYTES);
}

DEVICE u32 query_heads(int buffer) {
    return (u32)(QUERY_OFFSET + buffer * QUERY_BYTES);
}

DEVICE float *query_weights(int buffer) {
    return (float *)(arena + WEIGHTS_OFFSET) + buffer * BLOCK_HEADS;
}

DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int block = 0; block < BLOCKS; ++block) {
            mbarrier_init(barrier_at(FULL + block), 32 + 1);
            mbarrier_init(barrier_at(EMPTY + block), 4 * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < QUERIES; ++buffer) {
            mbarrier_init(barrier_at(QUERY_FULL + buffer), WARPGROUPS * (32 + WARP_ARRIVALS));
            mbarrier_init(barrier_at(QUERY_EMPTY + buffer), WARPGROUPS * 4 * WARP_ARRIVALS);
        }
    }
    __syncthreads();
}

/* Passes a lane's value through a shuffle, so that the compiler keeps it instead of recomputing it
 * for each block. By the whole warp. */
DEVICE u32 keep(u32 value) {
    return __shfl_sync((u32)ALL_LANES, value, (int)(threadIdx.x % 32));
}

/* ---- gather: slots --------------------------------------------------------------------------- */

/* A block's slots; a lane holds slots lane + 32 * i. */
struct slot_block {
    int values[VOTES]; /* row numbers; of masked slots anything before vote_block, MASKED after */
    u32 votes[VOTES];  /* set by vote_block: valid slots, a bit each */
};

/* A pair's first slot of the CTA's query number `iteration`. */
DEVICE int first_slot(int group, int iteration) {
    return (group + iteration) % WARPGROUPS * BLOCK_KEYS;
}

/* Loads the slots of the block at slot `first`. */
DEVICE void load_block(struct slot_block *block, const struct slot_row *row, int first) {
#pragma unroll
    for (int i = 0; i < VOTES; ++i) {
        const int slot = first + i * 32 + (int)(threadIdx.x % 32);
        block->values[i] = slot_value(row, slot);
    }
}

/* Finds the valid slots of a block of the row; returns whether there are any. */
DEVICE bool vote_block(struct slot_block *block, const struct slot_row *row) {
    u32 any = 0;
#pragma unroll
    for (int i = 0; i < VOTES; ++i) {
        const bool valid = names_row(row, block->values[i]);
        block->values[i] = valid ? block->values[i] : MASKED;
        block->votes[i] = __ballot_sync((u32)ALL_LANES, valid);
        any |= block->votes[i];
    }
    return any != 0;
}

/* Fills the logits of a block without a valid slot. */
DEVICE void fill_block(const struct indexer_scores_fwd_params *params, int query, int first) {
#pragma unroll
    for (int i = 0; i < VOTES; ++i) {
        const int slot = first + i * 32 + (int)(threadIdx.x % 32);
        for (int group = 0; group < HEAD_GROUPS; ++group) {
            if (slot < params->work.width && slot % BLOCK_MAX == 0) {
                store_logit((stored_logit *)params->logits + query * params->logits_token_stride +
                                group * params->logits_group_stride + slot / BLOCK_MAX,
                            LOWEST_LOGIT);
            }
        }
        if (KEYS && params->keys && slot < params->work.width && slot % BLOCK_MAX == 0) {
            params->keys[query * params->keys_token_stride + slot / BLOCK_MAX] = MASKED;
        }
    }
}

/* ---- gather: copies -------------------------------------------------------------------------- */

/* Starts the copies of a block's keys to `to`. ROW_LANES lanes copy a row of a tile, the warp LANE_ROWS
 * rows of each of four atoms at a time. Masked slots become zeros without a read. `columns`: the lane's
 * address in row 0. */
DEVICE void copy_keys(const struct slot_block *block, u32 to, const char *columns, u32 row_bytes) {
    const u32 lane = threadIdx.x % 32, own = lane / ROW_LANES % LANE_ROWS; /* row of the lane's */
    const u32 place = to + lane / 8 * ATOM_BYTES + own * TILE_PITCH + (lane % ROW_LANES ^ own) * 16;
#pragma unroll
    for (int i = 0; i < VOTES * ROW_LANES; ++i) {
        /* From row `first` of its atom on, in the lower or upper half of the part. */
        const int first = i % ROW_LANES * LANE_ROWS, vote = i / ROW_LANES;
        const int number =
            __shfl_sync((u32)ALL_LANES, block->values[vote], first + (int)own, EIGHT);
        const char *const source = columns + (u64)(u32)number * row_bytes;
        const u32 row =
            (place ^ (u32)(first * 16)) +
            (u32)(vote / 2 * PART_BYTES + vote % 2 * (TILE_BYTES / 2) + first * TILE_PITCH);
#pragma unroll
        for (int tile = 0; tile < ROW_TILES; ++tile) {
            cp_async_16(row + (u32)(tile * TILE_BYTES), source + tile * TILE_PITCH,
                        number == MASKED ? 0 : 16);
        }
    }
}

/* Starts the copy of the warp's share of a query's heads and stores its share of the weights. */
DEVICE void load_query(const struct indexer_scores_fwd_params *params, int query, int group,
                       struct ring_place *place) {
    enum { CHUNKS = ROW_BYTES / 16, LOADERS = WARPGROUPS * 32 };
    const int loader = group * 32 + (int)(threadIdx.x % 32), full = QUERY_FULL + place->index;
    const u32 to = shared_address(query_heads(place->index));
    mbarrier_wait(barrier_at(QUERY_EMPTY + place->index), place->parity ^ 1);
    for (int head = loader; head < BLOCK_HEADS; head += LOADERS) {
        query_weights(place->index)[head] = weight_of(params, query, head);
    }
#pragma unroll 1
    for (int i = loader; i < BLOCK_HEADS * CHUNKS; i += LOADERS) {
        const int head = i / CHUNKS, chunk = i % CHUNKS;
        const char *const row =
            (const char *)params->q + ELEMENT_BYTES * (query * params->q_token_stride +
                                                       head_of(head) * params->q_head_stride);
        cp_async_16(to + (u32)(chunk / 8 * QUERY_TILE_BYTES + head * TILE_PITCH +
                               ((chunk ^ head) & 7) * 16),
                    row + chunk * 16, 16);
    }
    cp_async_arrive_noinc(barrier_at(full));
    arrive_warp(barrier_at(full), 1);
    ring_advance(place, QUERIES);
}

/* Announces a block to the math warpgroup and starts the copies of its keys. `columns`: as in
 * copy_keys. */
DEVICE void push_block(const struct indexer_scores_fwd_params *params,
                       const struct slot_block *block, bool any, const char *columns, int query,
                       int first, int group, struct ring_place *place) {
    const int number = group * STAGES + place->index;
    mbarrier_wait(barrier_at(EMPTY + number), place->parity ^ 1);
    if (FP8) {
#pragma unroll
        for (int i = 0; i < VOTES; ++i) {
            block_rows(number)[i * 32 + threadIdx.x % 32] = block->values[i];
        }
        __syncwarp((u32)ALL_LANES); /* lane 0's arrival releases them */
    }
    if (threadIdx.x % 32 == 0) {
        struct block_word *const word = block_word(number);
        word->query = query;
        word->first = first;
#pragma unroll
        for (int i = 0; i < VOTES; ++i) {
            word->votes[i] = block->votes[i];
        }
        mbarrier_arrive(barrier_at(FULL + number));
    }
    if (any) {
        copy_keys(block, shared_address(block_keys(number)), columns, params->k_row_bytes);
    }
    cp_async_arrive_noinc(barrier_at(FULL + number));
    ring_advance(place, STAGES);
}

/* A gather warp. The next block's slots are loaded while one is copied. */
DEVICE void run_gather(const struct indexer_scores_fwd_params *params, int group) {
    const struct work_params *const work = &params->work;
    const u64 first_key = (u64)params->k + threadIdx.x % ROW_LANES * 16;
    const char *const columns =
        (const char *)((u64)keep((u32)(first_key >> 32)) << 32 | keep((u32)first_key));
    struct ring_place place = {0, 0}, query_place = {0, 0};
    struct slot_row row = open_row(params, (int)blockIdx.x);
    struct slot_block ahead;
    int iteration = 0;
    load_block(&ahead, &row, first_slot(group, iteration));
#pragma unroll 1
    for (u32 query = blockIdx.x; query < (u32)work->tokens; query += gridDim.x, ++iteration) {
        const int begin = first_slot(group, iteration);
        load_query(params, (int)query, group, &query_place);
#pragma unroll 1
        for (int first = begin; first == begin || first < work->width; first += STEP_SLOTS) {
            struct slot_block block = ahead;
            const bool any = vote_block(&block, &row);
            if (first + STEP_SLOTS < work->width) {
                load_block(&ahead, &row, first + STEP_SLOTS);
            } else if (query + gridDim.x < (u32)work->tokens) {
                row = open_row(params, (int)(query + gridDim.x));
                load_block(&ahead, &row, first_slot(group, iteration + 1));
            }
            if (any || first == begin) {
                push_block(params, &block, any, columns, (int)query, first, group, &place);
            } else {
                fill_block(params, (int)query, first);
            }
        }
    }
    push_block(params, &ahead, false, columns, NO_QUERY, 0, group, &place);
    cp_async_wait_all();
}

/* ---- math ------------------------------------------------------------------------------------ */

/* The product of 64 slots by BLOCK_HEADS heads. */
DEVICE void multiply(float *x, u64 a, u64 b, int accumulate) {
    // clang-format off
    if (FP8) {
        wgmma_fp8_ss_n${BLOCK_HEADS}(x, a, b, accumulate);
    } else {
        wgmma_ss_n${BLOCK_HEADS}_t00(x, a, b, accumulate);
    }
    // clang-format on
}

/* A math warpgroup's current query. */
struct math {
    int query;               /* NO_QUERY before the first one */
    struct ring_place heads; /* the next query's buffer */
    u64 descriptor;          /* of this query's heads */
    float weights[EIGHTS][2];
    struct logit_row row;
};

/* Releases the previous query, if any; waits for the next one and loads its weights. */
DEVICE void begin_query(const struct indexer_scores_fwd_params *params, struct math *math,
                        int query) {
    const int buffer = (int)warp_reduce_or((u32)math->heads.index); /* uniform for the compiler */
    if (math->query != NO_QUERY) {
        arrive_warp(barrier_at(QUERY_EMPTY + (buffer ^ 1)), 1);
    }
    mbarrier_wait(barrier_at(QUERY_FULL + buffer), math->heads.parity);
    math->query = query;
    math->descriptor = tile_descriptor(query_heads(buffer));
    math->row = open_logits(params, query);
#pragma unroll
    for (int i = 0; i < EIGHTS; ++i) {
        const float *const pair = query_weights(buffer) + i * 8 + thread_head();
        math->weights[i][0] = pair[0];
        math->weights[i][1] = pair[1];
    }
    ring_advance(&math->heads, QUERIES);
}

/* Issues X = K Q^T of one part of a block. */
DEVICE void issue_part(float *x, int number, int part, u64 b) {
    const u64 a = tile_descriptor(block_keys(number) + (u32)(part * PART_BYTES));
#pragma unroll
    for (int step = 0; step < ROW_BYTES / STEP_BYTES; ++step) {
        const int tile = step / 4, columns = step % 4 * STEP_BYTES;
        multiply(x, descriptor_advance(a, (u32)(tile * TILE_BYTES + columns)),
                 descriptor_advance(b, (u32)(tile * QUERY_TILE_BYTES + columns)), step > 0);
    }
    wgmma_commit();
}

DEVICE void add_part(float (*sums)[2], const float *x, const struct math *math) {
#pragma unroll
    for (int i = 0; i < EIGHTS; ++i) {
        add_eight(sums[i / SUM_EIGHTS], &x[i * 4], math->weights[i], i % SUM_EIGHTS * 8);
    }
}

/* X of a block and its sums over heads; one part's sums overlap the next one's product. */
DEVICE void multiply_block(float (*sums)[HEAD_GROUPS][2], const struct math *math, int number) {
    float x[PARTS][VALUES];
    fence_proxy_async();
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        issue_part(x[part], number, part, math->descriptor);
    }
    if (PARTS > 1) {
        wgmma_wait(1);
        add_part(sums[0], x[0], math);
    }
    wgmma_wait(0);
    arrive_warp(barrier_at(EMPTY + number), 1);
    add_part(sums[PARTS - 1], x[PARTS - 1], math);
}

/* The largest logits of a math warpgroup's warps. */
DEVICE float *largest_at(int warpgroup, int group) {
    return (float *)(arena + LARGEST_OFFSET) + (warpgroup * HEAD_GROUPS + group) * RUNS;
}

enum {
    BLOCK_RUNS = WIDE_BLOCKS ? BLOCK_MAX / WARP_SLOTS : 1, /* of a block of BLOCK_MAX slots */
    WIDE = WIDE_BLOCKS ? BLOCK_KEYS / BLOCK_MAX : 1        /* such blocks in a block */
};

/* With WIDE_BLOCKS and KEYS: writes the best rows of those blocks of BLOCK_MAX slots whose first largest
 * logit is among the warp's. best: the first of these, by part. By one lane of each warp. */
DEVICE void write_keys(const struct indexer_scores_fwd_params *params, const struct math *math,
                       int first, int warpgroup, const int *best) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const int run = part * 4 + (int)(threadIdx.x % WARPGROUP / 32), block = run / BLOCK_RUNS;
        const float *const runs = largest_at(warpgroup, 0) + block * BLOCK_RUNS;
        int winner = 0;
#pragma unroll
        for (int i = 1; i < BLOCK_RUNS; ++i) {
            winner = runs[i] > runs[winner] ? i : winner;
        }
        if (winner == run % BLOCK_RUNS && first + block * BLOCK_MAX < params->work.width) {
            math->row.keys[first / BLOCK_MAX + block] =
                runs[winner] > LOWEST_LOGIT
                    ? row_of_slot(&math->row, first + run * WARP_SLOTS + best[part])
                    : MASKED;
        }
    }
}

/* With WIDE_BLOCKS: writes the largest logits of a block's blocks of BLOCK_MAX slots. By the whole
 * warpgroup. `best`: with KEYS, as above. */
DEVICE void write_largest(const struct indexer_scores_fwd_params *params, const struct math *math,
                          int first, int warpgroup, const int *best) {
    barrier_sync(LARGEST_BARRIER + warpgroup, WARPGROUP); /* the warps have stored theirs */
    for (int i = (int)(threadIdx.x % WARPGROUP); i < HEAD_GROUPS * WIDE; i += WARPGROUP) {
        const int group = i / WIDE, block = i % WIDE;
        const float *const runs = largest_at(warpgroup, group) + block * BLOCK_RUNS;
        float largest = runs[0];
#pragma unroll
        for (int run = 1; run < BLOCK_RUNS; ++run) {
            largest = fmaxf(largest, runs[run]);
        }
        if (first + block * BLOCK_MAX < params->work.width) {
            store_logit(math->row.logits + group * params->logits_group_stride + first / BLOCK_MAX +
                            block,
                        largest);
        }
    }
    if (KEYS && math->row.keys && threadIdx.x % 32 == 0) {
        write_keys(params, math, first, warpgroup, best);
    }
    barrier_sync(LARGEST_BARRIER + warpgroup, WARPGROUP); /* they have been read */
}

/* The logits of a block. `offset`: the slot in a part that the lane writes. */
DEVICE void compute_block(const struct indexer_scores_fwd_params *params, const struct math *math,
                          int number, int offset) {
    const bool lower = threadIdx.x % WARPGROUP < WARPGROUP / 2; /* the warpgroup's half of each
                                                                   part's slots */
    const struct block_word *const word = block_word(number);
    const int first = word->first;
    float sums[PARTS][HEAD_GROUPS][2], scales[PARTS];
    u32 votes[PARTS], any = 0; /* votes: of the warp's half */
    int best[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const u32 low = word->votes[2 * part], high = word->votes[2 * part + 1];
        for (int group = 0; group < HEAD_GROUPS; ++group) {
            sums[part][group][0] = sums[part][group][1] = 0.0f;
        }
        votes[part] = lower ? low : high;
        scales[part] = 1.0f;
        if (FP8 && (votes[part] >> offset % 32 & 1) && offset < PART_KEYS) {
            scales[part] = params->k_scale[block_rows(number)[part * PART_KEYS + offset]];
        }
        any |= low | high;
    }
    if (any != 0) {
        multiply_block(sums, math, number);
    } else {
        arrive_warp(barrier_at(EMPTY + number), 1);
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll
        for (int group = 0; group < HEAD_GROUPS; ++group) {
            if (WIDE_BLOCKS) {
                const float logit = finish_logit(sums[part][group], scales[part]);
                const bool valid = votes[part] >> offset % 32 & 1;
                const float largest = largest_of_run(logit, valid);
                best[part] = KEYS ? first_of_run(logit, valid, largest) : 0;
                if (threadIdx.x % 32 == 0) { /* its slot is the warp's first one */
                    largest_at(number / STAGES, group)[part * 4 + offset / WARP_SLOTS] = largest;
                }
            } else {
                write_logit(&math->row, group * params->logits_group_stride,
                            first + part * PART_KEYS + offset, params->work.width,
                            sums[part][group], votes[part] >> offset % 32 & 1, scales[part]);
            }
        }
    }
    if (WIDE_BLOCKS) {
        write_largest(params, math, first, number / STAGES, best);
    }
}

DEVICE void run_math(const struct indexer_scores_fwd_params *params, int group) {
    const int warp = (int)(threadIdx.x % WARPGROUP / 32);
    const int offset = (int)keep((u32)(warp * 16 + written_slot()));
    struct ring_place place = {0, 0};
    struct math math = {
        NO_QUERY, {0, 0}, 0, {{0.0f, 0.0f}}, {(stored_logit *)params->logits, 0, 0}};
    for (;;) {
        const int number = group * STAGES + place.index;
        mbarrier_wait(barrier_at(FULL + number), place.parity);
        const int query = block_word(number)->query;
        if (query == NO_QUERY) {
            return;
        }
        if (query != math.query) {
            begin_query(params, &math, query);
        }
        compute_block(params, &math, number, offset);
        ring_advance(&place, STAGES);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_scores_fwd_params params) {
    initialise();
    const int warp = (int)warp_reduce_or(threadIdx.x / 32), warpgroup = warp / 4;
    if (warpgroup < WARPGROUPS) {
        registers_increase(MATH_REGISTERS);
        run_math(&params, warpgroup);
    } else {
        registers_decrease(GATHER_REGISTERS);
        if (warp % 4 < WARPGROUPS) {
            run_gather(&params, warp % 4);
        }
    }
}
