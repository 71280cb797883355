//@use common/base.cuh
//@use common/softmax.cuh
//@use common/streamed_product.cuh
//@use ptx/maximum.cuh
//@use dense_lse_fwd.params.h
//@use dense_lse_fwd.items.cuh
/*
 * The log-sum-exp of dense attention's scores over each query's window, with mma.sync: lse[t, h] =
 * ln of the sum over the window's s of exp(scale * <q[t, h], k[s]>). Head h reads key head
 * h / GROUP_HEADS.
 *
 * Grid: one CTA per item, RESIDENT_ROWS rows: QUERY_ROWS rows (heads of a group, padded; more than
 * that in rounds) of each of ITEM_QUERIES queries; or fewer CTAs that loop over items. The item's
 * rows stay in shared memory, as rows of D = Q K^T (common/streamed_product.cuh), and the keys of its
 * windows' hull are the stream.
 *
 * A lane keeps a running maximum and sum (common/softmax.cuh) of its own columns for each of its
 * rows; lanes and slabs are merged at the end.
 *
 * Shared memory beside the product's: MERGED [RESIDENT_ROWS][SLABS] float2, maximum and sum.
 *
 * Knobs: block_rows, row_tiles, slabs, stages: src/codegen/families/dense_lse.c.
 */

enum { LANE_ROWS = ROW_TILES * 2 };

/* A lane's part of its rows: the maximum as a logarithm to base 2, the sum relative to it; windows. */
struct rows {
    float largest[LANE_ROWS], sums[LANE_ROWS];
    int begins[LANE_ROWS], ends[LANE_ROWS];
};

/* A lane's row number i, within the item. */
DEVICE int lane_row(int i) {
    return warp_row() + i * 8 + (int)threadIdx.x % 32 / 4;
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Starts the copy of a part of the item's rows; missing ones become zeros. */
DEVICE void copy_queries(const struct dense_lse_fwd_params *params, const struct item *item,
                         int part) {
    const char *const first =
        (const char *)params->q + 2 * (item->first_query * params->q_token_stride +
                                       item->key_head * GROUP_HEADS * params->q_head_stride);
    for (int row = (int)threadIdx.x / PART_CHUNKS; row < RESIDENT_ROWS; row += COPY_ROWS) {
        copy_row(resident_part(part), row,
                 is_row(item, row) ? first + 2 * (row_query(row) * params->q_token_stride +
                                                  row_head(item, row) * params->q_head_stride)
                                   : 0,
                 first, part);
    }
}

/* Starts the copy of part `part` of the keys from `key` on; those from `end` on become zeros. */
DEVICE void copy_keys(const struct dense_lse_fwd_params *params, const struct item *item, int key,
                      int end, int part, int stage) {
    const char *const first =
        (const char *)params->k + 2 * (item->key_head * params->k_head_stride);
#pragma unroll
    for (int i = 0; i < STREAM_ROWS / COPY_ROWS; ++i) {
        const int row = i * COPY_ROWS + (int)threadIdx.x / PART_CHUNKS;
        copy_row(stream_stage(stage), row,
                 key + row < end ? first + 2 * ((key + row) * params->k_row_stride) : 0,
                 (const char *)params->q, part);
    }
}

/* The next part of the stream. */
struct cursor {
    int key, part; /* key: the tile's first; none is left from the hull's end on */
};

DEVICE void next_part(struct cursor *cursor) {
    if (++cursor->part == PARTS) {
        cursor->part = 0;
        cursor->key += STREAM_ROWS;
    }
}

/* Starts the copies of the first STAGES - 1 parts, each with as much of the rows as it needs; the
 * last one with all that is left of them. */
DEVICE void begin_copies(const struct dense_lse_fwd_params *params, const struct item *item,
                         struct cursor *copied, int end) {
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) {
        const int last = i == STAGES - 2 ? PARTS : minimum(i + 1, PARTS);
        for (int part = i; part < last; ++part) {
            copy_queries(params, item, part);
        }
        if (copied->key < end) {
            copy_keys(params, item, copied->key, end, copied->part, i);
            next_part(copied);
        }
        cp_async_commit();
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

DEVICE void begin_rows(const struct dense_lse_fwd_params *params, const struct item *item,
                       struct rows *rows) {
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) {
        const struct key_range window = window_of(params, item, row_query(lane_row(i)));
        rows->largest[i] = MINUS_INFINITY;
        rows->sums[i] = 0.0f;
        rows->begins[i] = window.begin;
        rows->ends[i] = window.end;
    }
}

/* Adds a tile's scores, whose first key is `key`, of one of the lane's rows. */
DEVICE void add_scores(struct rows *rows, int i, const float (*d)[4], float scale, int key) {
    const int first = key + warp_slab() * SLAB_ROWS + (int)threadIdx.x % 4 * 2;
    float scores[SLAB_TILES * 2], largest = rows->largest[i];
#pragma unroll
    for (int n = 0; n < SLAB_TILES * 2; ++n) {
        const int column = first + n / 2 * 8 + n % 2;
        const bool inside = column >= rows->begins[i] && column < rows->ends[i];
        scores[n] = inside ? d[n / 2][i % 2 * 2 + n % 2] * scale : MINUS_INFINITY;
        largest = maximum_nan(largest, scores[n]);
    }
    if (largest == MINUS_INFINITY) {
        return;
    }
    float sum = rescaled(rows->sums[i], rows->largest[i], largest);
#pragma unroll
    for (int n = 0; n < SLAB_TILES * 2; ++n) {
        sum += exp2_approximate(scores[n] - largest);
    }
    rows->largest[i] = largest;
    rows->sums[i] = sum;
}

/* Merges the lanes of each quad, and writes a slab's maxima and sums to MERGED. */
DEVICE void merge_lanes(struct rows *rows) {
    float2 *const merged = (float2 *)(arena + MERGED_OFFSET);
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) {
        merge_quad(&rows->largest[i], &rows->sums[i]);
        if (threadIdx.x % 4 == 0) {
            const float2 both = {rows->largest[i], rows->sums[i]};
            merged[lane_row(i) * SLABS + warp_slab()] = both;
        }
    }
}

