//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/warpgroup_slots.cuh
//@use common/quad.cuh
//@use common/ring.cuh
//@use common/softmax.cuh
//@use common/warp_arrival.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/named_barrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/stmatrix.cuh
//@use ptx/thread.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs.cuh n = 64, tb = 0
//@use ptx/wgmma_ss.cuh n = 64, ta = 0, tb = 0
//@use ptx/wgmma_ss.cuh n = 128, ta = 0, tb = 1
//@use sparse_attn_fwd.params.h
/*
 * Sparse attention forward with wgmma, 64 heads at a time: heads are the matrices' rows.
 * Mathematics and shapes: include/smelt/sparse_attn.h.
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th item (a query and 64 of its
 * heads; common/work.cuh), so that the halves of a query's 128 heads run side by side. Four
 * warpgroups, each with its role; none waits for another but through the barriers below:
 *
 *   scores   S[64, 64] = Q K^T and its softmax; most of Q stays in registers, the rest in QUERY
 *   output   two of them, DV / 2 columns each: O[64, DV / 2] += P V, in registers
 *   gather   scans the slots and copies the rows they name, STAGES key blocks ahead, across queries
 *
 * Q travels through the ring of stages like a key block, its heads as the rows; the scores'
 * warpgroup takes it out at once. The next query's slots, Q and first rows are on their way while
 * the last blocks are computed, and its first scores are while O is written.
 *
 * What P is relative to, a row's maximum, begins as the true one of the first key block, so that
 * the largest P there is 1 and loses nothing when it is rounded to bf16. It moves only when the
 * true one is more than RESCALE_THRESHOLD above, and then by an integer (all of this in powers of
 * two): what O's rows are multiplied by is a power of two and fits into a byte.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is 64 rows of 64 columns, 128-byte
 * swizzled:
 *   LATENT        [STAGES][LATENT_TILES] tiles: the columns that are key and value
 *   ROPE          one tile: the columns that are key alone
 *   PROBABILITIES [P_BUFFERS] tiles: P, BLOCK_HEADS by BLOCK_KEYS
 *   QUERY         [STEPS - REGISTER_STEPS][BLOCK_HEADS][16]: the last k-steps of Q, 32-byte
 * swizzled EXPONENTS     [P_BUFFERS][BLOCK_HEADS] bytes: what O's rows are multiplied by before P V
 * is added DENOMINATORS  [P_BUFFERS][BLOCK_HEADS] fp32: of a query, with its last block; 0 without
 * valid slots WORDS         [STAGES]: what a key block is (count, FIRST_BLOCK, LAST_BLOCK) RING,
 * COUNTS: common/warpgroup_slots.cuh; RANGE: common/work.cuh
 *
 * Barriers (parity counts uses; stages and buffers are used in turn, a stage s by
 * key blocks and Q, a buffer b by key blocks alone):
 *   barrier      count  who arrives                                   who waits
 *   FULL[s]       129   gather: every thread when its copies have     scores
 *                       landed, one for the word
 *   ROPE_FULL     128   gather: every thread when its copies landed   scores, before those k-steps
 *   ROPE_FREE       4   scores: warps, Q K^T complete, or Q taken     gather
 *   P_FULL[b]       4   scores: warps, P and its exponents written    output
 *   TURN[b]         4   scores: warps, next Q K^T almost issued (or   output, before P V, so that
 *                       at once after a query's last block)           Q K^T need not share
 *   P_FREE[b]       8   output: warps, P V complete                   scores, before the next P
 *   EMPTY_LOW[s]    8   output: warps, rows 0 to 31 used; of Q's      gather
 *                       stage the scores' warps twice each, Q taken
 *   EMPTY_HIGH[s]   8   the same, all rows                            gather
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * Only who reads through the async proxy what others wrote by plain stores or cp.async has the
 * fence: wgmma's warpgroups, after the wait. A writer's would wait for all its loads and stores.
 * Named barriers: 1 the scores' warpgroup, 2 the gather's.
 *
 * Knobs: STAGES, TURN_STEPS, OUTPUT_REGISTERS and GATHER_REGISTERS (and with them the scores' and
 * REGISTER_STEPS); legal values and the rule that picks them:
 * src/codegen/families/sparse_attn_fwd_sm90.c.
 */

enum {
    WARPGROUP = 128, /* threads */
    SCORES_WARPGROUP = 0,
    OUTPUT_WARPGROUP = 1, /* and the next */
    GATHER_WARPGROUP = 3,
    SCORES_BARRIER = 1, /* a named one */

