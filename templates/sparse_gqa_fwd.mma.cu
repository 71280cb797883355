//@use common/base.cuh
//@use common/fragments.cuh
//@use common/gqa_rows.cuh
//@use common/gqa_scores.cuh
//@use common/gqa_tile.cuh
//@use common/softmax.cuh
//@use common/tile.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/math.cuh
//@use ptx/mma.cuh
//@use sparse_gqa_fwd.params.h united = 0
/*
 * Forward pass of sparse attention for grouped heads with mma.sync: one CTA computes a query's heads
 * of one KV head, its group. Mathematics and shapes: include/smelt/sparse_gqa.h.
 *
 * Grid: one CTA per item (common/work.cuh), a query and one of its KV_HEADS KV heads. WARPS warps,
 * all of one role, in ROW_TILES x KEY_GROUPS: a warp has one m16 tile of the group's heads (padded
 * heads are zeros) and BLOCK_KEYS / KEY_GROUPS keys of each block. It computes S = Q K^T, an online
 * softmax of its own and O += P V in registers: a block has one barrier, which the gather needs. At
 * the end the KEY_GROUPS partial results of a head are merged through shared memory, in order.
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERY  [BLOCK_ROWS][KEY_PITCH bytes] bf16
 *   KEYS, VALUES, ROWS: common/gqa_rows.cuh. At the end SUMS [BLOCK_ROWS][DV] fp32 from KEYS on
 *   STATE  [KEY_GROUPS][BLOCK_ROWS] maximum and sum of each partial result
 *   RANGE  common/work.cuh
 *
 * Knobs: BLOCK_KEYS, STAGES, KEY_GROUPS, blocks per multiprocessor; legal values and the rule that
 * picks them: src/codegen/families/sparse_gqa_mma.c.
 */

enum {
    VALUE_TILES = DV / 8 /* n8 tiles of O */
};

/* The online softmax of a lane's two rows, in powers of two. */
struct softmax {
    float maximum[2]; /* P is relative to it: the exact maximum when it was taken; or -inf */
    float sum[2];     /* of this lane's exponentials */
};

/* The maximum of row `half` of a lane's two over the warp's keys. */
DEVICE float row_maximum(const float *s, int half) {
    float highest = MINUS_INFINITY;
#pragma unroll
    for (int n = 0; n < KEY_TILES; ++n) {
        highest = fmaxf(highest, fmaxf(s[n * 4 + half * 2], s[n * 4 + half * 2 + 1]));
    }
    highest = fmaxf(highest, __shfl_xor_sync((u32)ALL_LANES, highest, 1));
    return fmaxf(highest, __shfl_xor_sync((u32)ALL_LANES, highest, 2));
}

/* Updates the maximum if necessary; returns the factor of the old sum and of O. `highest`: of the
 * block's scaled scores. */
DEVICE float move_maximum(float *maximum, float highest) {
    if (!(highest > *maximum + RESCALE_THRESHOLD)) {
        return 1.0f;
    }
    const float old = *maximum;
    *maximum = highest;
    return old == MINUS_INFINITY ? 1.0f : exp2_approximate(old - highest);
}

/* o *= factors, by rows. */
DEVICE void scale_output(float *o, const float *factors) {
#pragma unroll
    for (int n = 0; n < VALUE_TILES; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            o[n * 4 + half * 2] *= factors[half];
            o[n * 4 + half * 2 + 1] *= factors[half];
        }
    }
}

/* Replaces masked scores by probabilities, which it also adds to the sums; `o` follows a change of
 * the maxima. */
DEVICE void compute_probabilities(float *s, struct softmax *softmax, float *o, float scale_log2) {
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        factors[half] = move_maximum(&softmax->maximum[half], row_maximum(s, half) * scale_log2);
        const float offset =
            softmax->maximum[half] == MINUS_INFINITY ? 0.0f : -softmax->maximum[half];
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < KEY_TILES; ++n) {
#pragma unroll
            for (int e = half * 2; e < half * 2 + 2; ++e) {
                s[n * 4 + e] = exp2_approximate(fmaf(s[n * 4 + e], scale_log2, offset));
                sum += s[n * 4 + e];
            }
        }
        softmax->sum[half] = fmaf(softmax->sum[half], factors[half], sum);
    }
    if (__any_sync((u32)ALL_LANES, factors[0] != 1.0f || factors[1] != 1.0f)) {
        scale_output(o, factors);
    }
}

/* ---- the end of an item ---- */

DEVICE float2 *partial_state(int group, int row) {
    return (float2 *)(arena + STATE_OFFSET) + group * BLOCK_ROWS + row;
}

