//@use common/base.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/math.cuh
//@use ptx/named_barrier.cuh
//@use ptx/registers.cuh
//@use ptx/warp.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs.cuh n = 128, tb = 0
//@use sparse_scores_fwd.gather.cuh
/*
 * Attention probabilities at the selected slots, summed over the heads, with wgmma, for at most 64
 * heads: heads are the rows of the products, 128 keys their columns, and Q stays in registers. So
 * each read of Q's fragments serves twice as many columns as with heads as columns, and Q takes
 * shared memory only on its way through the ring, which gets the room. Mathematics and shapes:
 * include/smelt/sparse_scores.h.
 *
 * Grid: one CTA per multiprocessor; CTA b takes queries b, b + gridDim.x, ... (common/work.cuh).
 * Three warpgroups:
 *
 *   math     S[64, BLOCK_KEYS] = Q K^T of each key block, then the sum over the heads of
 *            exp2(S * scale + offset): over a warp's 16 by shuffles, over the warps through SUMS;
 *            writes the target
 *   gather   two of them, four warps for the copies: sparse_scores_fwd.gather.cuh, whose head has
 *            the barriers and the shared-memory map, but for
 *
 *   SUMS [2][4][BLOCK_KEYS] fp32: partial sums of the math warpgroup's warps; two buffers in
 *   sums_buffer
 *
 * Named barrier: MATH_BARRIER, the math warpgroup's.
 *
 * Knobs: ring_tiles; legal values and the rule that picks them:
 * src/codegen/families/sparse_scores_fwd_sm90.c.
 */

enum {
    MATH_BARRIER = 1, /* named */
    STEPS = DQK / 16,
    QUERY_FRAGMENTS = STEPS * 4, /* registers */
    SCORES = BLOCK_KEYS / 2,     /* of a thread: two heads, of every eight keys two */
    THREAD_KEYS = SCORES / 2,
    LEFT_KEYS = THREAD_KEYS / 8 /* of a thread, when the warp's heads are summed up */
};

/* A query in the registers of a math warpgroup, as its products' first operand. */
struct query {
    u32 fragments[QUERY_FRAGMENTS];
    float offsets[2]; /* of the thread's two heads */
};

/* Loads a query's Q from the ring's tiles from `place` on, the first of which has landed, and
 * releases them. Returns the first tile of the query's first block. */
DEVICE int take_query(struct query *query, int place, int buffer, u32 *parities) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    const u32 row = shared_address((u32)KEYS_OFFSET) + (warp * 16 + lane % 16) * TILE_PITCH +
                    ((lane / 16) ^ (lane % 8)) * 16;
    const float *const offsets =
        (const float *)(arena + OFFSETS_OFFSET) + buffer * BLOCK_HEADS + warp * 16 + lane / 4;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        const int part = tile % TILE_QUERIES; /* within the ring's tile */
        if (tile > 0 && part == 0) {
            await_tile(place, 0, parities);
        }
        const u32 from = row + (u32)(place * KEY_TILE_BYTES + part * QUERY_TILE_BYTES);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            ldmatrix_x4(&query->fragments[(tile * 4 + k) * 4], from ^ (u32)(k * STEP_BYTES));
        }
        if (part == TILE_QUERIES - 1 || tile == TILES - 1) {
            arrive_warp(barrier_at(EMPTY + place), 1);
            place = place + 1 < RING_TILES ? place + 1 : 0;
        }
    }
    query->offsets[0] = offsets[0];
    query->offsets[1] = offsets[8];
    arrive_warp(barrier_at(QUERY_FREE + buffer), 1);
    return place;
}