    BLOCK_HEADS = 64, /* of an item: a product's rows */
    TILE_ROWS = 64,   /* heads or keys */
    TILE_COLUMNS = 64,
    TILE_PITCH = 2 * TILE_COLUMNS, /* bytes of a row */
    TILE_BYTES = TILE_ROWS * TILE_PITCH,
    ATOM_BYTES = 8 * TILE_PITCH,     /* eight rows of a tile */
    STEP_BYTES = 32,                 /* 16 columns of a row: a k-step of Q K^T */
    KEY_STEP_BYTES = 2 * ATOM_BYTES, /* 16 keys of a tile: a k-step of P V */
    LATENT_TILES = DV / TILE_COLUMNS,
    STAGE_BYTES = LATENT_TILES * TILE_BYTES,
    STEPS = DQK / 16,
    LATENT_STEPS = DV / 16,
    LATENT_SLICES = LATENT_STEPS - REGISTER_STEPS, /* k-steps of Q in shared memory, without rope */
    SLICE_BYTES = BLOCK_HEADS * STEP_BYTES,        /* of one of them */
    ROPE_STEPS = STEPS - LATENT_STEPS,
    LAST_HEAD = HEADS - 1,
    OUTPUT_COLUMNS = DV / 2, /* of a warpgroup */
    OUTPUT_TILES = LATENT_TILES / 2,

    SCORE_VALUES = 32,                    /* S of a thread */
    OUTPUT_VALUES = OUTPUT_COLUMNS / 2,   /* O of a thread */
    OUTPUT_HALF = OUTPUT_VALUES / 2,      /* of one wgmma */
    QUERY_FRAGMENTS = REGISTER_STEPS * 4, /* registers */
    QUAD_BYTES = 4 * 16                   /* of a row of O, stored at once by four threads */
};

/* Places in BARRIERS. */
enum {
    FULL = 0,
    EMPTY_LOW = FULL + STAGES,
    EMPTY_HIGH = EMPTY_LOW + STAGES,
    P_FULL = EMPTY_HIGH + STAGES,
    TURN = P_FULL + P_BUFFERS,
    P_FREE = TURN + P_BUFFERS,
    ROPE_FULL = P_FREE + P_BUFFERS,
    ROPE_FREE = ROPE_FULL + 1
};

/* The longest step of a maximum: its factor is the least that a byte of exponent expresses; what a
 * still smaller one would leave of the old sum makes no difference to the new one. */
#define LONGEST_STEP 126.0f
/* Added to a number from 0 to 2^22 and taken away again, it leaves the nearest integer: two
 * additions, where ceilf is an instruction that the block's critical path would wait for. */
#define ROUND_TO_INTEGER 12582912.0f

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

/* The word of a key block: how many keys it has, and where it stands in its query. */
enum { FIRST_BLOCK = 256, LAST_BLOCK = 512, COUNT_MASK = 255 };

DEVICE int *block_word(int stage) {
    return (int *)(arena + WORDS_OFFSET) + stage;
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), WARPGROUP + 1);
            mbarrier_init(barrier_at(EMPTY_LOW + stage), 8 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(EMPTY_HIGH + stage), 8 * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < P_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(P_FULL + buffer), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(TURN + buffer), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(P_FREE + buffer), 8 * WARP_ARRIVALS);
        }
        mbarrier_init(barrier_at(ROPE_FULL), WARPGROUP);
        mbarrier_init(barrier_at(ROPE_FREE), 4 * WARP_ARRIVALS);
    }
    __syncthreads();
}

/* Where a row of an item's Q begins. Rows past the last head repeat it, so that what is read is
 * there; what is computed of them is not stored. */
DEVICE const char *query_row(const struct sparse_attn_fwd_params *params, const struct work *work,
                             int row) {
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
    const int head = minimum(work->head_block * BLOCK_HEADS + row, LAST_HEAD);
    return (const char *)params->q +
           2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                head * params->q_head_stride);
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* A thread's first 16 bytes in a tile. Eight threads copy a row, 16 rows at once. Registers are so
 * short here that what follows from a thread's number is computed anew for each block. */
DEVICE u32 thread_chunk(u32 thread) {
    return shared_address(thread / 8 * TILE_PITCH + ((thread % 8) ^ (thread / 8 % 8)) * 16);
}

