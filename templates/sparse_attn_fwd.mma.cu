//@use common/base.cuh
//@use common/mma_scores.cuh
//@use common/softmax.cuh
//@use common/work.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/math.cuh
//@use ptx/mma.cuh
//@use sparse_attn_fwd.params.h
/*
 * Sparse attention forward with mma.sync: one CTA computes BLOCK_HEADS heads of a query.
 * Mathematics and shapes: include/smelt/sparse_attn.h.
 *
 * Grid: one CTA per item (common/work.cuh), so that CTAs that gather the same rows run at the same
 * time; or fewer, each with a grid-stride loop, if most items may not exist (a bucket's list). WARPS
 * warps, all of one role; they divide the two products in different ways:
 *
 *   scores  S[BLOCK_HEADS, BLOCK_KEYS] = Q K^T   warps over heads x keys x depth (SCORE_*_GROUPS)
 *   softmax row by row                           ROW_THREADS threads per head
 *   output  O[BLOCK_HEADS, VALUE_COLUMNS] += P V warps over heads x columns (OUTPUT_*_GROUPS)
 *
 * Scores pass through shared memory, where the SCORE_DEPTH_GROUPS partial sums are added; P (bf16)
 * then replaces the first partial sum's row. O stays in registers.
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERY   [BLOCK_HEADS][KEY_COLUMNS] bf16; at the end the output tile, staged for global memory
 *   LATENT  [STAGES][BLOCK_KEYS][VALUE_COLUMNS] bf16: the columns that are key and value
 *   ROPE    [ROPE_STAGES][BLOCK_KEYS][KEY_COLUMNS - VALUE_COLUMNS] bf16: the other columns
 *   SCORES  [SCORE_DEPTH_GROUPS][BLOCK_HEADS][BLOCK_KEYS] fp32, then P
 *   FACTORS [BLOCK_HEADS] fp32: the factors of O's rows
 *   TASK    struct task
 *   SLOTS, RING, COUNTS: common/block_slots.cuh; RANGE: common/work.cuh
 *
 * Copies and barriers, for key block j in stage j % STAGES:
 *   top:           own copies of block j done (groups of STAGES - 2 later blocks may be in flight),
 *                  then a CTA-wide barrier: all threads' copies have landed, and stage
 *                  (j - 1) % STAGES is free
 *   after scores:  S complete, and block j's rope columns are free, so that one rope buffer
 *                  suffices for two stages: gather block j + STAGES - 1
 *   after softmax: P and FACTORS complete
 *
 * Knobs: BLOCK_KEYS, STAGES, WARPS, COMPACT, blocks per multiprocessor; legal values and the rule
 * that picks them: src/codegen/families/sparse_attn_fwd_mma.c.
 */

enum {
    SCORE_PITCH = BLOCK_KEYS * 4, /* bytes of a row */
    OUTPUT_TILES = HEAD_TILES / OUTPUT_HEAD_GROUPS,
    OUTPUT_PAIRS = VALUE_COLUMNS / 16 / OUTPUT_COLUMN_GROUPS,
    OUTPUT_STEPS = BLOCK_KEYS / 16,
    /* A warp's pairs of n8 tiles are adjacent if that does not carry into the swizzle's bits
     * (tile_advance), else the warps take them in turn. */
    OUTPUT_ADJACENT = OUTPUT_PAIRS % 4 == 0 || 4 % OUTPUT_PAIRS == 0,
    OUTPUT_STRIDE = OUTPUT_ADJACENT ? 1 : OUTPUT_COLUMN_GROUPS,
    OUTPUT_CHUNKS = DV / CHUNK_COLUMNS, /* of a row that is stored */

    SCORE_UNITS = BLOCK_KEYS / 2, /* pairs of scores in a row */
    ROW_UNITS = SCORE_UNITS / ROW_THREADS
};

/* The CTA's query and heads, at TASK_OFFSET because registers are short. */
struct task {
    int batch, token;
    int first_head;
    int tiles; /* m16 tiles of heads, at most HEAD_TILES */
};

