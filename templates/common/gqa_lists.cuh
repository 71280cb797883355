//@use common/base.cuh
//@use common/queries.cuh
//@use sparse_gqa.params.h
/*
 * The lists and limits of sparse_gqa (include/smelt/sparse_gqa.h). An entry of a list names
 * GRANULARITY rows. `list`: of the query, 0 with shared lists.
 */

/* Rows that a query may read: the row numbers below it. */
DEVICE int gqa_limit(const struct work_params *work, const struct gqa_lists_params *lists,
                     int query) {
    if (!lists->limit) {
        return work->rows;
    }
    const int batch = query_batch(work, query), token = query - batch * work->tokens;
    const int limit =
        lists->limit[batch * lists->limit_batch_stride + token * lists->limit_token_stride];
    return minimum(maximum(limit, 0), work->rows);
}

/* Entries below it name a row below the limit. */
DEVICE int gqa_entries(int limit) {
    return limit / GRANULARITY + (limit % GRANULARITY > 0);
}

DEVICE const int *gqa_list(const struct work_params *work, const struct gqa_lists_params *lists,
                           int query, int list) {
    return index_row(work, query) + list * lists->indices_group_stride;
}

/* How many slots of a list count. */
DEVICE int gqa_slots(const struct work_params *work, const struct gqa_lists_params *lists,
                     int query, int list) {
    if (!work->topk_length) {
        return work->width;
    }
    const int batch = query_batch(work, query), token = query - batch * work->tokens;
    const int length = work->topk_length[batch * work->topk_length_batch_stride +
                                         token * work->topk_length_token_stride +
                                         list * lists->topk_length_group_stride];
    return minimum(maximum(length, 0), work->width);
}