/* Waits until a stage's lower half is free, and says what will be in it. */
DEVICE void claim_stage(const struct ring_place *stage, int word) {
    mbarrier_wait(barrier_at(EMPTY_LOW + stage->index), stage->parity ^ 1);
    if (threadIdx.x % WARPGROUP == 0) {
        *block_word(stage->index) = word;
        mbarrier_arrive(barrier_at(FULL + stage->index));
    }
}

/* Starts the copy of a row's latent columns: `from` with this thread's offset in the row; zeros
 * when it is not present. */
DEVICE void copy_row(u32 to, const char *from, bool present) {
#pragma unroll
    for (int k = 0; k < LATENT_TILES; ++k) {
        cp_async_16(to + (u32)(k * TILE_BYTES), from + k * TILE_PITCH, present ? 16 : 0);
    }
}

/*
 * Copies a key block into its stage, when the stage is free (its lower half is before the upper
 * one), and the rope columns into theirs. Rows past the word's count become zeros. `source`: this
 * thread's 16 bytes of KV row 0; `taken`: the block's first entry in the ring.
 */
DEVICE void fill_keys(const struct sparse_attn_fwd_params *params, const char *source,
                      const struct ring_place *stage, int *rope_parity, int taken, int word) {
    const int *const ring = (const int *)(arena + RING_OFFSET);
    const u32 thread = thread_number() % WARPGROUP, chunk = thread_chunk(thread);
    const u32 latent = chunk + (u32)(LATENT_OFFSET + stage->index * STAGE_BYTES);
    const int first = (int)(thread / 8), count = word & COUNT_MASK;
    claim_stage(stage, word);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (i == 2) {
            mbarrier_wait(barrier_at(EMPTY_HIGH + stage->index), stage->parity ^ 1);
        }
        const bool present = first + i * 16 < count;
        const u32 row = present ? (u32)ring[(taken + first + i * 16) & RING_MASK] : 0;
        copy_row(latent + (u32)(i * 16 * TILE_PITCH), source + (u64)row * params->kv_row_bytes,
                 present);
    }
    cp_async_arrive_noinc(barrier_at(FULL + stage->index));
    if (ROPE_STEPS == 0) {
        return;
    }
    mbarrier_wait(barrier_at(ROPE_FREE), *rope_parity ^ 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const bool present = first + i * 16 < count;
        const u32 row = present ? (u32)ring[(taken + first + i * 16) & RING_MASK] : 0;
        cp_async_16(chunk + (u32)(ROPE_OFFSET + i * 16 * TILE_PITCH),
                    source + (u64)row * params->kv_row_bytes + DV * 2, present ? 16 : 0);
    }
    cp_async_arrive_noinc(barrier_at(ROPE_FULL));
    *rope_parity ^= 1;
}

/* The same for an item's Q: its heads are the rows. */
DEVICE void fill_query(const struct sparse_attn_fwd_params *params, const struct work *work,
                       struct ring_place *stage) {
    const u32 thread = thread_number() % WARPGROUP, chunk = thread_chunk(thread);
    const u32 latent = chunk + (u32)(LATENT_OFFSET + stage->index * STAGE_BYTES);
    const int first = (int)(thread / 8);
    claim_stage(stage, 0);
    mbarrier_wait(barrier_at(EMPTY_HIGH + stage->index), stage->parity ^ 1);
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
        copy_row(latent + (u32)(i * 16 * TILE_PITCH),
                 query_row(params, work, first + i * 16) + thread % 8 * 16, true);
    }
    cp_async_arrive_noinc(barrier_at(FULL + stage->index));
    ring_advance(stage, STAGES);
}

/* Q's rope columns into theirs. */
DEVICE void fill_query_rope(const struct sparse_attn_fwd_params *params, const struct work *work,
                            int *rope_parity) {
    const u32 thread = thread_number() % WARPGROUP, chunk = thread_chunk(thread);
    const int first = (int)(thread / 8);
    mbarrier_wait(barrier_at(ROPE_FREE), *rope_parity ^ 1);
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
        cp_async_16(chunk + (u32)(ROPE_OFFSET + i * 16 * TILE_PITCH),
                    query_row(params, work, first + i * 16) + DV * 2 + thread % 8 * 16, 16);
    }
    cp_async_arrive_noinc(barrier_at(ROPE_FULL));
    *rope_parity ^= 1;
}

/* The gather's warpgroup. A block is filled when it is known whether it is the query's last; what
 * the first one needs is scanned while the rope tile, or else Q's stage, is not free yet. A query
 * without valid slots has one block of no keys. */