/* Writes the item's rows of lse; -inf without a key. */
DEVICE void store_rows(const struct dense_lse_fwd_params *params, const struct item *item) {
    const float2 *const merged = (const float2 *)(arena + MERGED_OFFSET);
    for (int row = (int)threadIdx.x; row < RESIDENT_ROWS; row += THREADS) {
        float largest = MINUS_INFINITY, sum = 0.0f;
        for (int slab = 0; slab < SLABS; ++slab) {
            const float2 part = merged[row * SLABS + slab];
            merge(&largest, &sum, part.x, part.y);
        }
        store_row(params, item, row, largest, sum);
    }
}

/* ---- the item -------------------------------------------------------------------------------- */

/* By the whole block. */
DEVICE void compute_item(const struct dense_lse_fwd_params *params, const struct item *item,
                         const struct key_range *hull) {
    float d[ROW_TILES][SLAB_TILES][4];
    struct rows rows;
    struct cursor used = {hull->begin, 0}, copied = used;
    int stage = 0, free_stage = STAGES - 1;
    if (used.key < hull->end) {
        begin_copies(params, item, &copied, hull->end);
    }
    begin_rows(params, item, &rows);
#pragma unroll 1
    while (used.key < hull->end) {
        wait_for_part();
        if (copied.key < hull->end) {
            copy_keys(params, item, copied.key, hull->end, copied.part, free_stage);
            next_part(&copied);
        }
        cp_async_commit();
        if (used.part == 0) {
            clear_products(d);
        }
        multiply_part(d, used.part, stage);
        if (used.part == PARTS - 1) {
#pragma unroll
            for (int i = 0; i < LANE_ROWS; ++i) {
                add_scores(&rows, i, d[i / 2], params->scale * LOG2_E, used.key);
            }
        }
        free_stage = stage;
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        next_part(&used);
    }
    merge_lanes(&rows);
    __syncthreads();
    store_rows(params, item);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct dense_lse_fwd_params params) {
    const i64 items = count_items(&params);
#pragma unroll 1
    for (i64 number = blockIdx.x; number < items; number += gridDim.x) {
        const struct item item = find_item(&params, number);
        const struct key_range hull = find_hull(&params, &item);
        compute_item(&params, &item, &hull);
        __syncthreads(); /* copies, stages and MERGED are free */
    }
}
