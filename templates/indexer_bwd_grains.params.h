/*
 * Arguments of the indexer_bwd_grains kernels, which find the grains of dk's rows
 * (common/grain.cuh). Included by the host code and, by the generator, by the CUDA source: plain C
 * types only. Strides count elements. See indexer_bwd_main.params.h for groups and lists: these are
 * the ones of one launch of the main kernel.
 */
struct indexer_bwd_grains_params {
    const void *q;        /* [tokens, heads, dim] bf16 */
    const float *weights; /* [tokens, heads] */
    const int *members;   /* [groups, group_queries] */
    const int *counts;    /* [groups] */
    const int *keys;      /* [groups, key_stride] no key twice in a list */
    const float *grads;   /* [groups, group_queries, key_stride] */
    float *reach;     /* [groups, group_queries] what a member adds to a row of dk at most, in any
                         column, for a gradient of 1 */
    float *tops;      /* [top_count] of what is added to a row at once the largest, of some groups
                         each: a block of the pass `reach` writes one */
    unsigned *bounds; /* [rows, 2] sums of what is added, in units: coarse ones, fine ones; zeros
                         ahead of the pass `bounds` */
    float *grains;    /* [rows] */
    float *sums;      /* [rows, dim] of dk, of this launch's groups; columns in any order */
    float *totals;    /* [rows, dim] of the groups before; columns likewise */
    long long q_token_stride, q_head_stride;
    long long weights_token_stride;
    int heads, dim; /* dim: 64 or 128 */
    int rows;
    int groups, group_queries, key_stride;
    int top_count;   /* the blocks of the pass `reach` */
    int first, last; /* which of the launches that share the groups this one is */
    /* The largest of all is 2^(bits - 1) to 2^bits coarse units; groups * 2^bits stay below 2^31.
     * At least 2, so that the inverse of every unit is a normal number. */
    int bits;
};
