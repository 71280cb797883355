//@use common/work.params.h
/*
 * Groups of neighbouring entries of the query list, whose lists are united, for the kernels of sparse_gqa
 * with entries of 1 to 16 rows. Included by the host code and, by the generator, by the CUDA source: plain
 * C types only. The arrays are those of attention_lists, whose keys are a list's entries here: entry
 * e of batch b is number b * blocks + e. List n of a query is united in row n * groups + group.
 */
struct gqa_groups_params {
    struct work_params work; /* of the queries; the kernel's own is of the groups */
    const int *members;      /* [groups, ITEM_QUERIES] query numbers, or -1 */
    const int *counts;       /* [lists, groups] */
    const int *keys;         /* [lists, groups, key_stride] */
    const unsigned char
        *masks; /* [lists, groups, key_stride] a bit for each member that names it */
    int groups, key_stride;
    int blocks; /* entries of a batch */
    int unused;
};