DEVICE void run_gather(const struct sparse_attn_fwd_params *params) {
    registers_decrease(GATHER_REGISTERS);
    struct ring_place stage = {0, 0};
    int rope_parity = 0;
    struct warpgroup_scan scan;
    struct work work = first_work(&params->work);
    warpgroup_scan_open(&scan, &params->work, &work);
    while (work.query >= 0) {
        const char *const source =
            (const char *)params->kv +
            2 * (work_batch(&params->work, &work) * params->kv_batch_stride) +
            thread_number() % 8 * 16;
        int entries = 0, taken = 0, position = FIRST_BLOCK;
        bool ended = false;
        if (ROPE_STEPS > 0) {
            fill_query(params, &work, &stage);
        }
        while (!ended) {
            do {
                entries = warpgroup_scan_more(&scan, params->work.rows, entries);
                ended = warpgroup_scan_ended(&scan, entries);
            } while (!ended && entries - taken <= BLOCK_KEYS);
            if (!(position & FIRST_BLOCK)) {
                /* Q is on its way. */
            } else if (ROPE_STEPS > 0) {
                fill_query_rope(params, &work, &rope_parity);
            } else {
                fill_query(params, &work, &stage);
            }
            if (ended) {
                work = next_work(&params->work, &work);
                warpgroup_scan_open(&scan, &params->work, &work);
            }
            while (entries - taken > BLOCK_KEYS || (ended && !(position & LAST_BLOCK))) {
                const int count = minimum(entries - taken, BLOCK_KEYS);
                position |= ended && entries - taken <= BLOCK_KEYS ? LAST_BLOCK : 0;
                fill_keys(params, source, &stage, &rope_parity, taken, count | position);
                ring_advance(&stage, STAGES);
                taken += count;
                position &= ~FIRST_BLOCK;
            }
        }
    }
    cp_async_wait_all();
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* This thread's row of Q: its 16 bytes in a tile, for ldmatrix, and in a slice, for stmatrix. */
DEVICE u32 query_in_tile(void) {
    const u32 thread = thread_number(), lane = thread % 32, row = thread / 32 * 16 + lane % 16;
    return row * TILE_PITCH + ((lane / 16) ^ (lane % 8)) * 16;
}

DEVICE u32 query_in_slice(void) {
    const u32 thread = thread_number(), lane = thread % 32, row = thread / 32 * 16 + lane % 16;
    return row * STEP_BYTES + ((lane / 16) ^ (row / 4 % 2)) * 16;
}

/*
 * Takes the latent columns of Q out of their stage: the first REGISTER_STEPS k-steps into
 * registers, as A fragments, the others into QUERY, which the warpgroup has read for the last time.
 * All loads of those come before their stores, which would else each wait for its own.
 */
DEVICE void take_query(u32 *query, int stage) {
    const u32 tiles = shared_address((u32)(LATENT_OFFSET + stage * STAGE_BYTES) + query_in_tile());
    const u32 slices = shared_address(QUERY_OFFSET + query_in_slice());
    u32 moved[LATENT_SLICES * 4];
#pragma unroll
    for (int k = 0; k < LATENT_SLICES; ++k) {
        const int step = REGISTER_STEPS + k;
        ldmatrix_x4(&moved[k * 4],
                    (tiles + (u32)(step / 4 * TILE_BYTES)) ^ (u32)(step % 4 * STEP_BYTES));
    }
#pragma unroll
    for (int k = 0; k < LATENT_SLICES; ++k) {
        stmatrix_x4(slices + (u32)(k * SLICE_BYTES), &moved[k * 4]);
    }
#pragma unroll
    for (int k = 0; k < REGISTER_STEPS; ++k) {
        ldmatrix_x4(&query[k * 4], (tiles + (u32)(k / 4 * TILE_BYTES)) ^ (u32)(k % 4 * STEP_BYTES));
    }
}

/* The rope columns of Q, into QUERY. */
DEVICE void take_query_rope(void) {
    const u32 tile = shared_address(ROPE_OFFSET + query_in_tile());
    const u32 slices =
        shared_address(QUERY_OFFSET + LATENT_SLICES * SLICE_BYTES + query_in_slice());
    u32 moved[4 * 4];
#pragma unroll
    for (int k = 0; k < ROPE_STEPS; ++k) {
        ldmatrix_x4(&moved[k * 4], tile ^ (u32)(k * STEP_BYTES));
    }
#pragma unroll
    for (int k = 0; k < ROPE_STEPS; ++k) {
        stmatrix_x4(slices + (u32)(k * SLICE_BYTES), &moved[k * 4]);
    }
}

/* Begins a query: waits for its Q, takes it and gives its stage back. */
DEVICE void begin_query(u32 *query, struct ring_place *stage, int *rope_parity) {
    mbarrier_wait(barrier_at(FULL + stage->index), stage->parity);
    take_query(query, stage->index);
    arrive_warp(barrier_at(EMPTY_LOW + stage->index), 2);
    arrive_warp(barrier_at(EMPTY_HIGH + stage->index), 2);
    if (ROPE_STEPS > 0) {
        mbarrier_wait(barrier_at(ROPE_FULL), *rope_parity);
        *rope_parity ^= 1;
        take_query_rope();
        arrive_warp(barrier_at(ROPE_FREE), 1);
    }
    fence_proxy_async();
    barrier_sync(SCORES_BARRIER, WARPGROUP);
    ring_advance(stage, STAGES);
}

/* The descriptor of k-step `step` in the latent tiles that begin at `keys`. */
DEVICE u64 latent_step(u64 keys, int step) {
    return descriptor_advance(keys, (u32)(step / 4 * TILE_BYTES + step % 4 * STEP_BYTES));
}

/* Issues S = Q K^T for the block in a stage, in two groups; the second has TURN_STEPS k-steps. */
DEVICE void issue_scores(float *s, const u32 *query, int stage, int *rope_parity) {
    const u64 keys = shared_descriptor(shared_address((u32)(LATENT_OFFSET + stage * STAGE_BYTES)),
                                       16, ATOM_BYTES, 128);
    const u64 slices =
        shared_descriptor(shared_address(QUERY_OFFSET), 16, 8 * STEP_BYTES, STEP_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < REGISTER_STEPS - TURN_STEPS; ++k) {
        wgmma_rs_n64_t00(s, &query[k * 4], latent_step(keys, k), k > 0);
    }
#pragma unroll
    for (int k = REGISTER_STEPS; k < LATENT_STEPS; ++k) {
        wgmma_ss_n64_t00(s, descriptor_advance(slices, (u32)((k - REGISTER_STEPS) * SLICE_BYTES)),
                         latent_step(keys, k), 1);
    }
    if (ROPE_STEPS > 0) {
        mbarrier_wait(barrier_at(ROPE_FULL), *rope_parity);
        *rope_parity ^= 1;
        fence_proxy_async();
        const u64 rope = shared_descriptor(shared_address(ROPE_OFFSET), 16, ATOM_BYTES, 128);
#pragma unroll
        for (int k = 0; k < ROPE_STEPS; ++k) {
            wgmma_ss_n64_t00(s,
                             descriptor_advance(
                                 slices, (u32)((k + LATENT_STEPS - REGISTER_STEPS) * SLICE_BYTES)),
                             descriptor_advance(rope, (u32)(k * STEP_BYTES)), 1);
        }
    }
    wgmma_commit();
#pragma unroll
    for (int k = REGISTER_STEPS - TURN_STEPS; k < REGISTER_STEPS; ++k) {
        wgmma_rs_n64_t00(s, &query[k * 4], latent_step(keys, k), 1);
    }
    wgmma_commit();
}

/* What the softmax of this thread's two heads has come to; in powers of two. */
struct softmax_rows {
    float maximum[2]; /* P is relative to it; or -inf */
    float highest[2]; /* the true maximum */
    float sum[2];     /* of this thread's exponentials */
};

/* Scores of keys past `count` become -inf. */
DEVICE void mask_scores(float *s, int count) {
    const int column = (int)(threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < SCORE_VALUES; ++i) {
        if (i / 4 * 8 + column + i % 2 >= count) {
            s[i] = MINUS_INFINITY;
        }
    }
}

/* The greatest of each of the thread's two heads' scores. */
DEVICE void row_maxima(const float *s, float *highest) {
    highest[0] = fmaxf(s[0], s[1]);
    highest[1] = fmaxf(s[2], s[3]);
#pragma unroll
    for (int i = 1; i < SCORE_VALUES / 4; ++i) {
        highest[0] = fmaxf(highest[0], fmaxf(s[4 * i], s[4 * i + 1]));
        highest[1] = fmaxf(highest[1], fmaxf(s[4 * i + 2], s[4 * i + 3]));
    }
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
        const float other[2] = {__shfl_xor_sync((u32)ALL_LANES, highest[0], mask),
                                __shfl_xor_sync((u32)ALL_LANES, highest[1], mask)};
        highest[0] = fmaxf(highest[0], other[0]);
        highest[1] = fmaxf(highest[1], other[1]);
    }
}

