//@use common/base.cuh
//@use common/ring.cuh
//@use common/streamed_wgmma.cuh
//@use ptx/maximum.cuh
//@use ptx/registers.cuh
//@use dense_lse_fwd.params.h
//@use dense_lse_fwd.items.cuh
/*
 * The log-sum-exp of dense attention's scores over each query's window, with wgmma. Meaning and
 * items: dense_lse_fwd.mma.cu, dense_lse_fwd.items.cuh.
 *
 * D = Q K^T (common/streamed_wgmma.cuh): A is an item's rows, the heads of ITEM_QUERIES queries, B a
 * tile of keys. A thread has two rows of D. It keeps a running maximum and sum of its columns, and a
 * quad's lanes are merged at the item's end.
 *
 * Grid: one CTA per multiprocessor; each takes every gridDim.x-th item. The last warpgroup's first
 * warp is the producer.
 *
 * Knobs: slabs, stages: src/codegen/families/dense_lse.c.
 */

enum { WINDOWS = QUERY_ROWS < 16 ? 2 : 1 /* of a thread's two rows, which may be one query's */ };

/* A thread's part of its two rows: the largest product, the sum relative to it; windows. */
struct rows {
    float largest[2], sums[2];
    struct key_range windows[WINDOWS];
};

/* A thread's row number i, within the item. */
DEVICE int thread_row(int i) {
    return (int)threadIdx.x / 32 * 16 + i * 8 + (int)threadIdx.x % 32 / 4;
}

DEVICE void run_producer(const struct dense_lse_fwd_params *params) {
    struct ring_place stage = {0, 0};
    const i64 items = count_items(params);
    for (i64 number = blockIdx.x; number < items; number += gridDim.x) {
        const struct item item = find_item(params, number);
        const struct key_range hull = find_hull(params, &item);
        if (hull.begin < hull.end) {
            copy_parts(&params->q_map, RESIDENT_BYTES, item.round * QUERY_ROWS, item.key_head,
                       item.first_query, &stage);
        }
        for (int key = hull.begin; key < hull.end; key += COLUMNS) {
            copy_parts(&params->k_map, COLUMN_BYTES, 0, item.key_head, key, &stage);
        }
    }
}

DEVICE void begin_rows(const struct dense_lse_fwd_params *params, const struct item *item,
                       struct rows *rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        rows->largest[i] = MINUS_INFINITY;
        rows->sums[i] = 0.0f;
        rows->windows[i % WINDOWS] = window_of(params, item, row_query(thread_row(i)));
    }
}

/* Excludes row i's products with keys outside its window. */
DEVICE void mask_products(float *d, const struct key_range *window, int i, int key) {
#pragma unroll
    for (int n = 0; n < COLUMNS / 4; ++n) {
        const int column = key + (int)threadIdx.x % 4 * 2 + n / 2 * 8 + n % 2;
        if (column < window->begin || column >= window->end) {
            d[n / 2 * 4 + i * 2 + n % 2] = MINUS_INFINITY;
        }
    }
}

/* Adds a tile's products, whose first key is `key`, to row i. `scale`: to powers of two. */
DEVICE void add_products(float *d, struct rows *rows, int i, float scale, int key) {
    const struct key_range *const window = &rows->windows[i % WINDOWS];
    if (key < window->begin || key + COLUMNS > window->end) {
        mask_products(d, window, i, key);
    }
    float largest = rows->largest[i];
#pragma unroll
    for (int n = 0; n < COLUMNS / 4; ++n) {
        largest = maximum_nan(largest, d[n / 2 * 4 + i * 2 + n % 2]);
    }
    const float offset = largest == MINUS_INFINITY ? 0.0f : largest * scale;
    float sum = rows->sums[i] * exp2_approximate(fmaf(rows->largest[i], scale, -offset));
#pragma unroll
    for (int n = 0; n < COLUMNS / 4; ++n) {
        sum += exp2_approximate(fmaf(d[n / 2 * 4 + i * 2 + n % 2], scale, -offset));
    }
    rows->largest[i] = largest;
    rows->sums[i] = sum;
}

DEVICE void finish_rows(const struct dense_lse_fwd_params *params, const struct item *item,
                        const struct rows *rows, float scale) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        float largest = rows->largest[i] * scale, sum = rows->sums[i];
        merge_quad(&largest, &sum);
        if (threadIdx.x % 4 == 0) {
            store_row(params, item, thread_row(i), largest, sum);
        }
    }
}

DEVICE void run_consumer(const struct dense_lse_fwd_params *params) {
    struct ring_place stage = {0, 0};
    const float scale = params->scale * LOG2_E;
    const i64 items = count_items(params);
    u32 queries[RESIDENT_WORDS];
    float d[COLUMNS / 2];
    for (i64 number = blockIdx.x; number < items; number += gridDim.x) {
        const struct item item = find_item(params, number);
        const struct key_range hull = find_hull(params, &item);
        struct rows rows;
        begin_rows(params, &item, &rows);
        if (hull.begin < hull.end) {
            read_resident(queries, &stage);
        }
#pragma unroll 1
        for (int key = hull.begin; key < hull.end; key += COLUMNS) {
            release_stage(multiply_tile(d, queries, &stage));
            add_products(d, &rows, 0, scale, key);
            add_products(d, &rows, 1, scale, key);
        }
        finish_rows(params, &item, &rows, scale);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct dense_lse_fwd_params params) {
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