DEVICE struct task *block_task(void) {
    return (struct task *)(arena + TASK_OFFSET);
}

/* Writes the CTA's task. Ends in a barrier. */
DEVICE void describe_task(const struct sparse_attn_fwd_params *params, const struct work *work) {
    if (threadIdx.x == 0) {
        struct task *const task = block_task();
        task->batch = work_batch(&params->work, work);
        task->token = work_token(&params->work, work);
        task->first_head = work->head_block * BLOCK_HEADS;
        task->tiles = work->head_block == HEAD_BLOCKS - 1 ? LAST_BLOCK_TILES : HEAD_TILES;
        struct slot_row *const row = block_scan_row();
        row->row = work_row(&params->work, work);
        row->slots = work_slots(&params->work, work);
        row->rows = params->work.rows;
    }
    __syncthreads();
}

/* The arena offset of a pair of scores (8 bytes), swizzled in groups of four pairs so that four
 * rows do not conflict in banks. */
DEVICE u32 score_offset(int depth, int row, int pair) {
    const int swizzled = pair ^ ((row & 3) * 4 & (SCORE_UNITS - 1));
    return (u32)(SCORES_OFFSET + (depth * BLOCK_HEADS + row) * SCORE_PITCH + swizzled * 8);
}

DEVICE void store_scores(const float *s, const struct score_place *place) {
    const int lane = (int)threadIdx.x % 32;
    const u32 base =
        score_offset(place->depth, place->tile * 16 + lane / 4, place->key / 2 + lane % 4);
#pragma unroll
    for (int n = 0; n < SCORE_PAIRS * 2; ++n) {
        const u32 offset = tile_advance(base, n * 32);
#pragma unroll
        for (int m = 0; m < SCORE_TILES; ++m) {
            const float *const tile = &s[(m * SCORE_PAIRS * 2 + n) * 4];
            float *const upper = (float *)(arena + offset + m * 16 * SCORE_PITCH);
            float *const lower = (float *)(arena + offset + (m * 16 + 8) * SCORE_PITCH);
            upper[0] = tile[0];
            upper[1] = tile[1];
            lower[0] = tile[2];
            lower[1] = tile[3];
        }
    }
}

/* The running softmax of a head, in powers of two; the same in its ROW_THREADS threads except for
 * `sum`. */
struct softmax_row {
    float maximum; /* P is relative to it: the exact maximum when it was taken; or -inf */
    float highest; /* the exact maximum */
    float sum;     /* of this thread's exponentials */
};

/* The arena offset of 8 keys of a row of P, in the first partial sum's row. */
DEVICE u32 probability_chunk(int row, int chunk) {
    return (u32)(SCORES_OFFSET + row * SCORE_PITCH +
                 (chunk ^ (row & 7 & (SCORE_PITCH / CHUNK_BYTES - 1))) * CHUNK_BYTES);
}

/* Loads this thread's scores of its row: adds the partial sums, sets keys past `count` and masked
 * ones to -inf. */
DEVICE void load_row(float *s, int row, int part, int block, int count) {
    const u32 base = score_offset(0, row, part);
#pragma unroll
    for (int i = 0; i < ROW_UNITS; ++i) {
        const u32 offset = tile_advance(base, i * ROW_THREADS * 8);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int key = (part + i * ROW_THREADS) * 2 + e;
            float sum = ((const float *)(arena + offset))[e];
#pragma unroll
            for (int d = 1; d < SCORE_DEPTH_GROUPS; ++d) {
                sum += ((const float *)(arena + offset + d * BLOCK_HEADS * SCORE_PITCH))[e];
            }
            const bool present = key < count && (COMPACT || block_scan_entries(block)[key] >= 0);
            s[i * 2 + e] = present ? sum : MINUS_INFINITY;
        }
    }
}

