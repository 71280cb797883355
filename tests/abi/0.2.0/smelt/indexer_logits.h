/*
 * smelt: the lightning indexer's logits: how well each key suits each query, before the best are
 * chosen for sparse attention.
 *
 * Shapes are in C order, last index fastest:
 *   T query tokens, S keys, H indexer heads, D their width.
 *   q [T,H,D]      k [S,D]      weights [T,H] fp32      logits [T,S] fp32
 *
 * Query t has the window of keys window_begin[t] <= s < window_end[t], clipped to 0 <= s < S; an
 * empty or inverted one is legal. Inside it
 *   logits[t,s] = k_scale[s] * sum_h weights[t,h] * max(0, <q[t,h,:], k[s,:]>)
 * (k_scale with fp8 alone), outside it -inf. Every element of every row is written, by one kernel.
 * The mathematics: DeepSeek-V3.2-Exp (the lightning indexer). Scales of q are folded into weights.
 *
 * Products accumulate in fp32, and so do the heads, in a fixed order. A logit's bits depend on its
 * query, its key and the operator's variant alone: not on T, S, the window, neighbours or the run.
 * A logit of -0 is written as +0; NaN (of a NaN or an infinity in the inputs) is written as -inf,
 * the lowest logit; +inf stays.
 */
#ifndef SMELT_INDEXER_LOGITS_H
#define SMELT_INDEXER_LOGITS_H

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

/* One configured operator: its kernels compiled and loaded. Thread-safe but for destruction. */
typedef struct smelt_indexer_logits smelt_indexer_logits;

/* Element types of q and k. e4m3 is OCP's FP8 with four exponent bits and no infinity. */
enum smelt_indexer_dtype { SMELT_INDEXER_BF16 = 0, SMELT_INDEXER_FP8 = 1 };

typedef struct smelt_indexer_logits_spec {
    size_t size;       /* sizeof, set by SMELT_INDEXER_LOGITS_SPEC_INIT */
    int heads;         /* H: 1..128 */
    int dim;           /* D: 64 or 128 */
    int dtype;         /* of enum smelt_indexer_dtype; fp8 from compute capability 8.9 on */
    int reserved;      /* 0 */
    const char *knobs; /* plan overrides, "variant=mma,stages=2", or NULL */
} smelt_indexer_logits_spec;

#define SMELT_INDEXER_LOGITS_SPEC_INIT SMELT_INIT(smelt_indexer_logits_spec)

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h says what strides mean. q and k start
 * at multiples of 16 bytes, and so do their rows. logits must not overlap what is read; its rows
 * may lie further apart than S elements, and what stands between them stays untouched.
 */
typedef struct smelt_indexer_logits_args {
    size_t size;                     /* sizeof, set by SMELT_INDEXER_LOGITS_ARGS_INIT */
    int64_t tokens;                  /* T, 0..2^31 - 1; 0 launches nothing */
    int64_t rows;                    /* S, 0..2^31 - 1; 0 launches nothing */
    int free_multiprocessors;        /* left to other streams while it runs; 0: none */
    int reserved;                    /* 0 */
    smelt_const_tensor q;            /* [T,H,D] bf16 or e4m3 */
    smelt_const_tensor k;            /* [S,D] likewise */
    smelt_const_tensor weights;      /* [T,H] fp32 */
    smelt_const_tensor k_scale;      /* [S] fp32, exactly when the spec has fp8; one below 2^-125
                                        in size may lose its last bit, worth 2^-149 */
    smelt_const_tensor window_begin; /* [T] int32: the window's first key */
    smelt_const_tensor window_end;   /* [T] int32: the one behind its last */
    smelt_tensor logits;             /* [T,S] fp32 */
} smelt_indexer_logits_args;

#define SMELT_INDEXER_LOGITS_ARGS_INIT SMELT_INIT(smelt_indexer_logits_args)

/* The spec's canonical text, freed by smelt_free; and the spec of a text (knobs are not kept when
 * `knobs` is NULL; else *knobs receives them as a string freed by smelt_free, and spec->knobs
 * points to it). Pure; any thread. Errors: INVALID_ARGUMENT, INVALID_SPEC, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_indexer_logits_spec_print(const smelt_indexer_logits_spec *spec,
                                                       char **text);
SMELT_API smelt_status smelt_indexer_logits_spec_parse(const char *text,
                                                       smelt_indexer_logits_spec *spec,
                                                       char **knobs);

/*
 * Whether create would find a plan for the spec's kernel on the context's architecture. Compiles
 * nothing, needs no GPU. *why (may be NULL) receives "" or the reason, a string of this thread
 * valid until its next failing call. Returns OK, INVALID_ARGUMENT, INVALID_SPEC or UNSUPPORTED.
 */
SMELT_API smelt_status smelt_indexer_logits_supported(const smelt_context *context,
                                                      const smelt_indexer_logits_spec *spec,
                                                      const char **why);

/*
 * Compiles, or takes from the cache, and loads the kernel of the spec. The context must outlive the
 * operator. Errors: INVALID_ARGUMENT, INVALID_SPEC, UNSUPPORTED, NO_DEVICE (a compile-only
 * context), NO_COMPILER, COMPILE, DRIVER, OUT_OF_MEMORY. *indexer is NULL on failure.
 */
SMELT_API smelt_status smelt_indexer_logits_create(smelt_indexer_logits **indexer,
                                                   smelt_context *context,
                                                   const smelt_indexer_logits_spec *spec);

/* Sets *indexer to NULL, which it may be. Launches of the operator should be complete. */
SMELT_API void smelt_indexer_logits_destroy(smelt_indexer_logits **indexer);

/* The figures of the kernel into *info, whose `size` the caller has set. `index`: 0 alone. Errors:
 * INVALID_ARGUMENT, also for another index. */
SMELT_API smelt_status smelt_indexer_logits_get_kernel_info(const smelt_indexer_logits *indexer,
                                                            int index, smelt_kernel_info *info);

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph (the arguments are copied at
 * the call; the memory they point to is read at each replay). Makes the operator's CUDA context
 * current for the call if this thread has none or another, and restores what was there.
 *
 * Errors, before anything is launched: INVALID_ARGUMENT naming the argument; DRIVER for what the
 * driver refuses (an unknown stream, for one).
 */
SMELT_API smelt_status smelt_indexer_logits_forward(const smelt_indexer_logits *indexer,
                                                    const smelt_indexer_logits_args *args,
                                                    struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
