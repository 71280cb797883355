/* See indexer_clean.h. */
#include "reference/indexer_clean.h"

int smelt__indexer_clean_reference(const smelt_indexer_clean_args *args, int64_t query,
                                   int64_t key) {
    const int32_t *const begins = args->window_begin.data, *const ends = args->window_end.data;
    return !(begins[query] <= key && key < ends[query]);
}