DEVICE float row_maximum(const float *s) {
    float highest = s[0];
#pragma unroll
    for (int i = 1; i < ROW_UNITS * 2; ++i) {
        highest = fmaxf(highest, s[i]);
    }
#pragma unroll
    for (int mask = 1; mask < ROW_THREADS; mask *= 2) {
        highest = fmaxf(highest, __shfl_xor_sync((u32)ALL_LANES, highest, mask));
    }
    return highest;
}

/* Updates the row's maximum if necessary; returns the factor of the old sum and of O. `highest`:
 * the maximum of the block's scaled scores (unscaled ones may overflow). */
DEVICE float move_maximum(struct softmax_row *state, float highest) {
    state->highest = fmaxf(state->highest, highest);
    if (!(highest > state->maximum + RESCALE_THRESHOLD)) {
        return 1.0f;
    }
    const float old = state->maximum;
    state->maximum = highest;
    return old == MINUS_INFINITY ? 1.0f : exp2_approximate(old - highest);
}

/*
 * Softmax of one key block: computes P, the sums and FACTORS from the scores. Returns whether this
 * row's O must be rescaled. A row's threads are in one warp: P may overwrite the scores after a
 * __syncwarp.
 */
DEVICE bool softmax_block(struct softmax_row *state, int block, int count, float scale_log2) {
    const int row = (int)threadIdx.x / ROW_THREADS, part = (int)threadIdx.x % ROW_THREADS;
    if (row >= BLOCK_HEADS) {
        return false;
    }
    float s[ROW_UNITS * 2];
    load_row(s, row, part, block, count);
    const float factor = move_maximum(state, row_maximum(s) * scale_log2);
    const float offset = state->maximum == MINUS_INFINITY ? 0.0f : -state->maximum;
    const u32 probabilities = probability_chunk(row, part / 4) + (u32)(part % 4 * 4);
    float sum = 0.0f;
    __syncwarp((u32)ALL_LANES);
#pragma unroll
    for (int i = 0; i < ROW_UNITS; ++i) {
        const float p0 = exp2_approximate(fmaf(s[i * 2], scale_log2, offset));
        const float p1 = exp2_approximate(fmaf(s[i * 2 + 1], scale_log2, offset));
        sum += p0 + p1;
        *(u32 *)(arena + tile_advance(probabilities, i * ROW_THREADS * 4)) = pack_bf16x2(p0, p1);
    }
    state->sum = fmaf(state->sum, factor, sum);
    if (part == 0) {
        ((float *)(arena + FACTORS_OFFSET))[row] = factor;
    }
    return factor != 1.0f;
}

/* This warp's part of the second product. */
struct output_place {
    int tile;          /* first m16 tile */
    int column;        /* first column */
    u32 probabilities; /* ldmatrix address of the first m16 tile at step 0 */
    u32 values;        /* ldmatrix address of the first columns in stage 0, keys 0..15 */
};

DEVICE struct output_place find_output_place(void) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    struct output_place place;
    place.tile = warp % OUTPUT_HEAD_GROUPS * OUTPUT_TILES;
    place.column = warp / OUTPUT_HEAD_GROUPS * (OUTPUT_ADJACENT ? OUTPUT_PAIRS * 16 : 16);
    place.probabilities = shared_address(probability_chunk(place.tile * 16 + lane % 16, lane / 16));
    place.values = shared_address(
        LATENT_OFFSET +
        tile_chunk(lane % 16, place.column / CHUNK_COLUMNS + lane / 16, LATENT_PITCH));
    return place;
}

/* o *= FACTORS, row by row. */
DEVICE void scale_output(float *o, const struct output_place *place) {
    const float *const factors = (const float *)(arena + FACTORS_OFFSET);
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < OUTPUT_TILES; ++m) {
        const float upper = factors[(place->tile + m) * 16 + lane / 4];
        const float lower = factors[(place->tile + m) * 16 + lane / 4 + 8];
#pragma unroll
        for (int n = 0; n < OUTPUT_PAIRS * 2; ++n) {
            float *const tile = &o[(m * OUTPUT_PAIRS * 2 + n) * 4];
            tile[0] *= upper;
            tile[1] *= upper;
            tile[2] *= lower;
            tile[3] *= lower;
        }
    }
}

