/*
 * smelt: rows of bf16 as e4m3 and a scale each, for the indexer's fp8 logits: the keys, whose scale
 * is k_scale, and the queries' heads, whose scale goes into the weights: given as `factor`, these
 * come back multiplied by it.
 *
 * x [N,D] bf16      y [N,D] e4m3      scale [N] fp32      factor [N] fp32
 *
 * For each row, every step rounded to fp32:
 *   scale = max(max_d |x[d]| / 448, 2^-126)          448 is e4m3's largest
 *           with scale=power_of_two the next power of two from there upwards
 *   y[d]  = e4m3(x[d] * (1 / scale))                 to the nearest, ties to even, at most 448
 * so that x[d] is about y[d] * scale (what is written is factor * scale, where that is given),
 * within 2^-4 of it or, below scale / 64, 2^-10 of the scale. A row of zeros gives zeros. A NaN in
 * x becomes e4m3's NaN and does not count for the scale; with an infinity the scale is +inf,
 * infinities become NaN and the rest 0: the logits of such a key are -inf (smelt/indexer_logits.h).
 */
#ifndef SMELT_INDEXER_QUANTIZE_H
#define SMELT_INDEXER_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

#include "smelt/context.h"
#include "smelt/kernels.h"
#include "smelt/status.h"
#include "smelt/struct.h"
#include "smelt/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* One configured operator: its kernel compiled and loaded. Thread-safe but for destruction. */
typedef struct smelt_indexer_quantize smelt_indexer_quantize;

enum smelt_quantize_scale { SMELT_SCALE_PLAIN = 0, SMELT_SCALE_POWER_OF_TWO = 1 };

typedef struct smelt_indexer_quantize_spec {
    size_t size;       /* sizeof, set by SMELT_INDEXER_QUANTIZE_SPEC_INIT */
    int dim;           /* D: 64 or 128 */
    int scale;         /* of enum smelt_quantize_scale */
    const char *knobs; /* there are none: NULL */
} smelt_indexer_quantize_spec;

#define SMELT_INDEXER_QUANTIZE_SPEC_INIT SMELT_INIT(smelt_indexer_quantize_spec)

/* Arguments. Every pointer is device memory; smelt/tensor.h says what strides mean. x and y start
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

/* Canonical text of a spec, freed by smelt_free; and back, into a spec made by
 * SMELT_INDEXER_QUANTIZE_SPEC_INIT (knobs: NULL, or receives the spec's, freed by smelt_free).
 * Pure; any thread. Errors: INVALID_ARGUMENT, INVALID_SPEC, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_indexer_quantize_spec_print(const smelt_indexer_quantize_spec *spec,
                                                         char **text);
SMELT_API smelt_status smelt_indexer_quantize_spec_parse(const char *text,
                                                         smelt_indexer_quantize_spec *spec,
                                                         char **knobs);

/* Whether create would find a plan; see smelt_sparse_attn_supported. Every GPU from compute
 * capability 8.0 on has one, also those whose tensor cores do not multiply e4m3. */
SMELT_API smelt_status smelt_indexer_quantize_supported(const smelt_context *context,
                                                        const smelt_indexer_quantize_spec *spec,
                                                        const char **why);

/* Compiles, or takes from the cache, and loads the kernel. The context must outlive the operator.
 * Errors: as smelt_sparse_attn_create. *quantize is NULL on failure. */
SMELT_API smelt_status smelt_indexer_quantize_create(smelt_indexer_quantize **quantize,
                                                     smelt_context *context,
                                                     const smelt_indexer_quantize_spec *spec);

/* Sets *quantize to NULL, which it may be. Launches of the operator should be complete. */
SMELT_API void smelt_indexer_quantize_destroy(smelt_indexer_quantize **quantize);

/* The figures of the kernel into *info, whose `size` the caller has set. `index`: 0 alone. Errors:
 * INVALID_ARGUMENT, also for another index. */
SMELT_API smelt_status smelt_indexer_quantize_get_kernel_info(
    const smelt_indexer_quantize *quantize, int index, smelt_kernel_info *info);

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph. Graphs, the CUDA context
 * and errors: as smelt_sparse_attn_forward.
 */
SMELT_API smelt_status smelt_indexer_quantize_forward(const smelt_indexer_quantize *quantize,
                                                      const smelt_indexer_quantize_args *args,
                                                      struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
