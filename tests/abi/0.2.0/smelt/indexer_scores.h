/*
 * smelt: the lightning indexer's logits at the slots that were selected: what the indexer's loss
 * and its gradient are made of, without the matrix of all queries and keys.
 *
 * Shapes are in C order, last index fastest:
 *   T query tokens, S keys, H indexer heads, D their width, `width` slots a query has.
 *   q [T,H,D] bf16   k [S,D] bf16   weights [T,H] fp32   indices [T,width] int32
 *   topk_length [T,1] int32   logits [T,width] fp32
 *
 * Slot i of query t is valid when i < topk_length[t] (where that is given) and
 * 0 <= indices[t,i] < S. Any other, wherever it stands and whatever it holds, is masked: no key is
 * read for it. With s = indices[t,i], at a valid slot
 *   logits[t,i] = sum_h weights[t,h] * max(0, <q[t,h,:], k[s,:]>)
 * and at a masked one -inf. Slots keep their places; every one of the width is written. A row named
 * twice has its logit twice.
 *
 * It is the value that smelt/indexer_logits.h has for that key: products accumulate in fp32, and so
 * do the heads, in a fixed order; -0 is written as +0, NaN as -inf, +inf stays. The two operators
 * differ by rounding. A logit's bits depend on its query, its key and the operator's variant alone:
 * not on T, S, the slot, neighbours or the run.
 */
#ifndef SMELT_INDEXER_SCORES_H
#define SMELT_INDEXER_SCORES_H

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
typedef struct smelt_indexer_scores smelt_indexer_scores;

typedef struct smelt_indexer_scores_spec {
    size_t size;       /* sizeof, set by SMELT_INDEXER_SCORES_SPEC_INIT */
    int heads;         /* H: 1..128 */
    int dim;           /* D: 64 or 128 */
    int topk;          /* the most slots a query has: 1..2^20 */
    int reserved;      /* 0 */
    const char *knobs; /* plan overrides, "variant=mma,warps=8", or NULL */
} smelt_indexer_scores_spec;

#define SMELT_INDEXER_SCORES_SPEC_INIT SMELT_INIT(smelt_indexer_scores_spec)

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h says what strides mean. q and k start
 * at multiples of 16 bytes, and so do their rows. logits must not overlap what is read; its rows
 * may lie further apart than width elements, and what stands between them stays untouched.
 */
typedef struct smelt_indexer_scores_args {
    size_t size;                    /* sizeof, set by SMELT_INDEXER_SCORES_ARGS_INIT */
    int64_t tokens;                 /* T, 0..2^31 - 1; 0 launches nothing */
    int64_t rows;                   /* S, 0..2^31 - 1; 0: every slot is masked */
    int64_t width;                  /* slots of a query, 1..topk */
    int free_multiprocessors;       /* left to other streams while it runs; 0: none */
    int reserved;                   /* 0 */
    smelt_const_tensor q;           /* [T,H,D] bf16 */
    smelt_const_tensor k;           /* [S,D] bf16, row stride below 2^31 */
    smelt_const_tensor weights;     /* [T,H] fp32 */
    smelt_const_tensor indices;     /* [T,width] int32 */
    smelt_const_tensor topk_length; /* [T,1] int32: slots to look at; NULL: all. Below 0 is 0 */
    smelt_tensor logits;            /* [T,width] fp32 */
} smelt_indexer_scores_args;

#define SMELT_INDEXER_SCORES_ARGS_INIT SMELT_INIT(smelt_indexer_scores_args)

/* The spec's canonical text, freed by smelt_free; and the spec of a text (knobs are not kept when
 * `knobs` is NULL; else *knobs receives them as a string freed by smelt_free, and spec->knobs
 * points to it). Pure; any thread. Errors: INVALID_ARGUMENT, INVALID_SPEC, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_indexer_scores_spec_print(const smelt_indexer_scores_spec *spec,
                                                       char **text);
SMELT_API smelt_status smelt_indexer_scores_spec_parse(const char *text,
                                                       smelt_indexer_scores_spec *spec,
                                                       char **knobs);

/*
 * Whether create would find a plan for the spec's kernel on the context's architecture. Compiles
 * nothing, needs no GPU. *why (may be NULL) receives "" or the reason, a string of this thread
 * valid until its next failing call. Returns OK, INVALID_ARGUMENT, INVALID_SPEC or UNSUPPORTED.
 */
SMELT_API smelt_status smelt_indexer_scores_supported(const smelt_context *context,
                                                      const smelt_indexer_scores_spec *spec,
                                                      const char **why);

/*
 * Compiles, or takes from the cache, and loads the kernel of the spec. The context must outlive the
 * operator. Errors: INVALID_ARGUMENT, INVALID_SPEC, UNSUPPORTED, NO_DEVICE (a compile-only
 * context), NO_COMPILER, COMPILE, DRIVER, OUT_OF_MEMORY. *scores is NULL on failure.
 */
SMELT_API smelt_status smelt_indexer_scores_create(smelt_indexer_scores **scores,
                                                   smelt_context *context,
                                                   const smelt_indexer_scores_spec *spec);

/* Sets *scores to NULL, which it may be. Launches of the operator should be complete. */
SMELT_API void smelt_indexer_scores_destroy(smelt_indexer_scores **scores);

/* The figures of the kernel into *info, whose `size` the caller has set. `index`: 0 alone. Errors:
 * INVALID_ARGUMENT, also for another index. */
SMELT_API smelt_status smelt_indexer_scores_get_kernel_info(const smelt_indexer_scores *scores,
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
SMELT_API smelt_status smelt_indexer_scores_forward(const smelt_indexer_scores *scores,
                                                    const smelt_indexer_scores_args *args,
                                                    struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
