//@use common/base.cuh
//@use common/queries.cuh
//@use ptx/memory.cuh
//@use common/work.params.h
/* The entries of the query list, for kernels that process groups of them. */

/* The query of entry number `item`, or -1; `entry`: its index in the query list. last_range: see
 * attention_lists.params.h. */
DEVICE int find_query(const struct work_params *work, const int *last_range, u32 item, int *entry) {
    struct query_range range = find_query_range(work);
    if (last_range) {
        range.queries = (int)load_l2_32(&last_range[0]) + (int)load_l2_32(&last_range[1]);
    }
    *entry = 0;
    if (range.queries <= 0 || item >= (u32)range.queries) {
        return -1;
    }
    *entry = range.first + (int)item;
    const int query = work->queries ? (int)load_l2_32(&work->queries[*entry]) : *entry;
    return query >= 0 && query < work->batches * work->tokens ? query : -1;
}
