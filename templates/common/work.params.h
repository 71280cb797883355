/*
 * Which queries a kernel processes and where their index rows are: the arguments that all kernels
 * over queries share (common/work.cuh). Included by the host code and, by the generator, by the
 * CUDA source: plain C types only. Strides count elements.
 */
struct work_params {
    const int *indices;     /* [batches, tokens, width] */
    const int *topk_length; /* [batches, tokens] or null */
    const int *queries;     /* query list: batch * tokens + token, or null for all queries */
    const int *query_count; /* its length in device memory, or null for query_capacity */
    const int *query_range; /* the first entry and the number of entries, in device memory,
                               instead of query_count; or null */
    const int *extents;     /* for entry i of `queries` the slots up to its last valid one; or
                               null */
    long long indices_batch_stride, indices_token_stride;
    long long topk_length_batch_stride, topk_length_token_stride;
    int batches, tokens, rows, width;
    int query_capacity;  /* length of `queries`, or batches * tokens */
    int pdl_wait_at_end; /* 1: all that the kernel reads is complete when it starts, and it waits
                            for the previous kernel only at its end. 0: at its start */
};
