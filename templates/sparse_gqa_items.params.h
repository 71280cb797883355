//@use common/tensor_map.h
/*
 * What the block-stationary kernels of sparse_gqa (variant sm90) know of their items: segments of the
 * reverse index (sparse_gqa_lists.params.h) and the tensors that they copy. Included by the host code
 * (behind common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only.
 *
 * A unit is 8 heads of a pair; a KV head has UNITS of each pair. Unit number (pair * LIST_HEADS + KV
 * head of those that share the list) * UNITS + eighth of the heads.
 */
struct gqa_items_params {
    const int *starts, *items, *order, *pairs; /* of the reverse index */
    int lists, blocks;                         /* likewise */
    int tokens, rows;                          /* of a batch */
};

/* k or v, [batches, rows, KV_HEADS, columns], in boxes of 64 columns and BLOCK_KEYS rows. */
struct gqa_block_source {
    struct tensor_map map;
    const void *data; /* for blocks of which no query of an item reads all rows */
    long long batch_stride, row_stride, head_stride; /* elements */
    long long unused[4];                             /* no padding */
};
