//@use common/base.cuh
//@use common/logit.cuh
//@use common/softmax.cuh
//@use ptx/math.cuh
//@use dense_lse_fwd.params.h
/* Items of dense_lse_fwd, and the running maximum and sum of a row. */

enum {
    GROUP_HEADS = HEADS / KV_HEADS, /* that read one key head */
    ROUNDS = (GROUP_HEADS + QUERY_ROWS - 1) / QUERY_ROWS,
    ITEM_QUERIES = RESIDENT_ROWS / QUERY_ROWS
};

struct item {
    int first_query, queries; /* at most ITEM_QUERIES */
    int key_head, round;
};

/* A query's window, clipped; empty unless begin < end. Past the item's last query it is empty. */
DEVICE struct key_range window_of(const struct dense_lse_fwd_params *params,
                                  const struct item *item, int query) {
    const struct key_range none = {0, 0};
    const i64 at = item->first_query + query;
    return query < item->queries
               ? window_among(params->window_begin[at], params->window_end[at], 0, params->rows)
               : none;
}

/* The number of items, and the item with a number. The last queries come first: with causal windows
 * these have the most keys. */
DEVICE i64 count_items(const struct dense_lse_fwd_params *params) {
    return (i64)((params->tokens - 1) / ITEM_QUERIES + 1) * (KV_HEADS * ROUNDS);
}

DEVICE struct item find_item(const struct dense_lse_fwd_params *params, i64 number) {
    const int block = (params->tokens - 1) / ITEM_QUERIES - (int)(number / (KV_HEADS * ROUNDS));
    const int part = (int)(number % (KV_HEADS * ROUNDS));
    const struct item item = {block * ITEM_QUERIES,
                              minimum(params->tokens - block * ITEM_QUERIES, ITEM_QUERIES),
                              part / ROUNDS, part % ROUNDS};
    return item;
}

/* The hull of an item's windows; empty unless begin < end. By whole warps. */
DEVICE struct key_range find_hull(const struct dense_lse_fwd_params *params,
                                  const struct item *item) {
    struct key_range hull = {params->rows, 0};
    for (int i = 0; i < ITEM_QUERIES; i += 32) {
        const struct key_range window = window_of(params, item, i + (int)threadIdx.x % 32);
        if (window.begin < window.end) {
            hull.begin = minimum(hull.begin, window.begin);
            hull.end = maximum(hull.end, window.end);
        }
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        hull.begin = minimum(hull.begin, __shfl_xor_sync((u32)ALL_LANES, hull.begin, step));
        hull.end = maximum(hull.end, __shfl_xor_sync((u32)ALL_LANES, hull.end, step));
    }
    return hull;
}

/* A resident row's query within the item, and its head within the group. */
DEVICE int row_query(int row) {
    return row / QUERY_ROWS;
}

DEVICE int row_head(const struct item *item, int row) {
    return item->round * QUERY_ROWS + row % QUERY_ROWS;
}

DEVICE bool is_row(const struct item *item, int row) {
    return row_query(row) < item->queries && row_head(item, row) < GROUP_HEADS;
}

/* ---- sums: the maximum is a logarithm to base 2, the sum is relative to it ---------------------- */

/* A sum relative to a maximum `onto`, which is at least its own; 0 if its own is -inf. */
DEVICE float rescaled(float sum, float largest, float onto) {
    return largest == MINUS_INFINITY ? 0.0f : sum * exp2_approximate(largest - onto);
}

/* Merges another maximum and sum into a row's. */
DEVICE void merge(float *largest, float *sum, float other_largest, float other_sum) {
    const float both = fmaxf(*largest, other_largest);
    *sum = rescaled(*sum, *largest, both) + rescaled(other_sum, other_largest, both);
    *largest = both;
}

/* Merges the maxima and sums of each quad's lanes. */
DEVICE void merge_quad(float *largest, float *sum) {
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        const float other = __shfl_xor_sync((u32)ALL_LANES, *largest, step);
        merge(largest, sum, other, __shfl_xor_sync((u32)ALL_LANES, *sum, step));
    }
}

/* Writes a row's lse, -inf without a key, if there is such a row. */
DEVICE void store_row(const struct dense_lse_fwd_params *params, const struct item *item, int row,
                      float largest, float sum) {
    if (is_row(item, row)) {
        params
            ->lse[(item->first_query + row_query(row)) * params->lse_token_stride +
                  (item->key_head * GROUP_HEADS + row_head(item, row)) * params->lse_head_stride] =
            largest == MINUS_INFINITY ? MINUS_INFINITY : LN_2 * (largest + log2_approximate(sum));
    }
}
