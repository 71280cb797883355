//@use common/base.cuh
//@use common/logit.cuh
//@use indexer_clean_fill.params.h
/*
 * Fills what lies outside the windows of a matrix of logits with -inf. Meaning:
 * include/smelt/indexer_clean.h.
 *
 * Grid: a block for each item, BLOCK_KEYS neighbouring keys of a query, those of the same query
 * side by side; or fewer, each taking items in turn. What is to be filled of an item is what stands
 * before the window, and what stands behind it.
 */

/* Fills row[from .. to - 1], by the whole block: 16 bytes at a time between the first and the last
 * address that is a multiple of 16. */
DEVICE void fill(float *row, int from, int to) {
    const int count = to - from; /* 0 and up */
    float *const first = row + from;
    const int ahead = minimum(count, (int)(0 - ((u64)first / 4)) & 3); /* of the first multiple */
    const int fours = (count - ahead) / 4;
    const float4 lowest = {LOWEST_LOGIT, LOWEST_LOGIT, LOWEST_LOGIT, LOWEST_LOGIT};
    for (int i = (int)threadIdx.x; i < fours; i += THREADS) {
        *(float4 *)(first + ahead + i * 4) = lowest;
    }
    const int rest = count - fours * 4; /* below 7 */
    if ((int)threadIdx.x < rest) {
        const int i = (int)threadIdx.x;
        first[i < ahead ? i : i + fours * 4] = LOWEST_LOGIT;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_clean_fill_params params) {
    const i64 parts = (params.rows - 1) / BLOCK_KEYS + 1;
    const i64 items = parts * params.tokens;
#pragma unroll 1
    for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
        const int query = (int)(item / parts);
        const int first = (int)(item % parts) * BLOCK_KEYS;
        const int keys = minimum(params.rows - first, BLOCK_KEYS);
        const struct key_range window =
            window_among(params.window_begin[query], params.window_end[query], first, keys);
        const bool any = window.begin < window.end;
        float *const row = params.logits + query * params.logits_token_stride + first;
        fill(row, 0, any ? window.begin : keys);
        fill(row, any ? window.end : keys, keys);
    }
}