/* Loads the P fragments of 16 keys. */
DEVICE void load_probabilities(u32 *a, const struct output_place *place, int step) {
    const u32 address = step_address(place->probabilities, step);
#pragma unroll
    for (int m = 0; m < OUTPUT_TILES; ++m) {
        ldmatrix_x4(&a[m * 4], address + (u32)(m * 16 * SCORE_PITCH));
    }
}

/* o += P V for the key block in a stage. */
DEVICE void accumulate_output(float *o, const struct output_place *place, int stage) {
    const int tiles = block_task()->tiles;
    const u32 values = place->values + (u32)(stage * LATENT_BYTES);
#pragma unroll OUTPUT_UNROLL
    for (int step = 0; step < OUTPUT_STEPS; ++step) {
        u32 a[OUTPUT_TILES * 4];
        load_probabilities(a, place, step);
#pragma unroll
        for (int n = 0; n < OUTPUT_PAIRS; ++n) {
            u32 b[4];
            ldmatrix_x4_trans(b, step_address(values, n * OUTPUT_STRIDE) +
                                     (u32)(step * 16 * LATENT_PITCH));
#pragma unroll
            for (int m = 0; m < OUTPUT_TILES; ++m) {
                if (!RAGGED_HEADS || m < tiles - place->tile) {
                    mma_m16n8k16_bf16(&o[(m * OUTPUT_PAIRS + n) * 8], &a[m * 4], &b[0]);
                    mma_m16n8k16_bf16(&o[(m * OUTPUT_PAIRS + n) * 8 + 4], &a[m * 4], &b[2]);
                }
            }
        }
    }
}

/* Stores a head's statistics, and in FACTORS the reciprocal of its denominator. */
DEVICE void finish_row(const struct sparse_attn_fwd_params *params,
                       const struct softmax_row *state) {
    const struct task *const task = block_task();
    const int row = (int)threadIdx.x / ROW_THREADS, part = (int)threadIdx.x % ROW_THREADS;
    const int head = task->first_head + row;
    if (row >= BLOCK_HEADS) {
        return;
    }
    float sum = state->sum;
#pragma unroll
    for (int mask = 1; mask < ROW_THREADS; mask *= 2) {
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, mask);
    }
    if (part != 0) {
        return;
    }
    const bool empty = sum == 0.0f; /* otherwise at least about 1, or NaN, which lse passes on */
    const float base = state->maximum == MINUS_INFINITY ? 0.0f : state->maximum;
    float denominator = sum;
    if (HAS_SINK && head < HEADS) {
        denominator += exp2_approximate(params->sink[head] * LOG2_E - base);
    }
    ((float *)(arena + FACTORS_OFFSET))[row] = empty ? 0.0f : 1.0f / denominator;
    if (head < HEADS) {
        params->lse[task->batch * params->lse_batch_stride +
                    task->token * params->lse_token_stride + head * params->lse_head_stride] =
            empty ? MINUS_INFINITY : (base + log2_approximate(sum)) * LN_2;
        if (params->max_logits) {
            params->max_logits[task->batch * params->max_logits_batch_stride +
                               task->token * params->max_logits_token_stride +
                               head * params->max_logits_head_stride] = state->highest * LN_2;
        }
    }
}

