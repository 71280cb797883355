//@use common/work.params.h
/*
 * Arguments of the attention_lists kernels. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. See
 * sparse_attn_bwd.params.h for what groups and keys are.
 */

/* Of the pass `group`: each group's list of keys. */
struct attention_lists_params {
    struct work_params work;
    const int *last_range; /* with buckets: the last bucket's range, at whose end the list ends;
                              work.query_range is then null. Otherwise null */
    int *members;          /* [groups, group_queries] */
    int *counts;           /* [groups] */
    int *firsts;           /* [groups] keys of the list's first part, which ascend strictly; the
                              rest ascends, too. Null: lists of one query may be in any order */
    int *keys;             /* [groups, key_stride] */
    unsigned char *masks;  /* [groups, key_stride]; not written when group_queries is 1 */
    float *zeros;          /* [zero_vectors, 4] sums of the backward pass, zero-filled here */
    long long zero_vectors;
    int groups;        /* entry i of the query list is member i % group_queries of group
                          i / group_queries */
    int group_queries; /* 1, 2, 4 or 8 */
    int key_stride;    /* from list to list, a multiple of 4: at least group_queries *
                          min(width, topk), up to a multiple of 64 */
    int copies;        /* of each list: the first one and further ones copy_stride apart; */
    int copy_stride;   /* without masks */
    int topk;          /* the most valid slots of a query */
    int ascending;     /* 1: lists are sorted in ascending order. Lists of several queries always
                          are, and all lists are if `firsts` is given */
};

/*
 * Of the pass `transpose`, which transposes the lists of `groups` groups, from first_group on, chunk by
 * chunk: for each key the numbers of its partial rows, (group in the chunk) * key_stride + index in
 * the group's list, ordered by group, then by index. groups * key_stride stays below 2^31.
 */
struct attention_lists_transpose_params {
    const int *counts; /* as above, of all groups */
    const int *firsts;
    const int *keys;
    int *starts;  /* [chunks, key_count + 1] each key's first index in `entries`, and the last key's
                     end */
    int *entries; /* [groups * key_stride]; a chunk's begin at first group * key_stride */
    int first_group, groups;
    int chunk;  /* groups of a chunk; the last may have fewer */
    int chunks; /* number of chunks */
    int key_stride;
    int key_count; /* batches * rows */
};
