/*
 * What every kernel of sparse_gqa knows of lists and limits beside common/work.params.h. Included by
 * the host code and, by the generator, by the CUDA source: plain C types only. Strides count elements.
 */
struct gqa_lists_params {
    const int *limit; /* [batches, tokens], or null: all rows */
    long long limit_batch_stride, limit_token_stride;
    /* From one list of a query to the next; 0 with one list. */
    long long indices_group_stride, topk_length_group_stride;
};