/* Scores -> P in place, sums, and what O's rows are multiplied by. (A row's first exponential is
 * what meets the factor: the sum by itself would hold the warp until that one is there.) */
DEVICE void softmax_block(float *s, struct softmax_rows *rows, float *factors, float scale_log2) {
    float highest[2], offset[2];
    row_maxima(s, highest);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        highest[r] *= scale_log2;
        rows->highest[r] = fmaxf(rows->highest[r], highest[r]);
        factors[r] = 1.0f;
        if (highest[r] > rows->maximum[r] + RESCALE_THRESHOLD) {
            const float rise = fminf(highest[r] - rows->maximum[r], LONGEST_STEP);
            const float step = rise + ROUND_TO_INTEGER - ROUND_TO_INTEGER;
            rows->maximum[r] = rise < LONGEST_STEP ? rows->maximum[r] + step : highest[r];
            factors[r] = exp2_approximate(-step);
        }
        offset[r] = rows->maximum[r] == MINUS_INFINITY ? 0.0f : -rows->maximum[r];
    }
#pragma unroll
    for (int i = 0; i < SCORE_VALUES; ++i) {
        s[i] = exp2_approximate(fmaf(s[i], scale_log2, offset[i / 2 % 2]));
        float *const sum = &rows->sum[i / 2 % 2];
        *sum = i < 4 && i % 2 == 0 ? fmaf(*sum, factors[i / 2], s[i]) : *sum + s[i];
    }
}

