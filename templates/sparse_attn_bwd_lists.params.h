//@use common/work.params.h
/*
 * Arguments of the sparse_attn_bwd_lists kernels. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. See
 * sparse_attn_bwd.params.h for what groups and keys are.
 */

/* Of the pass `group`: each group's list of keys. */
struct sparse_attn_bwd_lists_params {
    struct work_params work;
    const int *last_range; /* with buckets: the work range of the last of them, with which the list
                              ends; work.query_range is then null. Or null */
    int *members;          /* [groups, group_queries] */
    int *counts;           /* [groups] */
    int *firsts;           /* [groups] keys of the list's first part, which ascend strictly; those
                              behind it ascend. Or null: lists of one query may be in any order */
    int *keys;             /* [groups, key_stride] */
    unsigned char *masks;  /* [groups, key_stride]; not written when group_queries is 1 */
    float *zeros;          /* [zero_vectors, 4] is filled with zeros, too: what the main kernel adds
                              to */
    long long zero_vectors;
    int groups;        /* entry i of the query list is member i % group_queries of group
                          i / group_queries */
    int group_queries; /* 1, 2, 4 or 8 */
    int key_stride;    /* from list to list, a multiple of 4: at least group_queries *
                          min(width, topk), up to a multiple of 64 */
    int copies;        /* of a list that there are to be: the first one and, copy_stride apart, */
    int copy_stride;   /* others behind it; without masks */
    int topk;          /* valid slots of a query, at most */
    int ascending;     /* 1: lists are put into ascending order. Lists of several queries are
                          always, and all are where there is `firsts` */
};

/*
 * Of the pass `turn`, which turns the lists of `groups` groups, from first_group on, around, chunk
 * by chunk: for each key the partial rows that are its own, by their numbers (group of the chunk) *
 * key_stride + place in the group's list, in the groups' order and in each list's. groups *
 * key_stride stays below 2^31.
 */
struct sparse_attn_bwd_segments_params {
    const int *counts; /* as above, from the first group of all on */
    const int *firsts;
    const int *keys;
    int *starts;  /* [chunks, key_count + 1] where a key's begin in `entries`, and where the last
                     one's end */
    int *entries; /* [groups * key_stride]; a chunk's begin at its first group's */
    int first_group, groups;
    int chunk;  /* groups of a chunk; the last may have fewer */
    int chunks; /* that there are */
    int key_stride;
    int key_count; /* batches * rows */
};
