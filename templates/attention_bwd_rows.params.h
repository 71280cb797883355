//@use common/work.params.h
/*
 * Arguments of the attention_bwd_rows kernel. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See sparse_attn_bwd.params.h for what groups and statistics are.
 */
struct attention_bwd_rows_params {
    struct work_params work; /* pdl_wait_at_end: the previous kernel makes the lists, which this one
                                does not read */
    const int *last_range;   /* as attention_lists.params.h has it */
    const void *out;         /* [batches, tokens, HEADS, DV] bf16 */
    const void *grad_out;    /* [batches, tokens, HEADS, DV] bf16 */
    const float *lse;        /* [batches, tokens, HEADS] natural, without the sink */
    const float *sink;       /* [HEADS], or null */
    float *statistics;       /* [entries, query_rows, 2] */
    float *dsink_parts;      /* [ceil(entries / ENTRIES), HEADS], or null: no dsink is wanted */
    long long out_batch_stride, out_token_stride, out_head_stride;
    long long grad_out_batch_stride, grad_out_token_stride, grad_out_head_stride;
    long long lse_batch_stride, lse_token_stride, lse_head_stride;
    int entries;    /* groups times their queries */
    int query_rows; /* heads, and what the main kernel pads them to */
};
