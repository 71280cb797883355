//@use common/base.cuh
//@use common/ring.cuh
//@use common/streamed_wgmma.cuh
//@use ptx/math.cuh
//@use ptx/registers.cuh
//@use dense_scores_fwd.items.cuh
//@use dense_scores_fwd.params.h
//@use dense_scores_fwd.sm90_shared.cuh
//@use dense_scores_fwd.sm90_copies.cuh
/*
 * Attention's probabilities of all keys in each query's window, summed over the heads, with wgmma.
 * Meaning and items: dense_scores_fwd.mma.cu.
 *
 * D = K Q^T (common/streamed_wgmma.cuh): A is an item's keys, B a tile's queries, so that the rows of
 * heads are D's columns. A thread adds its columns' exponentials, then a quad's lanes exchange sums.
 *
 * Grid: one CTA per multiprocessor; each takes every gridDim.x-th item. The last warpgroup's first
 * warp is the producer. Rows of heads that do not exist are zeros with an infinite lse, so that their
 * probability is 0.
 *
 * Shared memory beside the product's (offsets and sizes: the plan above):
 *   OFFSETS  [STAGES][COLUMNS] lse in powers of two; of a tile's last part
 *   STEPS    [STAGES] struct step; of a tile's last part, and flags of keys' first parts
 *
 * Knobs: slabs, stages, item_tiles: src/codegen/families/dense_scores_fwd.c.
 */

/* Writes a query's probabilities for this warp's 16 keys, two lanes of each quad one each, or adds
 * them to what an earlier round wrote. */
DEVICE void write_pair(const struct dense_scores_fwd_params *params, const struct step *step,
                       int query, const float *sums) {
    const int lane = (int)threadIdx.x % 32;
    const int key = (int)threadIdx.x / 32 * 16 + lane % 2 * 8 + lane / 4;
    float sum = exchange(sums[0], sums[1], 1);
    sum += __shfl_xor_sync((u32)ALL_LANES, sum, 2);
    if (lane % 4 < 2 && query < step->queries && key < step->keys) {
        float *const to = params->scores + (step->first_query + query) * params->scores_stride +
                          step->first_key + key;
        *to = step->flags & ADDS ? *to + sum : sum;
    }
}

/* The probabilities of a tile, from its scores. */
DEVICE void finish_tile(const struct dense_scores_fwd_params *params, const float *d, int stage) {
    const float scale = params->scale * LOG2_E;
    const float2 *const offsets = (const float2 *)offsets_at(stage) + threadIdx.x % 4;
    const struct step *const step = step_at(stage);
#pragma unroll
    for (int query = 0; query < TILE_QUERIES; ++query) {
        float sums[2] = {0.0f, 0.0f};
#pragma unroll
        for (int n = query * QUERY_TILES; n < (query + 1) * QUERY_TILES; ++n) {
            const float2 offset = offsets[n * 4];
            sums[0] += exp2_approximate(fmaf(d[n * 4], scale, -offset.x));
            sums[0] += exp2_approximate(fmaf(d[n * 4 + 1], scale, -offset.y));
            sums[1] += exp2_approximate(fmaf(d[n * 4 + 2], scale, -offset.x));
            sums[1] += exp2_approximate(fmaf(d[n * 4 + 3], scale, -offset.y));
        }
        write_pair(params, step, query, sums);
    }
}

DEVICE void run_consumer(const struct dense_scores_fwd_params *params) {
    struct ring_place stage = {0, 0};
    u32 keys[RESIDENT_WORDS];
    float d[COLUMNS / 2];
    for (;;) {
        await_copies(&stage);
        if (step_at(stage.index)->flags & NO_MORE) {
            return;
        }
        read_resident(keys, &stage);
        for (bool more = true; more;) {
            const int last = multiply_tile(d, keys, &stage);
            finish_tile(params, d, last);
            more = !(step_at(last)->flags & LAST_TILE);
            release_stage(last);
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct dense_scores_fwd_params params) {
    initialise_barriers();
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup == CONSUMERS) {
        registers_decrease(PRODUCER_REGISTERS);
        if (threadIdx.x % WARPGROUP / 32 == 0) {
            run_producer(&params);
        }
    } else {
        registers_increase(CONSUMER_REGISTERS);
        run_consumer(&params);
    }
}
