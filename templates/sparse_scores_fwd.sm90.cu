//@use common/base.cuh
//@use ptx/math.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/warp.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_ss.cuh n = BLOCK_HEADS, ta = 0, tb = 0
//@use sparse_scores_fwd.gather.cuh
/*
 * Attention probabilities at the selected slots, summed over the heads, with wgmma: keys are the
 * rows of the products and heads their columns, so that heads are padded only to a multiple of 8 or
 * 16, and a slot's sum is taken in one thread's registers and over four lanes. Mathematics and
 * shapes: include/smelt/sparse_scores.h.
 *
 * Grid: one CTA per multiprocessor; CTA b takes queries b, b + gridDim.x, ... (common/work.cuh).
 * Three warpgroups:
 *
 *   math     two of them, alternating key blocks: S[BLOCK_KEYS, BLOCK_HEADS] = K Q^T, then
 *            the sum over the heads of exp2(S * scale + offset), written to the target
 *   gather   sparse_scores_fwd.gather.cuh, whose head has the shared-memory map and the barriers
 *
 * Knobs: ring_tiles, query_buffers; legal values and the rule that picks them:
 * src/codegen/families/sparse_scores_fwd_sm90.c.
 */

enum {
    SCORES = BLOCK_HEADS / 2,      /* per thread */
    THREAD_HEADS = BLOCK_HEADS / 4 /* two of every eight, at two keys */
};

/* The product's shape: one column per head. */
// clang-format off
#define multiply_scores wgmma_ss_n${BLOCK_HEADS}_t00
// clang-format on

/* Computes S of a key block whose first tile, `first`, has landed, and releases its tiles. `query`:
 * Q's address. */
DEVICE void compute_scores(float *s, int first, u32 query, int group, u32 *parities) {
    const u64 ring = tile_descriptor(KEYS_OFFSET);
    const u64 b = shared_descriptor(query, 16, ATOM_BYTES, 128);
    int place = first, last = first;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        if (tile > 0) {
            await_tile(place, group, parities);
        }
        const u64 a = descriptor_advance(ring, (u32)(place * KEY_TILE_BYTES));
        fence_proxy_async();
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            multiply_scores(s, descriptor_advance(a, (u32)(k * STEP_BYTES)),
                            descriptor_advance(b, (u32)(tile * QUERY_TILE_BYTES + k * STEP_BYTES)),
                            tile + k > 0);
        }
        wgmma_commit();
        if (tile > 0) {
            wgmma_wait(1);
            arrive_warp(barrier_at(EMPTY + last), 1);
        }
        last = place;
        place = place + 1 < RING_TILES ? place + 1 : 0;
    }
    wgmma_wait(0);
    arrive_warp(barrier_at(EMPTY + last), 1);
}

/* The offsets of this thread's heads. */
DEVICE void load_offsets(float *offsets, int buffer) {
    const float *const all = (const float *)(arena + OFFSETS_OFFSET) + buffer * BLOCK_HEADS;
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        offsets[k] = all[8 * (k / 2) + (int)(threadIdx.x % 4 * 2) + k % 2];
    }
}

/* Sums p over the heads and writes the target. */
DEVICE void store_sums(const struct sparse_scores_fwd_params *params, const float *s,
                       const float *offsets, const struct block_word *word) {
    const float scale_log2 = params->scale * LOG2_E;
    float sums[2] = {0.0f, 0.0f}; /* of two keys, over the thread's heads, then over all */
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const float *const scores = &s[k / 2 * 4 + k % 2];
        sums[0] += exp2_approximate(fmaf(scores[0], scale_log2, offsets[k]));
        sums[1] += exp2_approximate(fmaf(scores[2], scale_log2, offsets[k]));
    }
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
        sums[0] += __shfl_xor_sync((u32)ALL_LANES, sums[0], mask);
        sums[1] += __shfl_xor_sync((u32)ALL_LANES, sums[1], mask);
    }
    const int lane = (int)(threadIdx.x % 32), warp = (int)(threadIdx.x % WARPGROUP / 32);
    const int row = warp * 16 + lane / 4 + 8 * (lane % 2), slot = word->slot + row;
    const bool valid = (warp < 2 ? word->valid[0] : word->valid[1]) >> row % 32 & 1;
    if (lane % 4 < 2 && slot < params->work.width) {
        const int batch = query_batch(&params->work, word->query);
        target_row(params, batch, word->query - batch * params->work.tokens)[slot] =
            valid ? lane % 2 == 0 ? sums[0] : sums[1] : 0.0f;
    }
}

/* One of the two math warpgroups; it takes every second key block. */
DEVICE void run_math(const struct sparse_scores_fwd_params *params, int group) {
    registers_increase(MATH_REGISTERS);
    struct ring_place next = {0, 0}; /* Q's buffers */
    int first = group * TILES, index = group, buffer = 0;
    u32 parities = 0;
    float s[SCORES], offsets[THREAD_HEADS];
    for (;;) {
        await_tile(first, group, &parities);
        const struct block_word word = *block_word(index);
        if ((int)warp_reduce_or((u32)word.query) < 0) {
            break;
        }
        if (warp_reduce_or((u32)word.opens)) {
            mbarrier_wait(barrier_at(QUERY_FULL + next.index), next.parity);
            buffer = next.index;
            load_offsets(offsets, buffer);
            ring_advance(&next, QUERY_BUFFERS);
        }
        const u32 query =
            warp_reduce_or(shared_address((u32)(QUERY_OFFSET + buffer * QUERY_BYTES)));
        compute_scores(s, first, query, group, &parities);
        arrive_warp(barrier_at(QUERY_FREE + buffer), 1);
        store_sums(params, s, offsets, &word);
        first = (first + 2 * TILES) % RING_TILES;
        index = (index + 2) % RING_BLOCKS;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_scores_fwd_params params) {
    begin_grid(&params.work);
    initialise();
    const int warpgroup = (int)warp_reduce_or(threadIdx.x / WARPGROUP);
    if (warpgroup < GATHER_WARPGROUP) {
        run_math(&params, warpgroup);
    } else {
        run_gather(&params);
    }
    end_grid(&params.work);
}
