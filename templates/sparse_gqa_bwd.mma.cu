//@use common/base.cuh
//@use common/gqa_rows.cuh
//@use common/gqa_tile.cuh
//@use common/softmax.cuh
//@use common/work.cuh
//@use ptx/math.cuh
//@use sparse_gqa_bwd.params.h
/*
 * dq of sparse attention for grouped heads with mma.sync: one CTA computes a query's heads of one KV
 * head, as in the forward pass (sparse_gqa_fwd.mma.cu), whose grid, warps and gather it has.
 * Mathematics and shapes: include/smelt/sparse_gqa.h.
 *
 * For each block of keys a warp computes S = Q K^T and dP = dO V^T of its heads and keys, from them dS,
 * and dQ += dS K in registers. At the end the KEY_GROUPS partial results are added in order. The same
 * bits in every run.
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERY  [BLOCK_ROWS][KEY_PITCH bytes] bf16
 *   GRAD   [BLOCK_ROWS][VALUE_PITCH bytes] bf16: dO
 *   KEYS, VALUES, ROWS: common/gqa_rows.cuh. At the end SUMS [BLOCK_ROWS][DQK] fp32 from KEYS on
 *   RANGE  common/work.cuh
 *
 * Knobs: BLOCK_KEYS, STAGES, KEY_GROUPS, blocks per multiprocessor; legal values and the rule that
 * picks them: src/codegen/families/sparse_gqa_mma.c.
 */

enum { KEY_TILES = BLOCK_KEYS / KEY_GROUPS / 8, GRAD_TILES = DQK / 8 };

/* Base and delta of a lane's two rows. */
struct statistics {
    float base[2], delta[2];
};

DEVICE struct statistics load_statistics(const struct sparse_gqa_bwd_params *params,
                                         const struct place *place, int entry, int first_head) {
    struct statistics found;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = place->row + (int)threadIdx.x % 32 / 4 + half * 8;
        const float2 nothing = {-MINUS_INFINITY, 0.0f};
        const float2 own =
            row < GROUP_HEADS
                ? *(const float2 *)&params->statistics[2 * ((i64)entry * HEADS + first_head + row)]
                : nothing;
        found.base[half] = own.x;
        found.delta[half] = own.y;
    }
    return found;
}

/* Replaces scores by dS; masked rows' become 0. */
DEVICE void compute_ds(float *s, const float *dp, const struct statistics *statistics,
                       const struct place *place, int block, float scale) {
    const int *const rows = block_rows(block) + place->key + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < KEY_TILES; ++n) {
        const uint2 pair = *(const uint2 *)&rows[n * 8];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int row = e % 2 ? (int)pair.y : (int)pair.x;
            const float p =
                exp2_approximate(fmaf(s[n * 4 + e], scale * LOG2_E, -statistics->base[e / 2]));
            const float ds = p * (dp[n * 4 + e] - statistics->delta[e / 2]) * scale;
            s[n * 4 + e] = row >= 0 ? ds : 0.0f;
        }
    }
}

/* dq += dS K for this warp's keys of the block in a stage. */
DEVICE void compute_block(const struct sparse_gqa_bwd_params *params, float *dq,
                          const struct statistics *statistics, const struct place *place,
                          int block) {
    const u32 keys = shared_address(KEYS_OFFSET + (u32)(block % STAGES * KEY_BYTES));
    const u32 values = shared_address(VALUES_OFFSET + (u32)(block % STAGES * VALUE_BYTES));
    float s[KEY_TILES * 4], dp[KEY_TILES * 4];
    multiply_keys(s, rows_first(shared_address(QUERY_OFFSET), place->row, 0, KEY_PITCH),
                  columns_first(keys, place->key, 0, KEY_PITCH), KEY_TILES, DQK / 16, KEY_PITCH);
    multiply_keys(dp, rows_first(shared_address(GRAD_OFFSET), place->row, 0, VALUE_PITCH),
                  columns_first(values, place->key, 0, VALUE_PITCH), KEY_TILES, DV / 16,
                  VALUE_PITCH);
    compute_ds(s, dp, statistics, place, block, params->scale);
    accumulate_values(dq, s, rows_first(keys, place->key, 0, KEY_PITCH), KEY_TILES, GRAD_TILES,
                      KEY_PITCH);
}

/* Stores the heads' dq, 16 bytes per thread. */
DEVICE void store_dq(const struct sparse_gqa_bwd_params *params, int batch, int token,
                     int first_head) {
    char *const dq = (char *)params->dq +
                     2 * (batch * params->dq_batch_stride + token * params->dq_token_stride);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < GROUP_HEADS * KEY_CHUNKS; i += THREADS) {
        const int row = i / KEY_CHUNKS, chunk = i % KEY_CHUNKS;
        const float *const sums = (const float *)(arena + KEYS_OFFSET) + row * DQK + chunk * 8;
        *(uint4 *)(dq + 2 * ((first_head + row) * params->dq_head_stride) + chunk * CHUNK_BYTES) =
            pack_sums(sums, 1.0f);
    }
}

/* Starts the copies of the heads' rows of q and dO. */
DEVICE void load_query(const struct sparse_gqa_bwd_params *params, int batch, int token,
                       int first_head) {
    load_heads(shared_address(QUERY_OFFSET),
               (const char *)params->q +
                   2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                        first_head * params->q_head_stride),
               2 * params->q_head_stride, KEY_CHUNKS, KEY_PITCH);
    load_heads(shared_address(GRAD_OFFSET),
               (const char *)params->grad_out + 2 * (batch * params->grad_out_batch_stride +
                                                     token * params->grad_out_token_stride +
                                                     first_head * params->grad_out_head_stride),
               2 * params->grad_out_head_stride, VALUE_CHUNKS, VALUE_PITCH);
}

/* Computes one item. The whole CTA calls it; it does not end in a barrier. */
DEVICE void compute_item(const struct sparse_gqa_bwd_params *params, const struct work *work) {
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
    const int kv_head = work->head_block, first_head = kv_head * GROUP_HEADS;
    const struct row_source keys = {(const char *)params->k + 2 * (batch * params->k_batch_stride +
                                                                   kv_head * params->k_head_stride),
                                    2 * params->k_row_stride};
    const struct row_source values = {
        (const char *)params->v +
            2 * (batch * params->v_batch_stride + kv_head * params->v_head_stride),
        2 * params->v_row_stride};
    const struct place place = find_place();
    const struct statistics statistics =
        load_statistics(params, &place, work_entry((u32)work->item), first_head);
    struct row_list rows;
    float dq[GRAD_TILES * 4];

    load_query(params, batch, token, first_head);
    bool next = begin_rows(&rows, &params->work, &params->lists, work->query,
                           LISTS_OF_KV_HEADS ? kv_head : 0, &keys, &values);
    clear(dq, GRAD_TILES * 4);
#pragma unroll 1
    for (int block = 0; block < rows.blocks; ++block) {
        if (next_block(&rows, &keys, &values, block, &next)) {
            compute_block(params, dq, &statistics, &place, block);
        }
    }
    cp_async_wait(0);
    __syncthreads();
    add_groups((float *)(arena + KEYS_OFFSET), dq, &place, GRAD_TILES);
    store_dq(params, batch, token, first_head);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_bwd_params params) {
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
