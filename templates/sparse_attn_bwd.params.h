//@use common/tensor_map.h
/*
 * Arguments of the sparse_attn_bwd kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/sparse_attn.h for what the tensors hold.
 *
 * A group is GROUP_QUERIES queries that share a list of keys; a key is a KV row of some batch, by
 * the number batch * rows + row. What belongs to groups was made by the kernels ahead of this one
 * (sparse_attn_bwd_lists, sparse_attn_bwd_rows), in the caller's workspace.
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
    const int *keys;            /* [groups, key_stride] the lists; -1 behind a list's end, up to
                                   the next multiple of 64. A list may lie in what will be an item's rows of
                                   dq: it is read, by the thread blocks that have the item, before
                                   these are written, and by nobody else */
    const unsigned char *masks; /* [groups, key_stride] bit i: the key is of member i's list, 0
                                   where keys has -1; not read when GROUP_QUERIES is 1 */
    const float *statistics;    /* [groups, GROUP_QUERIES, QUERY_ROWS, 2] of a row (a head, heads
                                   past the last included): what its scores in powers of two are
                                   lessened by, +inf or finite, +inf where there is no such row;
                                   and delta */
    void *dq;                   /* [batches, tokens, HEADS, DQK] bf16; every member's is written */
    float *dkv;                 /* [batches * rows, DQK] sums, columns in the order of
                                   sparse_attn_bwd.columns.cuh; not with DETERMINISTIC */
    void *partials;             /* with DETERMINISTIC: bf16 [groups, key_stride, rows, DQK], the
                                   same order of columns, a row for each of the group's items, or
                                   for each pair of them; written up to each list's end, from the
                                   launch's first group on */
    void *slices;       /* bf16 [.., 64, DQK]: parts of dq's rows of items that several thread
                           blocks take (sparse_attn_bwd.slices.cuh) */
    unsigned *progress; /* how far the thread blocks have come together, by which they keep
                           in step: 0 before the launch; not read with STEP_NONE */
    long long q_batch_stride, q_token_stride, q_head_stride;
    long long kv_batch_stride;
    long long grad_out_batch_stride, grad_out_token_stride, grad_out_head_stride;
    long long dq_batch_stride, dq_token_stride, dq_head_stride;
    unsigned kv_row_bytes; /* from one KV row to the next */
    int even_batches;      /* 1: key k's row is kv + k * kv_row_bytes, batches or not */
    int tokens, rows;      /* of a batch */
    int first_group;       /* the launch takes this one */
    int groups;      /* and so many: HEAD_BLOCKS items each, item i of group i / HEAD_BLOCKS. Thread
                        blocks take items from the last on: with causal lists, and behind a
                        partition, the longest lists are the last, and short ones end the launch */
    int sliced;      /* the first so many items of the launch are cut into slices: fewer than thread
                        blocks, 0 with DETERMINISTIC; of pairs whole pairs */
    int takers;      /* thread blocks, of pairs pairs, that slices are for: the first ones */
    int key_stride;  /* from list to list: of lists that do not lie in dq a multiple of 64 */
    int side_stride; /* with sm90: from the list of a group's item to its next item's, the same
                        once more; 0: all of them have one */
    int step;        /* how thread blocks keep in step, of the enum above: STEP_CLOSE where lists do
                        not tell otherwise. With sm90, unless STEP_NONE, every second item of a
                        thread block is gone through from its list's end */
    float scale;     /* softmax scale, natural units */
};
