#include "reference/operators.h"

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* A document's length from an array that need not ascend. */
static int64_t length_of(const int32_t *entries, int64_t document) {
    return larger(0, (int64_t)entries[document + 1] - entries[document]);
}

void smelt__indexer_windows_reference(const smelt_indexer_windows_args *args, int64_t query,
                                      int64_t *begin, int64_t *end) {
    const int32_t *lengths = args->cu_seqlens.data, *padded = args->cu_seqlens_padded.data;
    const int32_t *rows = args->query_indices.data, *keys = args->cu_seqlens_keys.data;
    const int32_t *offsets = args->causal_offset.data, *starts = padded ? padded : lengths;
    const int64_t row = rows ? rows[query] : query;
    int64_t next = larger(0, starts[0]); /* the running maximum of the entries */
    *begin = *end = 0;
    for (int64_t d = 0; d < args->documents; d++) {
        const int64_t first = next;
        next = larger(next, starts[d + 1]);
        const int64_t last = padded ? smaller(next, first + length_of(lengths, d)) : next;
        if (row < first || row >= last)
            continue;
        int64_t seen = row - first + 1 + (offsets ? offsets[d] : 0);
        if (!keys)
            seen = smaller(seen, last - first);
        int64_t count = larger(0, seen) / (args->ratio ? args->ratio : 1);
        if (keys)
            count = smaller(count, length_of(keys, d));
        const int64_t from = keys ? keys[d] : first;
        *begin = smaller(larger(from, 0), args->rows);
        *end = smaller(larger(from + count, 0), args->rows);
        if (*begin >= *end)
            *begin = *end = 0;
        return;
    }
}
