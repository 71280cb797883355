//@use common/tensor_map.h
/*
 * Arguments of the sparse_attn_bwd kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/sparse_attn.h for what the tensors hold.
 *
 * A group is GROUP_QUERIES queries that share a list of keys; a key is a KV row, numbered
 * batch * rows + row. The previous kernels (attention_lists, attention_bwd_rows) write the
 * groups' data to the caller's workspace.
 */
enum { STEP_NONE, STEP_LOOSE, STEP_CLOSE };

struct sparse_attn_bwd_params {
    /* q and grad_out as [batches, tokens, HEADS, columns], for the copy engine: variants with
     * TENSOR_MAPS alone. Boxes: 64 columns, BLOCK_HEADS / GROUP_QUERIES heads, of one query. */
    struct tensor_map q_map, grad_out_map;
    const void *q;              /* [batches, tokens, HEADS, DQK] bf16 */
    const void *kv;             /* [batches, rows, DQK] bf16 */
    const void *grad_out;       /* [batches, tokens, HEADS, DV] bf16 */
    const int *members;         /* [groups, GROUP_QUERIES] batch * tokens + token, or -1: none */
    const int *counts;          /* [groups] keys in the group's list */
    const int *keys;            /* [groups, key_stride] the lists; -1 past a list's end, up to
                                   the next multiple of 64. A list may lie in an item's rows of dq:
                                   only the CTAs that process the item read it, before they write
                                   those rows */
    const unsigned char *masks; /* [groups, key_stride] bit i: the key is of member i's list, 0
                                   where keys has -1; not read when GROUP_QUERIES is 1 */
    const float *statistics;    /* [groups, GROUP_QUERIES, QUERY_ROWS, 2] per row (a head, padded
                                   heads included): the base that is subtracted from its scores in
                                   powers of two, finite or +inf (+inf for padded rows), and
                                   delta */
    void *dq;                   /* [batches, tokens, HEADS, DQK] bf16; every member's is written */
    float *dkv;                 /* [batches * rows, DQK] sums, columns in the order of
                                   common/key_columns.cuh; not with DETERMINISTIC */
    void *partials;             /* with DETERMINISTIC: bf16 [groups, key_stride, rows, DQK], the
                                   same order of columns, a row for each of the group's items, or
                                   for each pair of them; written up to each list's end; row 0 is
                                   the launch's first group's */
    void *slices;               /* bf16 [.., 64, DQK]: parts of dq's rows of items that several
                           CTAs share (sparse_attn_bwd.slices.cuh) */
    unsigned *progress;         /* counter by which CTAs keep in step
                           (sparse_attn_bwd.sm90_in_step.cuh): 0 before the launch; not read with
                           STEP_NONE */
    long long q_batch_stride, q_token_stride, q_head_stride;
    long long kv_batch_stride;
    long long grad_out_batch_stride, grad_out_token_stride, grad_out_head_stride;
    long long dq_batch_stride, dq_token_stride, dq_head_stride;
    unsigned kv_row_bytes; /* from one KV row to the next */
    int even_batches;      /* 1: key k's row is kv + k * kv_row_bytes, batches or not */
    int tokens, rows;      /* of a batch */
    int first_group;       /* the launch's first group */
    int groups;            /* the launch's groups, HEAD_BLOCKS items each: item i is of group
                        i / HEAD_BLOCKS. CTAs take items from the last one down: with causal lists,
                        and after a partition, the longest lists come last, so that short ones
                        end the launch */
    int sliced;      /* the launch's first items, which are split into slices: fewer than CTAs, 0
                        with DETERMINISTIC; whole pairs with pairs */
    int slice_ctas;  /* the first CTAs (or pairs of CTAs), which share the slices */
    int key_stride;  /* from list to list; a multiple of 64 unless lists lie in dq */
    int side_stride; /* with sm90: from one item's copy of a group's list to its next item's; 0: all
                        items read the same list */
    int step;        /* how CTAs keep in step, of the enum above; the kernel turns STEP_CLOSE into
                        STEP_LOOSE if neighbouring lists share most keys. With sm90, unless
                        STEP_NONE, every other item of a CTA is processed from its list's end */
    float scale;     /* softmax scale, natural units */
};
