//@use common/base.cuh
//@use common/logit.cuh
//@use indexer_clean_fill.params.h
/*
 * Fills the logits outside the windows with -inf. Meaning: include/smelt/indexer_clean.h.
 *
 * Grid: one CTA per item, BLOCK_KEYS adjacent keys of a query, items of the same query adjacent; or
 * fewer CTAs that loop over items. Of an item the keys before and after the window are filled.
 */

/* Fills row[from] to row[to - 1], by the whole block, in 16-byte stores where aligned. */
DEVICE void fill(float *row, int from, int to) {
    const int count = to - from; /* at least 0 */
    float *const first = row + from;
    const int ahead = minimum(count, (int)(0 - ((u64)first / 4)) & 3); /* until the first 16-byte
                                                                          boundary */
    const int fours = (count - ahead) / 4;
    const float4 lowest = {LOWEST_LOGIT, LOWEST_LOGIT, LOWEST_LOGIT, LOWEST_LOGIT};
    for (int i = (int)threadIdx.x; i < fours; i += THREADS) {
        *(float4 *)(first + ahead + i * 4) = lowest;
    }
    const int rest = count - fours * 4; /* at most 6 */
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
