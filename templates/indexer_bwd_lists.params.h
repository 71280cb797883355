/*
 * Arguments of the indexer_bwd_lists kernel: each group's list of keys, and their gradients.
 * Included by the host code and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See indexer_bwd_main.params.h for groups, include/smelt/indexer_bwd.h for slots.
 */
struct indexer_bwd_lists_params {
    const int *indices;     /* [tokens, width] */
    const int *topk_length; /* [tokens] slots that are looked at; or null: all */
    const float *grad;      /* [tokens, width]; of masked slots it is not read */
    int *members;           /* [groups, group_queries] query group * group_queries + member; -1 past
                               the last */
    int *counts;            /* [groups] keys in the list */
    int *runs; /* [groups, 2] or null: where the keys of the second half of the members begin, and
                  where those of the first half end. The list is then: keys of the first half alone,
                  of both halves, of the second half alone; else it is of one part. Keys of a part
                  are strictly ascending */
    int *keys; /* [groups, key_stride]; -1 behind a list's end, up to the next multiple of
                  LIST_STEP */
    float *grads; /* [groups, group_queries, key_stride] for each key the sum of the member's slots
                     that name it, in their order; 0 where there is none, and where keys has -1 */
    float *zeros; /* [zero_vectors, 4] is filled with zeros, too: the sums that the kernels behind
                     it add to */
    long long zero_vectors;
    long long indices_token_stride, topk_length_token_stride, grad_token_stride;
    int tokens, rows, width;
    int groups;
    int group_queries; /* 1, 2, 4 or 8; an even number with runs */
    int key_stride;    /* a multiple of LIST_STEP, at least group_queries * width */
};
