//@use common/tensor_map.h
/*
 * Arguments of the indexer_logits_fwd kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/indexer_logits.h for what the tensors hold.
 */
struct indexer_logits_fwd_params {
    /* For the copy engine, of variants with TENSOR_MAPS alone: q as [tokens, HEADS, DIM], boxes of
     * MAP_QUERIES queries, MAP_HEADS heads and DIM columns (64 at most with bf16), or with
     * MAP_PAIRS above 0 as [HEADS / 2, tokens, 2, DIM], boxes of so many pairs; k as [rows,
     * DIM], boxes of MAP_KEYS keys and as many columns. The swizzle is as wide as a box: 64 or 128
     * bytes. What lies outside the tensors comes as zeros. */
    struct tensor_map q_map, k_map;
    const void *q;           /* [tokens, HEADS, DIM] bf16 or e4m3 */
    const void *k;           /* [rows, DIM] likewise */
    const float *weights;    /* [tokens, HEADS] */
    const float *k_scale;    /* [rows]; NULL with bf16 */
    const int *window_begin; /* [tokens] any number; what lies outside [0, rows) does not count */
    const int *window_end;   /* [tokens] */
    float *logits;           /* [tokens, rows] */
    long long q_token_stride, q_head_stride;
    long long k_row_stride;
    long long weights_token_stride;
    long long logits_token_stride;
    int tokens, rows; /* both above 0 */
    int least; /* keys that a window must have to be looked at: a shorter one counts as empty */
    int fills; /* 1: -inf is written outside of windows; 0: what stands there does not matter */
    int pdl; /* 1: launched with PDL: waits for the previous kernel before it writes; fills is 0 */
    int launch_dependents; /* 1: the next kernel, launched with PDL, may start; it waits itself */
};
