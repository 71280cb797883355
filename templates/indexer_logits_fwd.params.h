//@use common/tensor_map.h
/*
 * Arguments of the indexer_logits_fwd kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/indexer_logits.h for the tensors.
 */
struct indexer_logits_fwd_params {
    /* Only with TENSOR_MAPS: q as [tokens, HEADS, DIM] in boxes of MAP_QUERIES queries, MAP_HEADS
     * heads and DIM columns (at most 64 with bf16), or with MAP_PAIRS > 0 as [HEADS / 2, tokens, 2,
     * DIM] in boxes of MAP_PAIRS pairs; k as [rows, DIM] in boxes of MAP_KEYS keys and as many
     * columns. The swizzle is as wide as a box: 64 or 128 bytes. Elements outside the tensors are
     * zeros. */
    struct tensor_map q_map, k_map;
    const void *q;           /* [tokens, HEADS, DIM] bf16 or e4m3 */
    const void *k;           /* [rows, DIM] likewise */
    const void *weights;     /* [tokens, HEADS]; NULL without WEIGHTS */
    const float *k_scale;    /* [rows]; NULL with bf16 */
    const int *window_begin; /* [tokens], clipped to [0, rows) */
    const int *window_end;   /* [tokens] */
    void *
        logits; /* fp32, or bf16 with LOGITS_BF16: [tokens, HEAD_GROUPS, rows / BLOCK_MAX, rounded up] */
    long long q_token_stride, q_head_stride;
    long long k_row_stride;
    long long weights_token_stride;
    long long logits_token_stride;
    int tokens, rows; /* both above 0 */
    int least;        /* windows of fewer keys count as empty */
    int fills;        /* 1: -inf is written outside windows; 0: elements there are undefined */
    int pdl; /* 1: launched with PDL: waits for the previous kernel before it writes; fills is 0 */
    int launch_dependents; /* 1: the next kernel, launched with PDL, may start; it waits itself */
    float scale;           /* every head's weight without WEIGHTS */
    long long logits_group_stride;
    int weights_bf16; /* 1: weights are bf16; 0: fp32 */
};
