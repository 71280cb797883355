/*
 * Arguments of the sparse_attn_bwd_sum kernel. Included by the host code and, by the generator, by
 * the CUDA source: plain C types only. See sparse_attn_bwd_lists.params.h for starts and entries.
 */
struct sparse_attn_bwd_sum_params {
    const void *partials; /* bf16 [groups, key_stride, head_blocks, DQK]: row entry * head_blocks +
                             block, of less than 2^32 */
    const int *starts;    /* [key_count + 1] */
    const int *entries;
    float *sums; /* [key_count, DQK], added to: entry by entry, blocks of heads in order */
    int key_count;
    int key_stride;
    int head_blocks; /* of pairs of thread blocks so many pairs */
    int overlaps; /* 1: launched early, beside the main kernel of the next partial rows; all that is
                     read or added to was complete before that began */
};