/* P as bf16, two to a word. */
DEVICE void pack_probabilities(u32 *p, const float *s) {
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 2; ++i) {
        p[i] = pack_bf16x2(s[2 * i], s[2 * i + 1]);
    }
}

/* `parity`, known no sooner than all of P: a wait would else begin, and hold the warp, before the
 * exponentials are computed. (No value of P has its sign bit set.) */
DEVICE int parity_after(int parity, const u32 *p) {
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 2; ++i) {
        all |= p[i];
    }
    return parity | (int)(all >> 31);
}

/* P and the exponents of the factors into a buffer. */
DEVICE void store_probabilities(const u32 *p, const float *factors, int buffer) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 base =
        shared_address((u32)(PROBABILITIES_OFFSET + buffer * TILE_BYTES) +
                       (warp * 16 + lane % 16) * TILE_PITCH + ((lane / 16) ^ (lane % 8)) * 16);
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 8; ++i) {
        stmatrix_x4(base ^ (u32)(i * STEP_BYTES), &p[4 * i]);
    }
    if (lane % 4 == 0) {
        unsigned char *const exponents =
            arena + EXPONENTS_OFFSET + buffer * BLOCK_HEADS + warp * 16 + lane / 4;
        exponents[0] = (unsigned char)(__float_as_int(factors[0]) >> 23);
        exponents[8] = (unsigned char)(__float_as_int(factors[1]) >> 23);
    }
}

/* After a query's last block: sums over the quad's threads, and the denominators for the output. */
DEVICE void store_denominators(const struct sparse_attn_fwd_params *params,
                               struct softmax_rows *rows, const struct work *work, int buffer) {
    const u32 thread = thread_number(), warp = thread / 32, lane = thread % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = (int)(warp * 16 + lane / 4) + 8 * r;
        rows->sum[r] += __shfl_xor_sync((u32)ALL_LANES, rows->sum[r], 1);
        rows->sum[r] += __shfl_xor_sync((u32)ALL_LANES, rows->sum[r], 2);
        float denominator = rows->sum[r];
        if (HAS_SINK) {
            const int head = minimum(work->head_block * BLOCK_HEADS + row, LAST_HEAD);
            denominator += exp2_approximate(params->sink[head] * LOG2_E - rows->maximum[r]);
        }
        if (lane % 4 == 0) {
            ((float *)(arena + DENOMINATORS_OFFSET))[buffer * BLOCK_HEADS + row] =
                rows->sum[r] == 0.0f ? 0.0f : denominator;
        }
    }
}

/* Then lse and max_logits. A sum is 0 without valid slots, else about 1 at least, or NaN, which
 * stays visible. */
