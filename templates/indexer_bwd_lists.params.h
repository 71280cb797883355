/*
 * Arguments of the indexer_bwd_lists kernel: each group's list of keys, and their gradients.
 * Included by the host code and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. Groups: indexer_bwd_main.params.h; slots: include/smelt/indexer_bwd.h.
 */
struct indexer_bwd_lists_params {
    const int *indices;     /* [tokens, width / GRANULARITY] entries */
    const int *topk_length; /* [tokens] entries that are scanned; null: all */
    const int *limit;       /* [tokens] rows from it on are masked; null: none are */
    const float *grad;      /* [tokens, width]; not read for masked slots */
    int *members;           /* [groups, group_queries] query group * group_queries + member; -1
                               past the last */
    int *counts;            /* [groups] keys in the list */
    int *runs;    /* [groups, 2] or null: where the keys of the second half of the members begin,
                     and where those of the first half end. The list's sections are then: keys of
                     the first half only, of both, of the second only; else there is one. Keys
                     ascend strictly within a section */
    int *keys;    /* [groups, key_stride]; -1 past a list's end, up to a multiple of LIST_STEP */
    float *grads; /* [groups, group_queries, key_stride] for each key the sum of the member's
                     slots that name it, in their order; 0 where there is none or keys is -1 */
    float *zeros; /* [zero_vectors, 4] filled with zeros for later kernels' sums */
    long long zero_vectors;
    long long indices_token_stride, topk_length_token_stride, limit_token_stride;
    long long grad_token_stride;
    int tokens, rows;
    int width; /* slots of a query, GRANULARITY for each entry */
    int groups;
    int group_queries; /* 1, 2, 4 or 8; even with runs */
    int key_stride;    /* a multiple of LIST_STEP, at least group_queries * width */
};
