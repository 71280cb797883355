#include "reference/operators.h"

/* Number of valid slots of a query, and 1 + the last of them. */
static int64_t count_slots(const smelt_sparse_attn_args *args, int64_t query, int64_t *extent) {
    const int64_t batch = query / args->tokens, token = query % args->tokens;
    const int32_t *row = args->indices.data, *lengths = args->topk_length.data;
    row += batch * args->indices.strides[0] + token * args->indices.strides[1];
    int64_t slots = args->width, valid = 0;
    if (lengths) {
        const int64_t length =
            lengths[batch * args->topk_length.strides[0] + token * args->topk_length.strides[1]];
        slots = length < slots ? length : slots;
    }
    *extent = 0;
    for (int64_t slot = 0; slot < slots; slot++)
        if (row[slot] >= 0 && row[slot] < args->rows) {
            valid++;
            *extent = slot + 1;
        }
    return valid;
}

static int find_bucket(const int32_t *bounds, int buckets, int64_t valid) {
    int bucket = 0;
    while (bucket < buckets - 1 && valid > bounds[bucket])
        bucket++;
    return bucket;
}

int64_t smelt__partition_reference(const smelt_sparse_attn_args *args, const int32_t *bounds,
                                   int buckets, const struct smelt__partition_lists *lists) {
    const int64_t queries = args->batches * args->tokens;
    const int32_t *list = args->queries.data, *count = args->query_count.data;
    int64_t entries = list ? args->query_capacity : queries, listed = 0;
    if (count && *count < entries)
        entries = *count;
    for (int bucket = 0; bucket < buckets; bucket++) {
        lists->ranges[2 * bucket] = (int32_t)listed;
        for (int64_t i = 0; i < entries; i++) {
            const int64_t query = list ? list[i] : i;
            int64_t extent;
            if (query < 0 || query >= queries ||
                find_bucket(bounds, buckets, count_slots(args, query, &extent)) != bucket)
                continue;
            lists->list[listed] = (int32_t)query;
            lists->extents[listed++] = (int32_t)extent;
        }
        lists->ranges[2 * bucket + 1] = (int32_t)listed - lists->ranges[2 * bucket];
    }
    return listed;
}
