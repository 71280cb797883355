/*
 * smelt: converts rows of bf16 to e4m3 with one scale per row, for the indexer's fp8 logits: the keys,
 * whose scale is k_scale, and the queries' heads, whose scale is folded into the weights: pass the
 * weights as `factor`, and `scale` receives their product with the scale.
 *
 * x [N,D] bf16      y [N,D] e4m3      scale [N] fp32      factor [N] fp32
 *
 * For each row, every step rounded to fp32:
 *   scale = max(max_d |x[d]| / 448, 2^-126)          448: e4m3's largest number
 *           with scale=power_of_two rounded up to a power of two
 *   y[d]  = e4m3(x[d] * (1 / scale))                 to the nearest, ties to even, at most 448
 * so that x[d] is about y[d] * scale (with a factor, factor * scale is written), with a relative error
 * of 2^-4 or, below scale / 64, an error of 2^-10 of the scale. A row of zeros gives zeros. A NaN in
 * x becomes e4m3's NaN and does not count for the scale; with an infinity the scale is +inf,
 * infinities become NaN and the rest 0: the logits of such a key are -inf (smelt/indexer_logits.h).
 *
 * Spec: indexer_quantize:dim=128; keys:
 *   dim    D: 64 or 128
 *   scale  plain (the default) or power_of_two: rounded up to a power of two
 */
#ifndef SMELT_INDEXER_QUANTIZE_H
#define SMELT_INDEXER_QUANTIZE_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* Arguments. Every pointer is device memory; smelt/tensor.h explains strides. x and y start
 * at multiples of 16 bytes, and so do their rows. Packed q [T,H,D] is T * H rows. */
typedef struct smelt_indexer_quantize_args {
    size_t size;              /* sizeof, set by SMELT_INDEXER_QUANTIZE_ARGS_INIT */
    int64_t rows;             /* N, 0..2^31 - 1; 0 launches nothing */
    int free_multiprocessors; /* left to other streams while it runs; 0: none */
    int reserved;             /* 0 */
    smelt_const_tensor x;     /* [N,D] bf16 */
    smelt_tensor y;           /* [N,D] e4m3 */
    smelt_tensor scale;       /* [N] fp32 */
    smelt_const_tensor
        factor; /* [N] fp32, optional: the scale is multiplied by it when it is written */
} smelt_indexer_quantize_args;

#define SMELT_INDEXER_QUANTIZE_ARGS_INIT SMELT_INIT(smelt_indexer_quantize_args)

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph. Graphs, the CUDA context
 * and errors: as smelt_sparse_attn_forward.
 */
SMELT_CALL smelt_status smelt_indexer_quantize_forward(const smelt_operator *op,
                                                       const smelt_indexer_quantize_args *args,
                                                       struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