/* Stages O as bf16 in the output tile, which replaces the query tile. */
DEVICE void stage_output(const float *o, const struct output_place *place) {
    const int lane = (int)threadIdx.x % 32;
    const u32 base =
        QUERY_OFFSET + (u32)(lane % 4 * 4) +
        tile_chunk(place->tile * 16 + lane / 4, place->column / CHUNK_COLUMNS, LATENT_PITCH);
#pragma unroll
    for (int n = 0; n < OUTPUT_PAIRS * 2; ++n) {
        const u32 offset = tile_advance(base, (n / 2 * OUTPUT_STRIDE * 2 + n % 2) * CHUNK_BYTES);
#pragma unroll
        for (int m = 0; m < OUTPUT_TILES; ++m) {
            const float *const tile = &o[(m * OUTPUT_PAIRS * 2 + n) * 4];
            *(u32 *)(arena + offset + m * 16 * LATENT_PITCH) = pack_bf16x2(tile[0], tile[1]);
            *(u32 *)(arena + offset + (m * 16 + 8) * LATENT_PITCH) = pack_bf16x2(tile[2], tile[3]);
        }
    }
}

/* Stores the output tile to global memory, 16 bytes per thread. */
DEVICE void store_output(const struct sparse_attn_fwd_params *params) {
    const struct task *const task = block_task();
    char *const out = (char *)params->out + 2 * (task->batch * params->out_batch_stride +
                                                 task->token * params->out_token_stride);
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < BLOCK_HEADS * OUTPUT_CHUNKS; i += THREADS) {
        const int row = i / OUTPUT_CHUNKS, chunk = i % OUTPUT_CHUNKS;
        const int head = task->first_head + row;
        if (head < HEADS) {
            *(uint4 *)(out + 2 * (head * params->out_head_stride) + chunk * CHUNK_BYTES) =
                *(const uint4 *)(arena + QUERY_OFFSET + tile_chunk(row, chunk, LATENT_PITCH));
        }
    }
}

/* Computes one item. The whole CTA calls it; it does not end in a barrier. */
DEVICE void compute_item(const struct sparse_attn_fwd_params *params, const struct work *work) {
    describe_task(params, work);
    const char *const kv =
        (const char *)params->kv + 2 * (block_task()->batch * params->kv_batch_stride);
    const float scale_log2 = params->scale * LOG2_E;
    const struct score_place score_place = find_score_place();
    const struct output_place output_place = find_output_place();
    struct block_scan scan;
    struct softmax_row state = {MINUS_INFINITY, MINUS_INFINITY, 0.0f};
    u32 query[QUERY_FRAGMENTS];
    float o[OUTPUT_TILES * OUTPUT_PAIRS * 8];

    block_scan_begin(&scan);
    load_query((const char *)params->q + 2 * (block_task()->batch * params->q_batch_stride +
                                              block_task()->token * params->q_token_stride),
               params->q_head_stride, block_task()->first_head);
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        begin_block(&scan, kv, params->kv_row_bytes, i);
    }
#pragma unroll
    for (int i = 0; i < OUTPUT_TILES * OUTPUT_PAIRS * 8; ++i) {
        o[i] = 0.0f;
    }
    if (QUERY_IN_REGISTERS) {
        wait_for_block();
        load_query_fragments(query, &score_place);
    }

    for (int block = 0;; ++block) {
        wait_for_block();
        const int stage = block % STAGES, count = block_scan_count(&scan, block);
        if (count == 0) {
            break;
        }
        float s[SCORE_TILES * SCORE_PAIRS * 8];
        compute_scores(s, query, &score_place, stage, block_task()->tiles - score_place.tile);
        store_scores(s, &score_place);
        __syncthreads();
        begin_block(&scan, kv, params->kv_row_bytes, block + STAGES - 1);
        const bool rescale = softmax_block(&state, block, count, scale_log2);
        if (__syncthreads_or(rescale)) {
            scale_output(o, &output_place);
        }
        accumulate_output(o, &output_place, stage);
    }

    cp_async_wait(0);
    finish_row(params, &state);
    __syncthreads();
    scale_output(o, &output_place);
    stage_output(o, &output_place);
    __syncthreads();
    store_output(params);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_fwd_params params) {
    begin_grid(&params.work);
    __syncthreads();
    struct work work = first_work(&params.work);
    while (work.query >= 0) {
        compute_item(&params, &work);
        work = next_work(&params.work, &work);
        __syncthreads();
    }
    end_grid(&params.work);
}
