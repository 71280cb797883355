/*
 * Arguments of the sparse_attn_partition kernels, both passes. Included by the host code and, by
 * the generator, by the CUDA source: plain C types only. Strides count elements.
 *
 * Entry i is query number queries[i], or i without a query list; a query's number is batch * tokens
 * + token. A run is `run` consecutive entries; the last run may be short.
 */
enum {
    PARTITION_MOST_BUCKETS = 9,
    /* A packed word: an entry's bucket above its extent. */
    PARTITION_EXTENT_BITS = 28,
    PARTITION_NO_BUCKET = 15 /* for an invalid entry */
};

struct sparse_attn_partition_params {
    const int *indices;     /* [batches, tokens, width] */
    const int *topk_length; /* [batches, tokens] or null */
    const int *queries;     /* query list, or null for all queries */
    const int *query_count; /* its length in device memory, or null for query_capacity */
    int *ranges;            /* [buckets][2] first entry in `list`, number of entries */
    int *list;              /* [query_capacity] query numbers, bucket after bucket */
    int *extents;           /* [query_capacity] as `list`: 1 + a query's last valid slot, or 0 */
    int *packed;            /* [query_capacity] the first pass's bucket and extent of each entry */
    int *histograms;        /* [buckets][histogram_stride] entries of each run in the bucket */
    long long indices_batch_stride, indices_token_stride;
    long long topk_length_batch_stride, topk_length_token_stride;
    int batches, tokens, rows, width;
    int query_capacity;   /* entries of `queries`, or batches * tokens */
    int runs;             /* thread blocks of the first pass */
    int run;              /* a power of two, at least the number of warps of a thread block */
    int runs_at_once;     /* of a thread block of the second pass: a power of two, at least 4 */
    int histogram_stride; /* runs, rounded up to a multiple of 4 */
    int row_lanes;        /* threads that share a row: a power of two, at most 32 */
    int buckets;          /* 1..PARTITION_MOST_BUCKETS */
    /* The bound of each bucket but the last, which has the rest; ascending; 2^31 - 1 if there are
     * fewer buckets. */
    int bounds[PARTITION_MOST_BUCKETS - 1];
};
