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
    int groups;            /* entry i of the query list is member i % group_queries of group
                              i / group_queries */
    int group_queries;     /* 1, 2, 4 or 8 */
    int key_stride;        /* a multiple of 64, at least group_queries * min(width, topk) */
    int topk;              /* valid slots of a query, at most */
    int ascending;         /* 1: lists are put into ascending order. Lists of several queries are
                              always */
    /* A number of each slot that comes along with its key; or null. Each key has one entry in a
     * list then, and for each member the sum of its slots' numbers in their order. (In lists in
     * slot order every slot has an entry.) Masks are not written. */
    const float *slot_values; /* [batches * tokens, width]; those of masked slots are not read */
    float *list_values;       /* [groups, group_queries, key_stride] 0 where the member has not the
                                 key, and behind a list's end as far as keys has -1 */
    int *runs; /* [groups, 2] or null, with values and one batch alone. With it a list has three
                  parts, ascending each: keys of the first half of the members alone, of both
                  halves, of the second half alone. Where the second part begins, and the third */
    long long slot_values_token_stride;
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
