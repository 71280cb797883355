//@use common/base.cuh
//@use common/denominator.cuh
//@use common/gqa_rows.cuh
//@use common/gqa_scores.cuh
//@use common/gqa_tile.cuh
//@use common/softmax.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/math.cuh
//@use sparse_gqa_scores_fwd.params.h
/*
 * Attention probabilities of grouped heads, summed over the heads that share a list and over an
 * entry's rows, with mma.sync: one CTA computes one list of a query. Mathematics and shapes:
 * include/smelt/sparse_gqa_scores.h.
 *
 * Grid: one CTA per item (common/work.cuh), a query and one of its HEAD_BLOCKS lists. A list that all
 * KV heads share is processed once for each of them, each adding to the target; the same thread always
 * adds to an entry, so that the order is fixed. WARPS warps, all of one role, in ROW_TILES x
 * KEY_GROUPS, as in sparse_gqa_fwd.mma.cu: S = Q K^T, p = exp2(S * scale + offset), and sums of p over
 * the warp's heads and UNIT rows, in registers. The warps' sums meet in shared memory; a thread adds
 * those of an entry in the next iteration, so that a block has one barrier.
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERY  common/gqa_scores.cuh
 *   KEYS, ROWS: common/gqa_rows.cuh; there are no values
 *   SUMS   [2][ROW_TILES][BLOCK_UNITS] fp32: of block j in j % 2
 *   RANGE  common/work.cuh
 *
 * Knobs: BLOCK_KEYS, STAGES, KEY_GROUPS, blocks per multiprocessor; legal values and the rule that
 * picks them: src/codegen/families/sparse_gqa_mma.c.
 */

enum {
    /* Rows of an entry that a warp has: they are summed in registers. */
    UNIT = GRANULARITY < WARP_KEYS ? GRANULARITY : WARP_KEYS,
    UNIT_TILES = UNIT < 8 ? 1 : UNIT / 8, /* n8 tiles of S */
    LANE_SUMS = UNIT == 1 ? 2 : 1,        /* of a tile, in a lane */
    BLOCK_UNITS = BLOCK_KEYS / UNIT,
    ENTRY_BLOCKS = GRANULARITY > BLOCK_KEYS ? GRANULARITY / BLOCK_KEYS : 1,
    BLOCK_ENTRIES = GRANULARITY < BLOCK_KEYS ? BLOCK_KEYS / GRANULARITY : 1,
    ENTRY_UNITS = BLOCK_UNITS / BLOCK_ENTRIES /* of a block */
};

/* The list's query, and its row of the target. */
struct task {
    int batch, token, list;
    float *target;
};

/* The offsets of a lane's two heads; padded heads have -inf, so that their p is 0. */
DEVICE void load_offsets(float *offsets, const struct sparse_gqa_scores_fwd_params *params,
                         const struct task *task, int first_head, const struct place *place) {
    const float *const all = params->lse + task->batch * params->lse_batch_stride +
                             task->token * params->lse_token_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = place->row + (int)threadIdx.x % 32 / 4 + half * 8, head = first_head + row;
        offsets[half] = MINUS_INFINITY;
        if (row < GROUP_HEADS) {
            const float lse = LOG2_E * all[head * params->lse_head_stride];
            offsets[half] = params->sink
                                ? denominator_offset_with_sink(lse, LOG2_E * params->sink[head])
                                : -lse;
        }
    }
}

DEVICE float *block_sums(int block) {
    return (float *)(arena + SUMS_OFFSET) + block % 2 * (ROW_TILES * BLOCK_UNITS);
}

/* Sums p over the warp's heads and each unit's rows; stores the sums. */
DEVICE void store_sums(const float *s, const float *offsets, float scale_log2,
                       const struct place *place, int block) {
    const int lane = (int)threadIdx.x % 32;
    float *const sums = block_sums(block) + place->row / 16 * BLOCK_UNITS;
#pragma unroll
    for (int n = 0; n < KEY_TILES; n += UNIT_TILES) {
        float sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < UNIT_TILES * 4; ++i) {
            sum[i % LANE_SUMS] +=
                exp2_approximate(fmaf(s[n * 4 + i], scale_log2, offsets[i % 4 / 2]));
        }
#pragma unroll
        for (int mask = 4; mask <= 16; mask *= 2) {
#pragma unroll
            for (int i = 0; i < LANE_SUMS; ++i) {
                sum[i] += __shfl_xor_sync((u32)ALL_LANES, sum[i], mask);
            }
        }
#pragma unroll
        for (int mask = 1; mask < UNIT / 2 && mask <= 2;
             mask *= 2) { /* columns of a quad's lanes */
            sum[0] += __shfl_xor_sync((u32)ALL_LANES, sum[0], mask);
        }
        if (lane < 4 && lane * 2 % UNIT < 2) {
#pragma unroll
            for (int i = 0; i < LANE_SUMS; ++i) {
                sums[(place->key + n * 8 + lane * 2 + i) / UNIT] = sum[i];
            }
        }
    }
}

