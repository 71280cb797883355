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
    int *keys;             /* [groups, key_stride] */
    unsigned char *masks;  /* [groups, key_stride]; not written when group_queries is 1 */
    float *zeros;          /* [zero_vectors, 4] is filled with zeros, too: what the main kernel adds
                              to */
    long long zero_vectors;
    int groups;        /* entry i of the query list is member i % group_queries of group
                          i / group_queries */
    int group_queries; /* 1, 2, 4 or 8 */
    int key_stride;    /* a multiple of 64, at least group_queries * min(width, topk) */
    int topk;          /* valid slots of a query, at most */
    int ascending;     /* 1: lists are put into ascending order. Lists of several queries are
                          always */
};

/*
 * Of the passes `count`, `scan` and `place`, which turn the lists of `groups` groups, from
 * first_group on, around, chunk by chunk: for each key the partial rows that are its own, by their
 * numbers (group of the chunk) * key_stride + place in the group's list, in the groups' order. A
 * column is a key of a chunk, number chunk * key_count + key. groups * key_stride and parts *
 * columns stay below 2^31. Equal keys of one list: in its order where `united` says that their rows
 * may differ, else in any.
 */
struct sparse_attn_bwd_segments_params {
    const int *counts; /* as above, from the first group of all on */
    const int *keys;
    int *cursors; /* [parts, columns] of a part's groups: how many partial rows a key has, zeros
                     ahead of `count`; then where they go */
    int *starts;  /* [columns + 1] where a column's begin in `entries` */
    int *entries; /* [groups * key_stride] */
    int *sums;    /* [scan_blocks] scratch of the scan: partial rows of each block's columns */
    int first_group, groups;
    int chunk;  /* groups of a chunk; the last may have fewer */
    int chunks; /* columns / key_count */
    int part;   /* groups of a part */
    int parts;  /* of a chunk */
    int key_stride;
    int key_count; /* batches * rows */
    int columns;
    int united;    /* 1: the lists are of several queries each */
    int scan_step; /* of the pass `scan`, which is launched twice: 0 sums up, 1 places */
    int scan_rows; /* threads of the scan that share a column's parts: a power of two, at most
                      THREADS / 32 */
    int scan_keys; /* of a block of the scan: a multiple of its THREADS / scan_rows */
    int scan_blocks;
};
