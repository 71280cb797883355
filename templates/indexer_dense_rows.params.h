/*
 * Arguments of the indexer_dense_rows kernel. Included by the host code and, by the generator, by
 * the CUDA source: plain C types only. Strides count elements. Groups and lists are
 * indexer_bwd_main.params.h's.
 */
struct indexer_dense_rows_params {
    const float *scores;     /* [groups * group_queries, key_stride] attention's probabilities of a
                                chunk's queries, not normalised; read inside the windows */
    float *logits;           /* likewise, the indexer's logits; with lists overwritten by the
                                gradients of the list's keys: [groups, group_queries, key_stride] */
    const int *window_begin; /* [tokens], clipped to [0, rows) */
    const int *window_end;   /* [tokens] */
    const float *weight;     /* [tokens], or null: 1 */
    const float *grad_loss;  /* one number, or null: 1 */
    float *losses;           /* [tokens] */
    int *members;            /* [groups, group_queries]; null: the losses alone */
    int *counts;             /* [groups] */
    int *runs;               /* [groups, 2], or null */
    int *keys;               /* [groups, key_stride] */
    int first;               /* query of the chunk */
    int tokens, rows;        /* of the call */
    int groups, group_queries;
    int key_stride; /* a multiple of 64, at least rows */
    float query_weight;
};
