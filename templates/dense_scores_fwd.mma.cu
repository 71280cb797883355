//@use common/base.cuh
//@use common/logit.cuh
//@use common/softmax.cuh
//@use common/streamed_product.cuh
//@use ptx/math.cuh
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

enum {
    GROUP_HEADS = HEADS / KV_HEADS, /* that read one key head */
    ROUNDS = (GROUP_HEADS + SLAB_ROWS - 1) / SLAB_ROWS,
    SLAB_QUERIES = SLAB_ROWS / QUERY_ROWS,
    TILE_QUERIES = SLABS * SLAB_QUERIES,
    QUERY_TILES = QUERY_ROWS / 8, /* n8 tiles of a query */
    ITEM_QUERIES = ITEM_TILES * TILE_QUERIES
};

struct item {
    int first_query, first_key;
    int queries, keys; /* at most ITEM_QUERIES and BLOCK_KEYS */
    int key_head;
};

/* The next part of the stream. `left` has a bit for each remaining tile, from `tile` on. */
struct cursor {
    u32 left; /* 0: no part is left */
    int tile, round, part;
};

DEVICE struct cursor first_part(u32 tiles) {
    const struct cursor cursor = {tiles, __ffs((int)tiles) - 1, 0, 0};
    return cursor;
}

DEVICE void next_part(struct cursor *cursor) {
    if (++cursor->part < PARTS) {
        return;
    }
    cursor->part = 0;
    if (++cursor->round == ROUNDS) {
        *cursor = first_part(cursor->left & (cursor->left - 1));
    }
}

/* The item's tiles with a query that has one of its keys, a bit each. By whole warps, one lane per
 * tile. */
DEVICE u32 tiles_with_keys(const struct dense_scores_fwd_params *params, const struct item *item) {
    const int tile = (int)threadIdx.x % 32;
    bool any = false;
    for (int i = 0; i < TILE_QUERIES && tile < ITEM_TILES; ++i) {
        const int query = tile * TILE_QUERIES + i;
        if (query < item->queries) {
            const struct key_range window = window_among(
                params->window_begin[item->first_query + query],
                params->window_end[item->first_query + query], item->first_key, item->keys);
            any |= window.begin < window.end;
        }
    }
    return __ballot_sync((u32)ALL_LANES, any);
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Starts the copy of a part of the item's keys; missing ones become zeros. */
DEVICE void copy_keys(const struct dense_scores_fwd_params *params, const struct item *item,
                      int part) {
    const char *const first =
        (const char *)params->k +
        2 * (item->first_key * params->k_row_stride + item->key_head * params->k_head_stride);
    for (int row = (int)threadIdx.x / PART_CHUNKS; row < RESIDENT_ROWS; row += COPY_ROWS) {
        copy_row(resident_part(part), row,
                 row < item->keys ? first + 2 * (row * params->k_row_stride) : 0, first, part);
    }
}

/* A row of the stream: its query within the item, and its head within the group, which may be past
 * the last one. */
DEVICE int row_query(const struct cursor *cursor, int row) {
    return cursor->tile * TILE_QUERIES + row / QUERY_ROWS;
}

DEVICE int row_head(const struct cursor *cursor, int row) {
    return cursor->round * SLAB_ROWS + row % QUERY_ROWS;
}

/* Starts the copy of a part of the stream into a stage; missing rows become zeros. */
DEVICE void copy_queries(const struct dense_scores_fwd_params *params, const struct item *item,
                         const struct cursor *cursor, int stage) {
    const char *const first =
        (const char *)params->q + 2 * (item->first_query * params->q_token_stride +
                                       item->key_head * GROUP_HEADS * params->q_head_stride);
#pragma unroll
    for (int i = 0; i < STREAM_ROWS / COPY_ROWS; ++i) {
        const int row = i * COPY_ROWS + (int)threadIdx.x / PART_CHUNKS;
        const int query = row_query(cursor, row), head = row_head(cursor, row);
        const bool present = query < item->queries && head < GROUP_HEADS;
        copy_row(stream_stage(stage), row,
                 present
                     ? first + 2 * (query * params->q_token_stride + head * params->q_head_stride)
                     : 0,
                 first, cursor->part);
    }
}

/* Starts the copies of the first STAGES - 1 parts, each with as much of the keys as it needs; the
 * last one with all that is left of them. */
DEVICE void begin_copies(const struct dense_scores_fwd_params *params, const struct item *item,
                         struct cursor *copied) {
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) {
        const int end = i == STAGES - 2 ? PARTS : minimum(i + 1, PARTS);
        for (int part = i; part < end; ++part) {
            copy_keys(params, item, part);
        }
        if (copied->left) {
            copy_queries(params, item, copied, i);
            next_part(copied);
        }
        cp_async_commit();
    }
}

/* ---- probabilities --------------------------------------------------------------------------- */

/* Loads what is subtracted from this lane's columns' scores, as powers of two. */
DEVICE void load_offsets(float (*offsets)[2], const struct dense_scores_fwd_params *params,
                         const struct item *item, const struct cursor *cursor) {
#pragma unroll
    for (int i = 0; i < SLAB_TILES * 2; ++i) {
        const int row = warp_slab() * SLAB_ROWS + i / 2 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
        const int query = row_query(cursor, row), head = row_head(cursor, row);
        float offset = -MINUS_INFINITY;
        if (query < item->queries && head < GROUP_HEADS) {
            offset = LOG2_E *
                     params->lse[(item->first_query + query) * params->lse_token_stride +
                                 (item->key_head * GROUP_HEADS + head) * params->lse_head_stride];
        }
        offsets[i / 2][i % 2] = offset;
    }
}

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

/* Sums two values over a quad: lanes with an even `bit` get that of x, the others that of y. */
DEVICE float exchange(float x, float y, int bit) {
    const bool odd = threadIdx.x & (u32)bit;
    return (odd ? y : x) + __shfl_xor_sync((u32)ALL_LANES, odd ? x : y, bit);
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
    const bool adds = KV_HEADS * ROUNDS > 1 && item->key_head + cursor->round > 0;
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
    begin_copies(params, item, &copied);
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
            load_offsets(offsets, params, item, &used);
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
    const int key_blocks = (params.rows - 1) / BLOCK_KEYS + 1;
    const i64 items = (i64)key_blocks * ((params.tokens - 1) / ITEM_QUERIES + 1);
#pragma unroll 1
    for (i64 number = blockIdx.x; number < items; number += gridDim.x) {
        const int first_query = (int)(number / key_blocks) * ITEM_QUERIES;
        const int first_key = (int)(number % key_blocks) * BLOCK_KEYS;
        struct item item = {first_query, first_key,
                            minimum(params.tokens - first_query, ITEM_QUERIES),
                            minimum(params.rows - first_key, BLOCK_KEYS), 0};
        const u32 tiles = tiles_with_keys(&params, &item);
#pragma unroll 1
        for (; tiles && item.key_head < KV_HEADS; ++item.key_head) {
            __syncthreads(); /* the previous keys and stages may still be read */
            compute_tiles(&params, &item, tiles);
        }
    }
}
