/* See sparse_attn_segments.h. */
#include "ops/sparse_attn_segments.h"

#include "codegen/families/sparse_attn_bwd.h"
#include "ops/divide.h"

enum {
    MOST_CURSORS = 1 << 24, /* 64 MB, but for more keys than that */
    /* A part more costs a cursor of each key, which is cleared, counted, scanned and written, about
     * 4 ps on a large GPU; a group more in a part, its entries one group after the other, about 1
     * ns each. So the best number of parts is about the root of 256 groups * key_stride /
     * key_count.
     */
    ENTRY_COST = 256,
    /* Of a round, 16 MB, but for one chunk's that are more: what is written here and there, these
     * and the cursors, stays in the L2 cache. (Measured with 32768 keys: 64 MB take 2.4 times as
     * long.) */
    ROUND_ENTRIES = 1 << 22,
    ROUND_COLUMNS = 1 << 22, /* likewise */
    MOST_SCAN_BLOCKS = 1024, /* each sums up those before it */
    SCAN_THREADS = SMELT__BWD_SCAN_THREADS,
    WARP = 32
};

/* The largest number up to MOST_CURSORS whose square is at most a * b, which are not negative: bit
 * by bit, since a call's every nanosecond is the caller's. */
static int64_t find_root(int64_t a, int64_t b) {
    const int64_t most = (int64_t)MOST_CURSORS * MOST_CURSORS;
    if (b > 0 && a >= smelt__divide_up(most, b))
        return MOST_CURSORS;
    int64_t root = 0;
    for (int64_t bit = MOST_CURSORS / 2; bit > 0; bit /= 2)
        root += (root + bit) * (root + bit) <= a * b ? bit : 0;
    return root;
}

/* Cursors there are room for, of all parts of all chunks: grows with each of its arguments. */
static int64_t count_cursors(int64_t groups, int64_t key_stride, int64_t key_count,
                             int64_t columns) {
    const int64_t best = find_root(ENTRY_COST * groups * key_stride, key_count);
    const int64_t cursors =
        groups <= best / (key_count ? key_count : 1) ? groups * key_count : best;
    return cursors > columns ? cursors : columns;
}

int64_t smelt__segments_round(int64_t chunk, int64_t key_stride, int64_t key_count) {
    const int64_t by_entries = smelt__divide_up(ROUND_ENTRIES, chunk * key_stride);
    const int64_t by_columns = ROUND_COLUMNS / (key_count ? key_count : 1);
    const int64_t chunks = by_entries < by_columns ? by_entries : by_columns;
    return chunks > 1 ? chunks : 1;
}

struct smelt__segments_layout smelt__segments_layout(int64_t groups, int64_t chunk,
                                                     int64_t key_stride, int64_t key_count) {
    const int64_t columns = smelt__divide_up(groups, chunk) * key_count;
    return (struct smelt__segments_layout){
        .cursors = count_cursors(groups, key_stride, key_count, columns),
        .starts = columns + 1,
        .entries = groups * key_stride,
        .sums = MOST_SCAN_BLOCKS};
}

void smelt__segments_cut(struct sparse_attn_bwd_segments_params *params) {
    const int64_t groups = params->groups, keys = params->key_count;
    const int64_t chunk = groups < params->chunk ? groups : params->chunk;
    const int64_t chunks = smelt__divide_up(groups, chunk), columns = chunks * keys;
    const int64_t parts = count_cursors(groups, params->key_stride, keys, columns) / columns;
    params->chunks = (int)chunks;
    params->columns = (int)columns;
    params->part = (int)smelt__divide_up(chunk, parts < chunk ? parts : chunk);
    params->parts = (int)smelt__divide_up(chunk, params->part);
    params->scan_rows = 1;
    while (params->scan_rows * 2 <= SCAN_THREADS / WARP && params->scan_rows * 2 <= params->parts)
        params->scan_rows *= 2;
    const int64_t tile = SCAN_THREADS / params->scan_rows;
    params->scan_keys =
        (int)(smelt__divide_up(smelt__divide_up(columns, MOST_SCAN_BLOCKS), tile) * tile);
    params->scan_blocks = (int)smelt__divide_up(columns, params->scan_keys);
}

smelt_status smelt__segments_launch(const smelt_context *context,
                                    const struct smelt__segments_kernels *kernels,
                                    const struct sparse_attn_bwd_segments_params *params,
                                    struct CUstream_st *stream) {
    struct sparse_attn_bwd_segments_params first = *params, second = *params;
    const struct smelt__launch launches[] = {
        {.blocks = {(uint32_t)params->groups}, .entered = 1, .params = params},
        {.blocks = {(uint32_t)params->scan_blocks}, .entered = 1, .params = &first},
        {.blocks = {(uint32_t)params->scan_blocks}, .entered = 1, .params = &second},
        {.blocks = {(uint32_t)(params->chunks * params->parts)}, .entered = 1, .params = params}};
    const struct smelt__kernel *const order[] = {kernels->count, kernels->scan, kernels->scan,
                                                 kernels->place};
    first.scan_step = 0;
    second.scan_step = 1;
    smelt_status status = smelt__fill_async(
        context, params->cursors, 0, (size_t)params->parts * (size_t)params->columns, 1, stream);
    for (int i = 0; i < 4 && status == SMELT_OK; i++)
        status = smelt__kernel_launch(context, order[i], &launches[i], stream);
    return status;
}
