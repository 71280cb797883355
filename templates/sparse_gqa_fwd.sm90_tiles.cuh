//@use common/base.cuh
//@use common/gqa_products.cuh
//@use common/ring.cuh
//@use common/softmax.cuh
//@use common/warp_arrival.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use sparse_gqa_fwd.block.params.h
//@use sparse_gqa_fwd.sm90_shared.cuh
/* The consumers of sparse_gqa_fwd.sm90.cu: a tile's scores, softmax and output. */

enum { UNIT_BYTES = UNIT_ROWS * DV * 2 };

/* This thread's two rows of a tile, in the warp's first and second unit. */
struct tile_rows {
    int unit[2];
    int keys[2];
};

DEVICE struct tile_rows rows_of(int stage) {
    const int first = (int)(threadIdx.x % WARPGROUP / 32 * 2);
    const struct tile *const tile = tile_at(stage);
    const struct tile_rows rows = {{tile->unit[first], tile->unit[first + 1]},
                                   {tile->keys[first], tile->keys[first + 1]}};
    return rows;
}

/* Computes P from the scores, in place; the rows' maxima, in powers of two, and sums. */
DEVICE void softmax_tile(float *s, float *maxima, float *sums, float scale_log2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float highest = fmaxf(s[2 * r], s[2 * r + 1]), sum = 0.0f;
#pragma unroll
        for (int i = 1; i < SCORE_VALUES / 4; ++i) {
            highest = fmaxf(highest, fmaxf(s[4 * i + 2 * r], s[4 * i + 2 * r + 1]));
        }
        highest = fmaxf(highest, __shfl_xor_sync((u32)ALL_LANES, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync((u32)ALL_LANES, highest, 2));
        maxima[r] = highest * scale_log2;
        const float offset = maxima[r] == MINUS_INFINITY ? 0.0f : -maxima[r];
#pragma unroll
        for (int i = 0; i < SCORE_VALUES / 2; ++i) {
            float *const value = &s[i / 2 * 4 + 2 * r + i % 2];
            *value = exp2_approximate(fmaf(*value, scale_log2, offset));
            sum += *value;
        }
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 1);
        sums[r] = sum + __shfl_xor_sync((u32)ALL_LANES, sum, 2);
    }
}

/* Stores the partial results of this thread's rows, in the order of the accumulators. */
DEVICE void store_partials(const struct sparse_gqa_block_params *params,
                           const struct tile_rows *rows, const float *o, const float *maxima,
                           const float *sums) {
    const int lane = (int)(threadIdx.x % 32);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (rows->unit[r] < 0) {
            continue;
        }
        const float inverse = sums[r] == 0.0f ? 0.0f : 1.0f / sums[r];
        uint4 *const to =
            (uint4 *)((char *)params->partials + (i64)rows->unit[r] * UNIT_BYTES) + lane;
#pragma unroll
        for (int i = 0; i < OUTPUT_VALUES / 16; ++i) {
            u32 x[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float *const pair = &o[i * 16 + k * 4 + 2 * r];
                x[k] = pack_bf16x2(pair[0] * inverse, pair[1] * inverse);
            }
            store_streaming_16(&to[i * 32], x);
        }
        if (lane % 4 == 0) {
            params->partial_lse[(i64)rows->unit[r] * UNIT_ROWS + lane / 4] =
                sums[r] == 0.0f ? MINUS_INFINITY : maxima[r] + log2_approximate(sums[r]);
        }
    }
}

/* A tile of a stage, which it releases. `last`: it is the consumer's last one of the buffer. */
DEVICE void run_tile(const struct sparse_gqa_block_params *params, int stage, int buffer,
                     bool last) {
    const struct tile_rows rows = rows_of(stage);
    float s[SCORE_VALUES], o[OUTPUT_VALUES], maxima[2], sums[2];
    u32 p[SCORE_VALUES / 2];
    issue_scores(s, query_at(stage), keys_at(buffer));
    wgmma_wait(0);
    arrive_warp(barrier_at(EMPTY + stage), 1);
    if (rows.keys[0] < BLOCK_KEYS || rows.keys[1] < BLOCK_KEYS) {
        mask_scores(s, rows.keys);
    }
    softmax_tile(s, maxima, sums, params->scale * LOG2_E);
    pack_scores(p, s);
    issue_output(o, p, values_at(buffer), 0);
    wgmma_wait(0);
    if (last) {
        arrive_warp(barrier_at(KV_EMPTY + buffer), 1);
    }
    store_partials(params, &rows, o, maxima, sums);
}

DEVICE void run_consumer(const struct sparse_gqa_block_params *params, int consumer) {
    struct ring_place stage = {consumer, 0}, buffer = {0, 0};
    while (true) {
        mbarrier_wait(barrier_at(FULL + stage.index), stage.parity);
        const int flags = tile_at(stage.index)->flags;
        if (flags & NO_MORE_TILES) {
            break;
        }
        if (flags & FIRST_TILE) {
            mbarrier_wait(barrier_at(KV_FULL + buffer.index), buffer.parity);
        }
        if (flags & NO_ROWS) {
            arrive_warp(barrier_at(EMPTY + stage.index), 1);
            if (flags & LAST_TILE) {
                arrive_warp(barrier_at(KV_EMPTY + buffer.index), 1);
            }
        } else {
            run_tile(params, stage.index, buffer.index, flags & LAST_TILE);
        }
        if (flags & LAST_TILE) {
            ring_advance(&buffer, KV_BUFFERS);
        }
        stage.index += CONSUMERS;
        if (stage.index >= STAGES) {
            stage.index -= STAGES;
            stage.parity ^= 1;
        }
    }
}