DEVICE void store_statistics(const struct sparse_attn_fwd_params *params,
                             const struct softmax_rows *rows, const struct work *work) {
    const u32 thread = thread_number(), warp = thread / 32, lane = thread % 32;
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int head = work->head_block * BLOCK_HEADS + (int)(warp * 16 + lane / 4) + 8 * r;
        if (lane % 4 == 0 && head < HEADS) {
            params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                        head * params->lse_head_stride] =
                rows->sum[r] == 0.0f ? MINUS_INFINITY
                                     : (rows->maximum[r] + log2_approximate(rows->sum[r])) * LN_2;
            if (params->max_logits) {
                params->max_logits[batch * params->max_logits_batch_stride +
                                   token * params->max_logits_token_stride +
                                   head * params->max_logits_head_stride] = rows->highest[r] * LN_2;
            }
        }
    }
}

/* The scores' warpgroup. A query's statistics are written when the next one's Q is taken, for which
 * the gather waits. */
DEVICE void run_scores(const struct sparse_attn_fwd_params *params) {
    registers_increase(SCORES_REGISTERS);
    const float scale_log2 = params->scale * LOG2_E;
    struct ring_place stage = {0, 0}, buffer = {0, 0};
    int rope_parity = 0, last_buffer = 0;
    struct work work = first_work(&params->work);
    u32 query[QUERY_FRAGMENTS];
    if (work.query >= 0) {
        begin_query(query, &stage, &rope_parity);
    }
    while (work.query >= 0) {
        struct softmax_rows rows = {
            {MINUS_INFINITY, MINUS_INFINITY}, {MINUS_INFINITY, MINUS_INFINITY}, {0.0f, 0.0f}};
        int word;
        do {
            float s[SCORE_VALUES], factors[2];
            u32 p[SCORE_VALUES / 2];
            mbarrier_wait(barrier_at(FULL + stage.index), stage.parity);
            word = *block_word(stage.index);
            fence_proxy_async();
            issue_scores(s, query, stage.index, &rope_parity);
            wgmma_wait_1();
            if (!(word & FIRST_BLOCK)) {
                arrive_warp(barrier_at(TURN + last_buffer), 1);
            }
            wgmma_wait_0();
            if (ROPE_STEPS > 0) {
                arrive_warp(barrier_at(ROPE_FREE), 1);
            }
            if (word & LAST_BLOCK) {
                barrier_sync(SCORES_BARRIER, WARPGROUP); /* QUERY has been read */
            }
            if ((word & COUNT_MASK) < BLOCK_KEYS) {
                mask_scores(s, word & COUNT_MASK);
            }
            softmax_block(s, &rows, factors, scale_log2);
            pack_probabilities(p, s);
            mbarrier_wait(barrier_at(P_FREE + buffer.index), parity_after(buffer.parity ^ 1, p));
            store_probabilities(p, factors, buffer.index);
            if (word & LAST_BLOCK) {
                store_denominators(params, &rows, &work, buffer.index);
            }
            /* The proxy fence is the output's: here it would wait for Q to come. */
            arrive_warp(barrier_at(P_FULL + buffer.index), 1);
            if (word & LAST_BLOCK) {
                arrive_warp(barrier_at(TURN + buffer.index), 1);
            }
            last_buffer = buffer.index;
            ring_advance(&stage, STAGES);
            ring_advance(&buffer, P_BUFFERS);
        } while (!(word & LAST_BLOCK));
        const struct work next = next_work(&params->work, &work);
        if (next.query >= 0) {
            begin_query(query, &stage, &rope_parity);
        }
        store_statistics(params, &rows, &work);
        work = next;
    }
}

/* ---- output ---------------------------------------------------------------------------------- */

/* O's rows times the powers of two that the softmax asks for, unless all of the warp's are 1. */
DEVICE void rescale_output(float *o, int buffer) {
    enum { ONE = 127 }; /* the exponent of 1 */
    const int warp = (int)(threadIdx.x % WARPGROUP / 32), lane = (int)(threadIdx.x % 32);
    const unsigned char *const exponents =
        arena + EXPONENTS_OFFSET + buffer * BLOCK_HEADS + warp * 16 + lane / 4;
    const int upper = exponents[0], lower = exponents[8];
    if (__any_sync((u32)ALL_LANES, (upper & lower) != ONE)) {
        const float factors[2] = {__int_as_float(upper << 23), __int_as_float(lower << 23)};
#pragma unroll
        for (int i = 0; i < OUTPUT_VALUES; ++i) {
            o[i] *= factors[i / 2 % 2];
        }
    }
}

