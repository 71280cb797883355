//@use common/base.cuh
//@use common/softmax.cuh
//@use common/streamed_product.cuh
//@use ptx/math.cuh
//@use dense_scores_fwd.items.cuh
//@use dense_scores_fwd.mma_stream.cuh
//@use dense_scores_fwd.params.h
/*
 * Attention's probabilities of all keys in each query's window, summed over the heads, with
 * mma.sync: scores[t, s] = sum over h of exp(scale * <q[t, h], k[s]> - lse[t, h]). Head h reads key
 * head h / GROUP_HEADS.
 *
 * Grid: one CTA per item, BLOCK_KEYS keys and ITEM_TILES tiles of queries, or fewer CTAs that loop
 * over items; items of the same queries adjacent. For each key head the keys' rows stay in shared
 * memory, as rows of D = K Q^T (common/streamed_product.cuh), and the queries' rows are the stream.
 * A slab of 64 rows of the stream has SLAB_QUERIES queries of QUERY_ROWS rows: up to 64 of a
 * group's heads, padded; more heads are taken in rounds of 64. Padded rows are zeros with an
 * infinite lse, so that their probability is 0.
 *
 * A thread's values of a query are thus in few rows of D (keys) and many columns (heads): it adds
 * its columns, then four lanes exchange sums. Rounds and key heads after the first add to what the
 * same thread wrote before.
 *
 * Knobs: block_keys, row_tiles, slabs, stages, item_tiles: src/codegen/families/dense_scores_fwd.c.
 */

/* ---- probabilities --------------------------------------------------------------------------- */

/* This lane's sums over its columns of a query, from n8 tile `first` on; the rows are in the order
 * of D's. */
DEVICE void sum_heads(float *sums, const float (*d)[SLAB_TILES][4], const float (*offsets)[2],
                      int first, float scale) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) {
        sums[m * 2] = sums[m * 2 + 1] = 0.0f;
#pragma unroll
        for (int n = 0; n < QUERY_TILES; ++n) {
            const float *const offset = offsets[first + n], *const values = d[m][first + n];
            sums[m * 2] += exp2_approximate(fmaf(values[0], scale, -offset[0]));
            sums[m * 2] += exp2_approximate(fmaf(values[1], scale, -offset[1]));
            sums[m * 2 + 1] += exp2_approximate(fmaf(values[2], scale, -offset[0]));
            sums[m * 2 + 1] += exp2_approximate(fmaf(values[3], scale, -offset[1]));
        }
    }
}

/* Writes a query's probabilities, or adds them to what an earlier round wrote. Of each two m16 tiles
 * a lane writes one row. */
DEVICE void write_sums(const struct dense_scores_fwd_params *params, const struct item *item,
                       int query, const float *sums, bool adds) {
    const int lane = (int)threadIdx.x % 32;
    float *const row =
        params->scores + (item->first_query + query) * params->scores_stride + item->first_key;
#pragma unroll
    for (int i = 0; i < ROW_TILES * 2; i += 4) {
        const int key = warp_row() + i * 8 + lane % 4 * 8 + lane / 4;
        const float low = exchange(sums[i], sums[i + 1], 1);
        const float high = exchange(sums[i + 2], sums[i + 3], 1);
        const float sum = exchange(low, high, 2);
        if (query < item->queries && key < item->keys) {
            row[key] = adds ? row[key] + sum : sum;
        }
    }
}

/* The tile's probabilities, from its scores. */
DEVICE void finish_tile(const struct dense_scores_fwd_params *params, const struct item *item,
                        const struct cursor *cursor, const float (*d)[SLAB_TILES][4],
                        const float (*offsets)[2]) {
    const bool adds = adds_to(item->key_head, cursor->round);
#pragma unroll
    for (int i = 0; i < SLAB_QUERIES; ++i) {
        const int query = cursor->tile * TILE_QUERIES + warp_slab() * SLAB_QUERIES + i;
        float sums[ROW_TILES * 2];
        sum_heads(sums, d, offsets, i * QUERY_TILES, params->scale * LOG2_E);
        write_sums(params, item, query, sums, adds);
    }
}

/* ---- the item -------------------------------------------------------------------------------- */

/* The probabilities of the item's `tiles`, of one key head. By the whole block. */
DEVICE void compute_tiles(const struct dense_scores_fwd_params *params, const struct item *item,
                          u32 tiles) {
    float d[ROW_TILES][SLAB_TILES][4], offsets[SLAB_TILES][2];
    struct cursor copied = first_part(tiles), used = copied;
    int stage = 0, free_stage = STAGES - 1;
    begin_copies(params, item, &copied, STAGES - 1);
#pragma unroll 1
    while (used.left) {
        wait_for_part();
        if (copied.left) {
            copy_queries(params, item, &copied, free_stage);
            next_part(&copied);
        }
        cp_async_commit();
        if (used.part == 0) {
            clear_products(d);
        }
        if (used.part == PARTS - 1) {
            load_offsets(offsets, params, item, &used, warp_slab());
        }
        multiply_part(d, used.part, stage);
        if (used.part == PARTS - 1) {
            finish_tile(params, item, &used, d, offsets);
        }
        free_stage = stage;
        stage = stage + 1 < STAGES ? stage + 1 : 0;
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
