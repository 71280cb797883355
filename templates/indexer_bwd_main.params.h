//@use common/tensor_map.h
/*
 * Arguments of the indexer_bwd_main kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/indexer_bwd.h for what the tensors hold.
 *
 * A group is GROUP_QUERIES queries that share a list of keys; a key is a row of k. What belongs to
 * groups was made by the kernel ahead of this one (indexer_bwd_lists), in the caller's
 * workspace.
 */
struct indexer_bwd_main_params {
    /* q as [tokens, HEADS, DIM], for the copy engine: variants with TENSOR_MAPS alone. Boxes: 64
     * columns, BLOCK_HEADS / GROUP_QUERIES heads, of one query. */
    struct tensor_map q_map;
    const void *q;        /* [tokens, HEADS, DIM] bf16 */
    const void *k;        /* [rows, DIM] bf16 */
    const float *weights; /* [tokens, HEADS] */
    const int *members;   /* [groups, GROUP_QUERIES] token, or -1: none */
    const int *counts;    /* [groups] keys in the group's list */
    const int *runs;     /* [groups, 2] with GROUP_TILES 2: where the keys of the second half of the
                            members begin, and where those of the first half end; else null. The
                            list is: keys of the first half alone, of both, of the second alone */
    const int *keys;     /* [groups, key_stride] the lists; -1 behind a list's end, up to the next
                            multiple of 64 */
    const float *grads;  /* [groups, GROUP_QUERIES, key_stride] of each member's logits; 0 where
                            it has not the key, and where keys has -1 */
    void *dq;            /* [tokens, HEADS, DIM] bf16; every member's is written */
    float *dweights;     /* [tokens, HEADS]; likewise */
    float *dk;           /* [rows, DIM] sums, columns in the order of sparse_attn_bwd.columns.cuh */
    const float *grains; /* [rows] by which what is added to a row of dk is rounded
                            (common/grain.cuh); null without DETERMINISTIC */
    long long q_token_stride, q_head_stride;
    long long weights_token_stride;
    long long dq_token_stride, dq_head_stride;
    long long dweights_token_stride;
    unsigned k_row_bytes; /* from one row of k to the next */
    int tokens;
    int rows;
    int first_group; /* the launch takes this one */
    int groups;      /* and so many: an item each. Thread blocks take items from the last on: with
                        causal lists the longest lists are the last, and short ones end the launch */
    int key_stride;  /* a multiple of 64 */
};
