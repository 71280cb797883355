//@use common/base.cuh
//@use common/mma_scores.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/math.cuh
//@use sparse_scores_fwd.heads.cuh
//@use sparse_scores_fwd.params.h
/*
 * Attention probabilities at the selected slots, summed over the heads, with mma.sync: one CTA
 * computes one query. Mathematics and shapes: include/smelt/sparse_scores.h.
 *
 * Grid: one CTA per query (common/work.cuh). More heads than BLOCK_HEADS are processed part by
 * part, each part adding to the target; the same thread always adds to a slot, so that the order is
 * fixed. WARPS warps, all of one role: S = Q K^T of a key block (common/mma_scores.cuh), then p =
 * exp2(S * scale + offset) and its sum over the warp's heads, in registers; the SCORE_HEAD_GROUPS
 * sums of a slot meet in shared memory. Slots are not compacted: a masked slot has a row of zeros,
 * and its result is discarded.
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERY, LATENT, ROPE: common/mma_scores.cuh
 *   OFFSETS [BLOCK_HEADS] fp32: of the heads, sparse_scores_fwd.heads.cuh
 *   SUMS    [SCORE_HEAD_GROUPS][BLOCK_KEYS] fp32
 *   PARTS   [SCORE_DEPTH_GROUPS - 1][SCORES][DEPTH_THREADS] fp32: partial scores
 *   SLOTS, RING, COUNTS: common/block_slots.cuh; RANGE: common/work.cuh
 *
 * Copies and barriers, for key block j in stage j % STAGES:
 *   top:          own copies of block j done (groups of STAGES - 2 later blocks may be under way),
 *                 then a CTA-wide barrier: all threads' copies have landed, and stage
 *                 (j - 1) % STAGES and SUMS are free: gather block j + STAGES - 1
 *   after scores: PARTS complete, where there are any
 *   after sums:   SUMS complete
 *
 * Knobs: BLOCK_KEYS, STAGES, WARPS, blocks per multiprocessor; legal values and the rule that picks
 * them: src/codegen/families/sparse_scores_fwd_mma.c.
 */

enum {
    SCORES = SCORE_TILES * SCORE_PAIRS * 8, /* of a thread */
    DEPTH_THREADS = THREADS / SCORE_DEPTH_GROUPS
};

/* The CTA's query. */
struct task {
    int batch, token;
    const char *kv;
    float *target; /* its row */
};

/* Finds the task, and writes the scan's index row for block_scan_begin; a barrier must follow. */
DEVICE struct task find_task(const struct sparse_scores_fwd_params *params,
                             const struct work *work) {
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
    const struct task task = {batch, token,
                              (const char *)params->kv + 2 * (batch * params->kv_batch_stride),
                              target_row(params, batch, token)};
    if (threadIdx.x == 0) {
        struct slot_row *const row = block_scan_row();
        row->row = work_row(&params->work, work);
        row->slots = work_slots(&params->work, work);
        row->rows = params->work.rows;
    }
    return task;
}

/* Stores the offsets of a part's heads; visible after the next barrier. */
DEVICE void store_offsets(const struct sparse_scores_fwd_params *params, const struct task *task,
                          int first_head) {
    for (int i = (int)threadIdx.x; i < BLOCK_HEADS; i += THREADS) {
        ((float *)(arena + OFFSETS_OFFSET))[i] =
            head_offset(params, task->batch, task->token, first_head + i);
    }
}

/* The offsets of this thread's heads: two of each of the warp's m16 tiles. */
DEVICE void load_offsets(float *offsets, const struct score_place *place) {
    const float *const all =
        (const float *)(arena + OFFSETS_OFFSET) + place->tile * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int k = 0; k < SCORE_TILES * 2; ++k) {
        offsets[k] = all[k * 8];
    }
}

/* Adds up the depth groups' partial scores, in the first group's threads. */
DEVICE void add_depths(float *s, const struct score_place *place) {
    float *const parts = (float *)(arena + PARTS_OFFSET) + threadIdx.x % DEPTH_THREADS;
    if (SCORE_DEPTH_GROUPS == 1) {
        return;
    }
    if (place->depth > 0) {
#pragma unroll
        for (int i = 0; i < SCORES; ++i) {
            parts[((place->depth - 1) * SCORES + i) * DEPTH_THREADS] = s[i];
        }
    }
    __syncthreads();
    if (place->depth == 0) {
#pragma unroll
        for (int i = 0; i < (SCORE_DEPTH_GROUPS - 1) * SCORES; ++i) {
            s[i % SCORES] += parts[i * DEPTH_THREADS];
        }
    }
}

