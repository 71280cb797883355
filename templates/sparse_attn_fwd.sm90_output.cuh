//@use common/quad.cuh
//@use common/ring.cuh
//@use common/warp_arrival.cuh
//@use common/work.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_ss.cuh n = 128, ta = 0, tb = 1
//@use sparse_attn_fwd.params.h
//@use sparse_attn_fwd.sm90_shared.cuh
/* The output's two warpgroups of sparse_attn_fwd.sm90.cu: each has half of O's columns in
 * registers, accumulates P V and writes O divided by the denominators. */

/* Multiplies O's rows by the softmax's powers of two, unless all of the warp's are 1. */
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

/* Issues o += P V, or o = P V for a query's first block, in two wgmma groups of 32 keys. `half`: of
 * the columns. */
DEVICE void issue_output(float *o, int stage, int buffer, int half, bool first) {
    const u64 p = tile_descriptor(probability_tile(buffer));
    const u64 v = columns_descriptor(latent_stage(stage) + (u32)(half * OUTPUT_TILES * TILE_BYTES));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const u64 a = descriptor_advance(p, (u32)(k * STEP_BYTES));
        const u64 b = descriptor_advance(v, (u32)(k * ROW_STEP_BYTES));
        wgmma_ss_n128_t01(o, a, b, k > 0 || !first);
        wgmma_ss_n128_t01(&o[OUTPUT_HALF], a, descriptor_advance(b, OUTPUT_TILES / 2 * TILE_BYTES),
                          k > 0 || !first);
        if (k % 2 == 1) {
            wgmma_commit();
        }
    }
}

/* Stores O divided by its denominators, or zeros for a denominator of 0; 16 bytes per thread at a
 * time. */
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

/* One of the two output warpgroups, for columns from half * DV / 2. */
DEVICE void run_output(const struct sparse_attn_fwd_params *params, int half) {
    registers_increase(OUTPUT_REGISTERS);
    const int row = (int)(threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4);
    struct ring_place stage = {0, 0}, buffer = {0, 0};
    float o[OUTPUT_VALUES];
    for (struct work work = first_work(&params->work); work.query >= 0;
         work = next_work(&params->work, &work)) {
        float denominators[2];
        int word;
        ring_advance(&stage, STAGES); /* past Q */
        do {
            mbarrier_wait(barrier_at(P_FULL + buffer.index), buffer.parity);
            word = *block_word(stage.index);
            if (!(word & FIRST_BLOCK)) {
                rescale_output(o, buffer.index);
            }
            fence_proxy_async();
            mbarrier_wait(barrier_at(ORDER + buffer.index), buffer.parity);
            issue_output(o, stage.index, buffer.index, half, word & FIRST_BLOCK);
            wgmma_wait(1);
            arrive_warp(barrier_at(EMPTY_LOW + stage.index), 1);
            wgmma_wait(0);
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
