/*
 * Arguments of the sparse_attn_bwd_sum kernel. Included by the host code and, by the generator, by
 * the CUDA source: plain C types only. See attention_lists.params.h for starts and entries.
 */
struct sparse_attn_bwd_sum_params {
    const void *partials; /* bf16 [groups, key_stride, key_rows, DQK]: an entry has the rows from
                             entry * key_rows on, of less than 2^32 */
    const int *starts;    /* [key_count + 1] */
    const int *entries;
    float *sums; /* [key_count, DQK], added to: entry by entry, an entry's rows in order */
    int key_count;
    int key_stride;
    int key_rows; /* partial rows that a group has of each of its keys: one for each block of its
                     heads, or for each pair of them */
    int pdl_wait_at_end; /* 1: launched with PDL, concurrently with the main kernel that writes the
                            next partial rows; all that is read or added to was complete before that
                            kernel started. Waits for it at the end */
};
