/*
 * Arguments of the key_grads_grains kernels, which compute the grains of dk's rows
 * (common/grain.cuh). Included by the host code and, by the generator, by the CUDA source: plain C
 * types only. Strides count elements. Groups and lists (indexer_bwd_main.params.h) are those of one
 * launch of the main kernel.
 */
struct key_grads_grains_params {
    const void *q;       /* [tokens, heads, dim] bf16 */
    const void *weights; /* [tokens, heads] */
    const int *members;  /* [groups, group_queries] */
    const int *counts;   /* [groups] */
    const int *keys;     /* [groups, key_stride] no key twice in a list */
    const float *grads;  /* [groups, group_queries, key_stride] */
    float *reach;        /* [groups, group_queries] the most that a member adds to any column of a
                             row of dk for a gradient of 1 */
    float *tops;         /* [top_count] the largest single addend of some groups; one per CTA of
                             pass `reach` */
    unsigned *bounds;    /* [rows, 2] bounds in units: coarse, fine; zeros before pass `bounds` */
    float *grains;       /* [rows] */
    float *sums;         /* [rows, dim] of dk, of this launch's groups; any column order */
    float *totals;       /* [rows, dim] of earlier launches; the same column order */
    long long q_token_stride, q_head_stride;
    long long weights_token_stride;
    int heads, dim; /* dim: 64 or 128 */
    int rows;
    int groups, group_queries, key_stride;
    int top_count;   /* CTAs of pass `reach` */
    int first, last; /* whether this launch is the first, the last that shares the groups */
    /* The largest addend is 2^(bits - 1) to 2^bits coarse units; groups * 2^bits < 2^31. At least
     * 2, so that the inverse of every unit is a normal number. */
    int bits;
    int weights_bf16; /* 1: weights are bf16; 0: fp32 */
};
