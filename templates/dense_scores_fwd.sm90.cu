//@use common/base.cuh
//@use common/ring.cuh
//@use common/tile.cuh
//@use common/warp_arrival.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/registers.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs_tile.cuh n = SLABS * 64, tb = 0
//@use dense_scores_fwd.items.cuh
//@use dense_scores_fwd.params.h
//@use dense_scores_fwd.sm90_shared.cuh
//@use dense_scores_fwd.sm90_copies.cuh
/*
 * Attention's probabilities of all keys in each query's window, summed over the heads, with wgmma.
 * Meaning and items: dense_scores_fwd.mma.cu.
 *
 * D = K Q^T: a consumer warpgroup keeps 64 of the item's keys in registers, as operand A, and the
 * rows of a tile of queries (heads) are D's columns. So shared memory holds nothing but a ring of
 * stages, and a stage is read once by each warpgroup. A thread adds its columns' exponentials, then
 * a quad's lanes exchange sums. The warpgroups are not synchronised with each other: while one adds,
 * the other multiplies.
 *
 * Grid: one CTA per multiprocessor; each takes every gridDim.x-th item. The last warpgroup's first
 * warp is the producer: by tensor copies it fills stages with an item's keys, PARTS parts of 64
 * columns, then with each tile's rows, likewise, across items. Rows of heads that do not exist are
 * zeros with an infinite lse, so that their probability is 0.
 *
 * Shared memory (offsets and sizes: the plan above):
 *   STREAM   [STAGES] rows of 128 bytes, 128-byte swizzled: BLOCK_KEYS of keys or COLUMNS of queries
 *   OFFSETS  [STAGES][COLUMNS] lse in powers of two; of a tile's last part
 *   STEPS    [STAGES] struct step; of a tile's last part, and flags of keys' parts
 *
 * Barriers (parity counts uses; stages are used cyclically):
 *   barrier   count          arrives                                     waits
 *   FULL[s]   1              producer, with the box's bytes              consumers
 *   EMPTY[s]  4 * CONSUMERS  consumers: warps that have read the stage   producer
 * (Counts are of warps: common/warp_arrival.cuh.)
 *
 * Knobs: slabs, stages, item_tiles: src/codegen/families/dense_scores_fwd.c.
 */

enum { KEY_WORDS = PARTS * 16, /* of a thread */ COLUMN_TILES = COLUMNS / 8 };

DEVICE void await_copies(const struct ring_place *stage) {
    mbarrier_wait(barrier_at(FULL + stage->index), stage->parity);
}

DEVICE void release_stage(int stage) {
    arrive_warp(barrier_at(EMPTY + stage), 1);
}

/* Reads the warpgroup's keys from the next stages. */
DEVICE void read_keys(u32 *keys, struct ring_place *stage) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        await_copies(stage);
        const u32 row = shared_address(stage_at(stage->index)) +
                        tile_chunk((int)threadIdx.x / 32 * 16 + lane % 16, lane / 16, TILE_PITCH);
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            ldmatrix_x4(&keys[part * 16 + step * 4], tile_advance(row, step * STEP_BYTES));
        }
        release_stage(stage->index);
        ring_advance(stage, STAGES);
    }
}

/* d = the product of the keys and a tile in the next stages, of which all but the last are released.
 * Returns the last one. */
DEVICE int multiply_tile(float *d, const u32 *keys, struct ring_place *stage) {
    int last = 0;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        await_copies(stage);
        wgmma_fence();
        // clang-format off
        wgmma_rs_tile_n${SLABS * 64}_t00(d, &keys[part * 16],
                                         tile_descriptor(stage_at(stage->index)), part > 0);
        // clang-format on
        wgmma_commit();
        if (part > 0) {
            wgmma_wait_1();
            release_stage(last);
        }
        last = stage->index;
        ring_advance(stage, STAGES);
    }
    wgmma_wait_0();
    return last;
}

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
    u32 keys[KEY_WORDS];
    float d[COLUMNS / 2];
    for (;;) {
        await_copies(&stage);
        if (step_at(stage.index)->flags & NO_MORE) {
            return;
        }
        read_keys(keys, &stage);
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