/* Sums p over the warp's heads; four lanes store the sums in SUMS. */
DEVICE void store_sums(const float *s, const float *offsets, float scale_log2,
                       const struct score_place *place) {
    const int lane = (int)(threadIdx.x % 32);
    float *const sums = (float *)(arena + SUMS_OFFSET) + place->tile / SCORE_TILES * BLOCK_KEYS +
                        place->key + lane * 2;
#pragma unroll
    for (int n = 0; n < SCORE_PAIRS * 2; ++n) {
        float sum[2] = {0.0f, 0.0f}; /* of two keys */
#pragma unroll
        for (int m = 0; m < SCORE_TILES; ++m) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float score = s[(m * SCORE_PAIRS * 2 + n) * 4 + i];
                sum[i % 2] += exp2_approximate(fmaf(score, scale_log2, offsets[m * 2 + i / 2]));
            }
        }
#pragma unroll
        for (int mask = 4; mask <= 16; mask *= 2) {
            sum[0] += __shfl_xor_sync((u32)ALL_LANES, sum[0], mask);
            sum[1] += __shfl_xor_sync((u32)ALL_LANES, sum[1], mask);
        }
        if (lane < 4) {
            sums[n * 8] = sum[0];
            sums[n * 8 + 1] = sum[1];
        }
    }
}

/* Writes a key block's sums over the part's heads to the target, one slot per thread. (Slots past
 * the last have masked entries, since a scan step covers THREADS slots.) */
DEVICE void store_target(const struct sparse_scores_fwd_params *params, const struct task *task,
                         int block, bool add) {
    const int key = (int)threadIdx.x, slot = block * BLOCK_KEYS + key;
    if (key >= BLOCK_KEYS || slot >= params->work.width) {
        return;
    }
    const float *const sums = (const float *)(arena + SUMS_OFFSET) + key;
    float sum = sums[0];
#pragma unroll
    for (int group = 1; group < SCORE_HEAD_GROUPS; ++group) {
        sum += sums[group * BLOCK_KEYS];
    }
    const bool valid = block_scan_entries(block)[key] >= 0;
    if (add) {
        task->target[slot] += valid ? sum : 0.0f;
    } else {
        task->target[slot] = valid ? sum : 0.0f;
    }
}

/* Processes the part of a query's heads from `first_head` on; sets the target of slots past the
 * last key block to 0. The whole CTA calls it, after a barrier; it reads no shared memory after its
 * last barrier. */
DEVICE void compute_part(const struct sparse_scores_fwd_params *params, const struct task *task,
                         int first_head) {
    const struct score_place place = find_score_place();
    struct block_scan scan;
    float offsets[SCORE_TILES * 2];
    int block = 0;

    block_scan_begin(&scan);
    store_offsets(params, task, first_head);
    load_query((const char *)params->q + 2 * (task->batch * params->q_batch_stride +
                                              task->token * params->q_token_stride),
               params->q_head_stride, first_head);
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        begin_block(&scan, task->kv, params->kv_row_bytes, i);
    }
    for (;; ++block) {
        wait_for_block();
        const int count = block_scan_count(&scan, block);
        if (count == 0) {
            break;
        }
        begin_block(&scan, task->kv, params->kv_row_bytes, block + STAGES - 1);
        if (block == 0) {
            load_offsets(offsets, &place);
        }
        float s[SCORES];
        compute_scores(s, 0, &place, block % STAGES, SCORE_TILES);
        add_depths(s, &place);
        if (place.depth == 0) {
            store_sums(s, offsets, params->scale * LOG2_E, &place);
        }
        __syncthreads();
        store_target(params, task, block, first_head > 0);
    }
    for (int slot = block * BLOCK_KEYS + (int)threadIdx.x; slot < params->work.width;
         slot += THREADS) {
        task->target[slot] = 0.0f;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_scores_fwd_params params) {
    begin_grid(&params.work);
    __syncthreads();
    struct work work = first_work(&params.work);
    while (work.query >= 0) {
        const struct task task = find_task(&params, &work);
        __syncthreads();
        for (int head = 0; head < HEADS; head += BLOCK_HEADS) {
            compute_part(&params, &task, head);
        }
        work = next_work(&params.work, &work);
    }
    end_grid(&params.work);
}
