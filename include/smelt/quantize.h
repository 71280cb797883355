/*
 * smelt: converts rows of bf16 to e4m3 with a scale for each row or for each group of its columns, and
 * back. It serves the indexer's fp8 logits (the keys, whose scale is k_scale, and the queries' heads,
 * whose scale is folded into the weights: pass the weights as `factor`, and `scale` receives their
 * product with the scale) and training with a quantized KV cache (`dequantized`: the rows as a
 * reader of the cache sees them).
 *
 * x [N,D] bf16      y [N,D] e4m3      dequantized [N,D] bf16      scale [N,G] fp32      factor [N] fp32
 *
 * A row's columns form G groups of D/G. For each group, every step rounded to fp32:
 *   scale = max(max_d |x[d]| / 448, 2^-126)          448: e4m3's largest number
 *           with scale=power_of_two rounded up to a power of two
 *   y[d]  = e4m3(x[d] * (1 / scale))                 to the nearest, ties to even, at most 448
 *   dequantized[d] = bf16(y[d] * scale)              to the nearest, ties to even
 * so that x[d] is about y[d] * scale (with a factor, factor * scale is written), with a relative error
 * of 2^-4 or, below scale / 64, an error of 2^-10 of the scale. A group of zeros gives zeros. A NaN in
 * x becomes e4m3's NaN and does not count for the scale; with an infinity the scale is +inf,
 * infinities become NaN and the rest 0: the logits of such a key are -inf (smelt/indexer_logits.h),
 * and `dequantized` is NaN in the whole group.
 *
 * Spec: quantize:dim=128; keys:
 *   dim     D: a multiple of 16, up to 1024
 *   scale   plain (the default) or power_of_two: rounded up to a power of two
 *   groups  G: 1 (the default) to 64; D / G is a multiple of 16. dim=512,groups=8: a scale for every
 *           64 columns
 */
#ifndef SMELT_QUANTIZE_H
#define SMELT_QUANTIZE_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* Arguments. Every pointer is device memory; smelt/tensor.h explains strides. x, y and dequantized
 * start at multiples of 16 bytes, and so do their rows. Packed q [T,H,D] is T * H rows. To quantize
 * a range of columns alone, give its address and the stride of the whole rows. */
typedef struct smelt_quantize_args {
    size_t size;               /* sizeof, set by SMELT_QUANTIZE_ARGS_INIT */
    int64_t rows;              /* N, 0..2^31 - 1; 0 launches nothing */
    int free_multiprocessors;  /* left to other streams while it runs; 0: none */
    int reserved;              /* 0 */
    smelt_const_tensor x;      /* [N,D] bf16 */
    smelt_tensor y;            /* [N,D] e4m3, optional */
    smelt_tensor dequantized;  /* [N,D] bf16, optional */
    smelt_tensor scale;        /* [N,G] fp32, optional */
    smelt_const_tensor factor; /* [N] fp32, optional: `scale` is multiplied by it when it is
                                  written; y and dequantized do not depend on it */
} smelt_quantize_args;

#define SMELT_QUANTIZE_ARGS_INIT SMELT_INIT(smelt_quantize_args)

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph. Graphs, the CUDA context
 * and errors: as smelt_sparse_attn_forward.
 */
SMELT_CALL smelt_status smelt_quantize_forward(const smelt_operator *op,
                                               const smelt_quantize_args *args,
                                               struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
