/*
 * Arguments of the indexer_dense_rows kernels. Included by the host code and, by the generator, by
 * the CUDA source: plain C types only. Strides count elements. Groups and lists are
 * indexer_bwd_main.params.h's.
 */
struct indexer_dense_rows_params {
    float *scores; /* [groups * group_queries, scores_stride] attention's probabilities of a
                                chunk's queries for single keys, not normalised; read inside the
                                windows. With GRANULARITY or BLOCK_MAX above 1 overwritten */
    float *logits; /* [groups * group_queries, key_stride] the indexer's logits, of its keys;
                                with lists overwritten by the gradients of the list's keys: [groups,
                                group_queries, key_stride] */
    const int *window_begin; /* [tokens], clipped to [0, rows) */
    const int *window_end;   /* [tokens] */
    const float *weight;     /* [tokens], or null: 1 */
    const float *grad_loss;  /* one number, or null: 1 */
    float *losses;           /* [tokens], losses_stride apart */
    int *members;            /* [groups, group_queries]; null: the losses alone */
    int *counts;             /* [groups] */
    int *runs;               /* [groups, 2], or null */
    int *keys;               /* [groups, key_stride] */
    long long losses_stride;
    int first;        /* query of the chunk */
    int tokens, rows; /* of the call; rows of the indexer's keys */
    int groups, group_queries;
    int scores_stride; /* a multiple of 64, at least rows * GRANULARITY */
    int key_stride;    /* a multiple of 64, at least rows, and group_queries times the blocks */
    float query_weight;
};