/* Computes S of a key block whose first tile, `first`, has landed, and releases its tiles. */
DEVICE void compute_scores(float *s, const u32 *query, int first, u32 *parities) {
    const u64 ring = tile_descriptor(KEYS_OFFSET);
    int place = first, last = first;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        if (tile > 0) {
            await_tile(place, 0, parities);
        }
        const u64 keys = descriptor_advance(ring, (u32)(place * KEY_TILE_BYTES));
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            wgmma_rs_n128_t00(s, &query[(tile * 4 + k) * 4],
                              descriptor_advance(keys, (u32)(k * STEP_BYTES)), tile + k > 0);
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

/* Reduces 2 * half keys over two lanes; each lane keeps half of the keys. */
DEVICE void exchange_half(float *p, int half, int mask) {
    const bool upper = threadIdx.x & (u32)mask;
#pragma unroll
    for (int i = 0; i < half; ++i) {
        const float given = upper ? p[i] : p[i + half], kept = upper ? p[i + half] : p[i];
        p[i] = kept + __shfl_xor_sync((u32)ALL_LANES, given, mask);
    }
}

/* Computes p from the scores and sums it over the warp's heads; a lane gets keys 16 * (lane / 4) +
 * 2 * (lane % 4), the next one, and those 8 further. */
DEVICE void sum_warp(float *p, const float *s, const float *offsets, float scale_log2) {
#pragma unroll
    for (int i = 0; i < THREAD_KEYS; ++i) {
        const float *const scores = &s[i / 2 * 4 + i % 2];
        p[i] = exp2_approximate(fmaf(scores[0], scale_log2, offsets[0])) +
               exp2_approximate(fmaf(scores[2], scale_log2, offsets[1]));
    }
    exchange_half(p, THREAD_KEYS / 2, 16);
    exchange_half(p, THREAD_KEYS / 4, 8);
    exchange_half(p, THREAD_KEYS / 8, 4);
}

/* Adds up the warps' sums of a block and writes the target, one slot per thread. `sums_buffer`: 0
 * or 1. */
DEVICE void store_sums(const struct sparse_scores_fwd_params *params, const float *p,
                       const struct block_word *word, int sums_buffer) {
    const int thread = (int)threadIdx.x, warp = thread / 32, lane = thread % 32;
    float *const sums = (float *)(arena + SUMS_OFFSET) + sums_buffer * 4 * BLOCK_KEYS;
#pragma unroll
    for (int i = 0; i < LEFT_KEYS; ++i) {
        sums[warp * BLOCK_KEYS + lane / 4 * 16 + lane % 4 * 2 + i / 2 * 8 + i % 2] = p[i];
    }
    barrier_sync(MATH_BARRIER, WARPGROUP);
    const u32 valid = warp < 2    ? warp == 0 ? word->valid[0] : word->valid[1]
                         : warp == 2 ? word->valid[2]
                                  : word->valid[3];
    const float *const mine = sums + thread;
    const float sum = (mine[0] + mine[BLOCK_KEYS]) + (mine[2 * BLOCK_KEYS] + mine[3 * BLOCK_KEYS]);
    const int slot = word->slot + thread, batch = query_batch(&params->work, word->query);
    if (slot < params->work.width) {
        target_row(params, batch, word->query - batch * params->work.tokens)[slot] =
            valid >> lane & 1 ? sum : 0.0f;
    }
}

/* The math warpgroup. */
DEVICE void run_math(const struct sparse_scores_fwd_params *params) {
    registers_increase(MATH_REGISTERS);
    const float scale_log2 = params->scale * LOG2_E;
    struct ring_place buffer = {0, 0};
    int first = 0, index = 0, sums_buffer = 0;
    u32 parities = 0;
    struct query query;
    for (;;) {
        float s[SCORES], p[THREAD_KEYS];
        await_tile(first, 0, &parities);
        const struct block_word word = *block_word(index);
        if ((int)warp_reduce_or((u32)word.query) < 0) {
            break;
        }
        if (warp_reduce_or((u32)word.opens)) {
            mbarrier_wait(barrier_at(QUERY_FULL + buffer.index), buffer.parity);
            first = take_query(&query, first, buffer.index, &parities);
            ring_advance(&buffer, QUERY_BUFFERS);
            await_tile(first, 0, &parities);
        }
        compute_scores(s, query.fragments, first, &parities);
        sum_warp(p, s, query.offsets, scale_log2);
        store_sums(params, p, &word, sums_buffer);
        sums_buffer ^= 1;
        first = (first + TILES) % RING_TILES;
        index = (index + 1) % RING_BLOCKS;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_scores_fwd_params params) {
    begin_grid(&params.work);
    initialise();
    const int warpgroup = (int)warp_reduce_or(threadIdx.x / WARPGROUP);
    if (warpgroup < GATHER_WARPGROUP) {
        run_math(&params);
    } else {
        run_gather(&params);
    }
    end_grid(&params.work);
}