/* Issues o += P V, or o = P V for a query's first block, in two groups of 32 keys. `column`: the
 * warpgroup's first. */
DEVICE void issue_output(float *o, int stage, int buffer, int half, bool first) {
    const u64 p = shared_descriptor(
        shared_address((u32)(PROBABILITIES_OFFSET + buffer * TILE_BYTES)), 16, ATOM_BYTES, 128);
    const u64 v = shared_descriptor(shared_address((u32)(LATENT_OFFSET + stage * STAGE_BYTES +
                                                         half * OUTPUT_TILES * TILE_BYTES)),
                                    TILE_BYTES, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const u64 a = descriptor_advance(p, (u32)(k * STEP_BYTES));
        const u64 b = descriptor_advance(v, (u32)(k * KEY_STEP_BYTES));
        wgmma_ss_n128_t01(o, a, b, k > 0 || !first);
        wgmma_ss_n128_t01(&o[OUTPUT_HALF], a, descriptor_advance(b, OUTPUT_TILES / 2 * TILE_BYTES),
                          k > 0 || !first);
        if (k % 2 == 1) {
            wgmma_commit();
        }
    }
}

/* O over its denominators to global memory, 16 bytes a thread at a time; zeros over 0. */
DEVICE void store_output(const struct sparse_attn_fwd_params *params, const float *o,
                         const float *denominators, const struct work *work, int half) {
    const int warp = (int)(threadIdx.x % WARPGROUP / 32), lane = (int)(threadIdx.x % 32);
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int head = work->head_block * BLOCK_HEADS + warp * 16 + lane / 4 + 8 * r;
        const float inverse = denominators[r] == 0.0f ? 0.0f : 1.0f / denominators[r];
        char *const out = (char *)params->out +
                          2 * (batch * params->out_batch_stride + token * params->out_token_stride +
                               head * params->out_head_stride) +
                          half * OUTPUT_COLUMNS * 2 + lane % 4 * 16;
#pragma unroll
        for (int i = 0; i < OUTPUT_VALUES / 16; ++i) {
            u32 x[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float *const pair = &o[i * 16 + k * 4 + 2 * r];
                x[k] = pack_bf16x2(pair[0] * inverse, pair[1] * inverse);
            }
            transpose_quad(x);
            if (head < HEADS) {
                store_streaming_16(out + i * QUAD_BYTES, x);
            }
        }
    }
}

/* One of the two output warpgroups: columns half * DV / 2 and on. */
DEVICE void run_output(const struct sparse_attn_fwd_params *params, int half) {
    registers_increase(OUTPUT_REGISTERS);
    const int row = (int)(threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4);
    struct ring_place stage = {0, 0}, buffer = {0, 0};
    float o[OUTPUT_VALUES];
    for (struct work work = first_work(&params->work); work.query >= 0;
         work = next_work(&params->work, &work)) {
        float denominators[2];
        int word;
        ring_advance(&stage, STAGES); /* Q's */
        do {
            mbarrier_wait(barrier_at(P_FULL + buffer.index), buffer.parity);
            word = *block_word(stage.index);
            if (!(word & FIRST_BLOCK)) {
                rescale_output(o, buffer.index);
            }
            fence_proxy_async();
            mbarrier_wait(barrier_at(TURN + buffer.index), buffer.parity);
            issue_output(o, stage.index, buffer.index, half, word & FIRST_BLOCK);
            wgmma_wait_1();
            arrive_warp(barrier_at(EMPTY_LOW + stage.index), 1);
            wgmma_wait_0();
            if (word & LAST_BLOCK) {
                const float *const values =
                    (const float *)(arena + DENOMINATORS_OFFSET) + buffer.index * BLOCK_HEADS + row;
                denominators[0] = values[0];
                denominators[1] = values[8];
            }
            arrive_warp(barrier_at(P_FREE + buffer.index), 1);
            arrive_warp(barrier_at(EMPTY_HIGH + stage.index), 1);
            ring_advance(&stage, STAGES);
            ring_advance(&buffer, P_BUFFERS);
        } while (!(word & LAST_BLOCK));
        store_output(params, o, denominators, &work, half);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_fwd_params params) {
    begin_grid(&params.work);
    initialise_barriers();
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup == SCORES_WARPGROUP) {
        run_scores(&params);
    } else if (warpgroup < GATHER_WARPGROUP) {
        run_output(&params, warpgroup - OUTPUT_WARPGROUP);
    } else {
        run_gather(&params);
    }
    end_grid(&params.work);
}
