//@use common/tensor_map.h
/*
 * Arguments of the indexer_bwd_main kernels, every variant. Included by the host code (after
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/indexer_bwd.h for the tensors.
 *
 * A group is GROUP_QUERIES queries that share a list of keys; a key is a row of k. Groups and lists
 * are written by indexer_bwd_lists, in the caller's workspace.
 */
struct indexer_bwd_main_params {
    /* q as [tokens, HEADS, DIM]; only with TENSOR_MAPS. Boxes: 64 columns, BLOCK_HEADS /
     * GROUP_QUERIES heads of one query. */
    struct tensor_map q_map;
    const void *q;       /* [tokens, HEADS, DIM] bf16 */
    const void *k;       /* [rows, DIM] bf16 */
    const void *weights; /* [tokens, HEADS] */
    const int *members;  /* [groups, GROUP_QUERIES] token, or -1: none */
    const int *counts;   /* [groups] keys in the group's list */
    const int *runs;     /* [groups, 2] with GROUP_TILES 2, else null: where the keys of the
                             second half of the members begin, and where those of the first half
                             end. The list's sections are: keys of the first half only, of both,
                             of the second only */
    const int *keys;     /* [groups, key_stride]; -1 past a list's end, up to a multiple of 64 */
    const float *grads;  /* [groups, GROUP_QUERIES, key_stride] of each member's logits; 0 where
                             it lacks the key or keys is -1 */
    void *dq;            /* [tokens, HEADS, DIM] bf16; written for every member */
    void *dweights;      /* [tokens, HEADS]; likewise */
    float *dk;           /* [rows, DIM] sums; column order of common/key_columns.cuh */
    const float *grains; /* [rows] to which addends are rounded (common/grain.cuh); null without
                             DETERMINISTIC */
    long long q_token_stride, q_head_stride;
    long long weights_token_stride;
    long long dq_token_stride, dq_head_stride;
    long long dweights_token_stride;
    unsigned k_row_bytes; /* stride of rows of k */
    int tokens;
    int rows;
    int first_group;  /* of the launch */
    int groups;       /* of the launch, an item each. CTAs take the last ones first: with causal
                        lists these are the longest, and short ones end the launch */
    int key_stride;   /* a multiple of 64 */
    int weights_bf16; /* 1: weights and dweights are bf16; 0: fp32 */
};