/* Adds up the units of a block's entries, one entry per thread, and writes the targets of those that
 * end with the block. `carried`: of the entry's earlier blocks. */
DEVICE void finish_block(const struct sparse_gqa_scores_fwd_params *params, const struct task *task,
                         int block, bool alive, bool add, float *carried) {
    const int entry = (int)threadIdx.x;
    const i64 slot = (i64)block * BLOCK_KEYS / GRANULARITY + entry;
    if (entry >= BLOCK_ENTRIES) {
        return;
    }
    const float *const sums = block_sums(block) + entry * ENTRY_UNITS;
    float sum = block % ENTRY_BLOCKS == 0 ? 0.0f : *carried;
#pragma unroll
    for (int i = 0; i < ROW_TILES * ENTRY_UNITS; ++i) {
        sum += alive ? sums[i / ENTRY_UNITS * BLOCK_UNITS + i % ENTRY_UNITS] : 0.0f;
    }
    *carried = sum;
    if (block % ENTRY_BLOCKS == ENTRY_BLOCKS - 1 && slot < params->work.width) {
        task->target[slot] = add ? task->target[slot] + sum : sum;
    }
}

/* Computes the heads of one KV head; the first also sets the target of slots past the last block to
 * 0. By the whole CTA, after a barrier; reads no shared memory but SUMS after its last one. */
DEVICE void compute_group(const struct sparse_gqa_scores_fwd_params *params,
                          const struct work *work, const struct task *task, int kv_head, bool add) {
    const int first_head = kv_head * GROUP_HEADS;
    const struct row_source keys = {
        (const char *)params->k +
            2 * (task->batch * params->k_batch_stride + kv_head * params->k_head_stride),
        2 * params->k_row_stride};
    const struct place place = find_place();
    struct row_list rows;
    u32 query[QUERY_FRAGMENTS];
    float offsets[2], carried = 0.0f;
    bool alive = false;

    load_heads(shared_address(QUERY_OFFSET),
               (const char *)params->q +
                   2 * (task->batch * params->q_batch_stride +
                        task->token * params->q_token_stride + first_head * params->q_head_stride),
               2 * params->q_head_stride, KEY_CHUNKS, KEY_PITCH);
    bool next =
        begin_rows(&rows, &params->work, &params->lists, work->query, task->list, &keys, &keys);
    load_offsets(offsets, params, task, first_head, &place);
#pragma unroll 1
    for (int block = 0; block < rows.blocks; ++block) {
        const bool before = alive;
        alive = next_block(&rows, &keys, &keys, block, &next);
        if (QUERY_IN_REGISTERS && block == 0) {
            load_query_fragments(query, &place);
        }
        if (alive) {
            float s[KEY_TILES * 4];
            compute_scores(s, query, &place, block % STAGES);
            mask_scores(s, &place, block);
            store_sums(s, offsets, params->scale * LOG2_E, &place, block);
        }
        if (block > 0) {
            finish_block(params, task, block - 1, before, add, &carried);
        }
    }
    cp_async_wait(0);
    __syncthreads();
    if (rows.blocks > 0) {
        finish_block(params, task, rows.blocks - 1, alive, add, &carried);
    }
    const i64 written = (i64)rows.blocks * BLOCK_KEYS / GRANULARITY;
    for (i64 slot = written + (int)threadIdx.x; !add && slot < params->work.width;
         slot += THREADS) {
        task->target[slot] = 0.0f;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_scores_fwd_params params) {
    enum { GROUPS = KV_HEADS / HEAD_BLOCKS }; /* that share a list */
    begin_grid(&params.work);
    __syncthreads();
    struct work work = first_work(&params.work);
    while (work.query >= 0) {
        const int batch = work_batch(&params.work, &work), token = work_token(&params.work, &work);
        const struct task task = {batch, token, work.head_block,
                                  params.target + batch * params.target_batch_stride +
                                      token * params.target_token_stride +
                                      work.head_block * params.target_group_stride};
#pragma unroll 1
        for (int group = 0; group < GROUPS; ++group) {
            compute_group(&params, &work, &task, task.list * GROUPS + group, group > 0);
        }
        work = next_work(&params.work, &work);
        __syncthreads();
    }
    end_grid(&params.work);
}