/* The maximum and the sum of a row's partial results together. */
DEVICE float2 merged_state(int row) {
    float2 merged = {MINUS_INFINITY, 0.0f};
#pragma unroll
    for (int group = 0; group < KEY_GROUPS; ++group) {
        merged.x = fmaxf(merged.x, partial_state(group, row)->x);
    }
    const float base = merged.x == MINUS_INFINITY ? 0.0f : merged.x;
#pragma unroll
    for (int group = 0; group < KEY_GROUPS; ++group) {
        const float2 partial = *partial_state(group, row);
        merged.y += partial.y * exp2_approximate(partial.x - base);
    }
    return merged;
}

/* Makes this warp's O relative to the merged maxima. */
DEVICE void merge_output(float *o, const struct place *place, const struct softmax *softmax) {
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float merged = merged_state(place->row + (int)threadIdx.x % 32 / 4 + half * 8).x;
        factors[half] =
            exp2_approximate(softmax->maximum[half] - (merged == MINUS_INFINITY ? 0.0f : merged));
    }
    scale_output(o, factors);
}

/* Stores a head's log-sum-exp; returns the reciprocal of its denominator. */
DEVICE float finish_row(const struct sparse_gqa_fwd_params *params, int batch, int token, int head,
                        int row, bool store) {
    const float2 state = merged_state(row);
    const bool empty =
        state.y == 0.0f; /* otherwise at least about 1, or NaN, which lse passes on */
    const float base = state.x == MINUS_INFINITY ? 0.0f : state.x;
    float denominator = state.y;
    if (HAS_SINK) {
        denominator += exp2_approximate(params->sink[head] * LOG2_E - base);
    }
    if (store) {
        params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                    head * params->lse_head_stride] =
            empty ? MINUS_INFINITY : (base + log2_approximate(state.y)) * LN_2;
    }
    return empty ? 0.0f : 1.0f / denominator;
}

/* Stores the heads' results, 16 bytes of out per thread. */
DEVICE void store_results(const struct sparse_gqa_fwd_params *params, int batch, int token,
                          int first_head) {
    char *const out = (char *)params->out +
                      2 * (batch * params->out_batch_stride + token * params->out_token_stride);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < GROUP_HEADS * VALUE_CHUNKS; i += THREADS) {
        const int row = i / VALUE_CHUNKS, chunk = i % VALUE_CHUNKS, head = first_head + row;
        const float factor = finish_row(params, batch, token, head, row, chunk == 0);
        const float *const sums = (const float *)(arena + KEYS_OFFSET) + row * DV + chunk * 8;
        *(uint4 *)(out + 2 * (head * params->out_head_stride) + chunk * CHUNK_BYTES) =
            pack_sums(sums, factor);
    }
}

/* Merges the partial results and stores them. */
DEVICE void finish_item(const struct sparse_gqa_fwd_params *params, float *o,
                        struct softmax *softmax, const struct place *place, int batch, int token,
                        int first_head) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float sum = softmax->sum[half];
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 1);
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 2);
        if (lane % 4 == 0) {
            const float2 state = {softmax->maximum[half], sum};
            *partial_state(place->group, place->row + lane / 4 + half * 8) = state;
        }
    }
    cp_async_wait(0);
    __syncthreads();
    merge_output(o, place, softmax);
    add_groups((float *)(arena + KEYS_OFFSET), o, place, VALUE_TILES);
    store_results(params, batch, token, first_head);
}

/* Computes one item. The whole CTA calls it; it does not end in a barrier. */
DEVICE void compute_item(const struct sparse_gqa_fwd_params *params, const struct work *work) {
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
    struct softmax softmax = {{MINUS_INFINITY, MINUS_INFINITY}, {0.0f, 0.0f}};
    struct row_list rows;
    u32 query[QUERY_FRAGMENTS];
    float o[VALUE_TILES * 4];

    load_heads(shared_address(QUERY_OFFSET),
               (const char *)params->q +
                   2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                        first_head * params->q_head_stride),
               2 * params->q_head_stride, KEY_CHUNKS, KEY_PITCH);
    bool next = begin_rows(&rows, &params->work, &params->lists, work->query,
                           LISTS_OF_KV_HEADS ? kv_head : 0, &keys, &values);
    clear(o, VALUE_TILES * 4);
#pragma unroll 1
    for (int block = 0; block < rows.blocks; ++block) {
        const bool alive = next_block(&rows, &keys, &values, block, &next);
        const int stage = block % STAGES;
        if (QUERY_IN_REGISTERS && block == 0) {
            load_query_fragments(query, &place);
        }
        if (alive) {
            float s[KEY_TILES * 4];
            compute_scores(s, query, &place, stage);
            mask_scores(s, &place, block);
            compute_probabilities(s, &softmax, o, params->scale * LOG2_E);
            accumulate_values(o, s,
                              rows_first(shared_address(VALUES_OFFSET + (u32)(stage * VALUE_BYTES)),
                                         place.key, 0, VALUE_PITCH),
                              KEY_TILES, VALUE_TILES, VALUE_PITCH);
        }
    }
    finish_item(params, o, &softmax, &place, batch, token, first_head);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_fwd_params params) {
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
