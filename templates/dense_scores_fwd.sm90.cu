//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/softmax.cuh
//@use common/streamed_product.cuh
//@use ptx/math.cuh
//@use ptx/proxy.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_ss_tile.cuh n = SLABS * 64, ta = 0, tb = 0
//@use dense_scores_fwd.items.cuh
//@use dense_scores_fwd.params.h
/*
 * Attention's probabilities of all keys in each query's window, summed over the heads, with wgmma.
 * Meaning, items and the stream: dense_scores_fwd.mma.cu. A warpgroup has 64 keys of the block as
 * rows of D, and all rows of a tile of the stream as columns: a warp has 16 keys, one m16 tile.
 *
 * All threads copy, with cp.async, and fence each part they copied from the async proxy, through
 * which wgmma reads. One part's products may be in flight while the next part's are issued. At the
 * top of part j: wait for this thread's copies of part j (STAGES - 3 later ones may be in flight),
 * fence, then a barrier: part j has landed, and no warpgroup still reads stage (j - 2) % STAGES,
 * which is then refilled with part j + STAGES - 2.
 *
 * Knobs: block_keys is 128, slabs, stages, item_tiles: src/codegen/families/dense_scores_fwd.c.
 */

enum { COLUMNS = SLABS * SLAB_ROWS, COLUMN_TILES = COLUMNS / 8 };

/* Waits until a part has landed, for all threads and for wgmma. */
DEVICE void await_part(void) {
    cp_async_wait_${STAGES - 3}();
    fence_proxy_async();
    __syncthreads();
}

/* Starts d = or d += the product of a part in a stage, and waits for the part before. */
DEVICE void start_part(float (*d)[4], int part, int stage) {
    const u32 rows = threadIdx.x / WARPGROUP * (64 * PART_PITCH);
    const u64 a = shared_descriptor(resident_part(part) + rows, 16, 8 * PART_PITCH, 128);
    const u64 b = shared_descriptor(stream_stage(stage), 16, 8 * PART_PITCH, 128);
    wgmma_fence();
    // clang-format off
    wgmma_ss_tile_n${SLABS * 64}_t00(&d[0][0], a, b, part > 0);
    // clang-format on
    wgmma_commit();
    wgmma_wait_1();
}

/* Writes a query's probabilities for this warp's 16 keys, two lanes of each quad one each, or adds
 * them to what an earlier round wrote. */
DEVICE void write_pair(const struct dense_scores_fwd_params *params, const struct item *item,
                       int query, const float *sums, bool adds) {
    const int lane = (int)threadIdx.x % 32;
    const int key = (int)threadIdx.x / 32 * 16 + lane % 2 * 8 + lane / 4;
    float sum = exchange(sums[0], sums[1], 1);
    sum += __shfl_xor_sync((u32)ALL_LANES, sum, 2);
    if (lane % 4 < 2 && query < item->queries && key < item->keys) {
        float *const to = params->scores + (item->first_query + query) * params->scores_stride +
                          item->first_key + key;
        *to = adds ? *to + sum : sum;
    }
}

/* The probabilities of a tile's slab, from its scores. */
DEVICE void finish_slab(const struct dense_scores_fwd_params *params, const struct item *item,
                        const struct cursor *cursor, const float (*d)[4], int slab) {
    const float scale = params->scale * LOG2_E;
    float offsets[SLAB_TILES][2];
    load_offsets(offsets, params, item, cursor, slab);
#pragma unroll
    for (int i = 0; i < SLAB_QUERIES; ++i) {
        float sums[2] = {0.0f, 0.0f};
#pragma unroll
        for (int n = i * QUERY_TILES; n < (i + 1) * QUERY_TILES; ++n) {
            sums[0] += exp2_approximate(fmaf(d[n][0], scale, -offsets[n][0]));
            sums[0] += exp2_approximate(fmaf(d[n][1], scale, -offsets[n][1]));
            sums[1] += exp2_approximate(fmaf(d[n][2], scale, -offsets[n][0]));
            sums[1] += exp2_approximate(fmaf(d[n][3], scale, -offsets[n][1]));
        }
        write_pair(params, item, cursor->tile * TILE_QUERIES + slab * SLAB_QUERIES + i, sums,
                   adds_to(item, cursor));
    }
}

/* The probabilities of the item's `tiles`, of one key head. By the whole block. */
DEVICE void compute_tiles(const struct dense_scores_fwd_params *params, const struct item *item,
                          u32 tiles) {
    float d[COLUMN_TILES][4];
    struct cursor copied = first_part(tiles), used = copied;
    int stage = 0, free_stage = STAGES - 2;
    begin_copies(params, item, &copied, STAGES - 2);
#pragma unroll 1
    while (used.left) {
#pragma unroll 1
        for (int part = 0; part < PARTS; ++part) {
            await_part();
            if (copied.left) {
                copy_queries(params, item, &copied, free_stage);
                next_part(&copied);
            }
            cp_async_commit();
            start_part(d, part, stage);
            stage = stage + 1 < STAGES ? stage + 1 : 0;
            free_stage = free_stage + 1 < STAGES ? free_stage + 1 : 0;
        }
        wgmma_wait_0();
#pragma unroll
        for (int slab = 0; slab < SLABS; ++slab) {
            finish_slab(params, item, &used, &d[slab * SLAB_TILES], slab);
        }
        used.part = PARTS - 1;
        next_part(&used);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct dense_scores_fwd_params params) {
    const i64 items = count_items(&params);
#pragma unroll 1
    for (i64 number = blockIdx.x; number < items; number += gridDim.x) {
        struct item item = find_item(&params, number);
        const u32 tiles = tiles_with_keys(&params, &item);
#pragma unroll 1
        for (; tiles && item.key_head < KV_HEADS; ++item.key_head) {
            __syncthreads(); /* the previous keys and stages may still be read */
            compute_tiles(&params, &item, tiles);
        }
    }
}
