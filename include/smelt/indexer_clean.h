/*
 * smelt: fills what lies outside the windows of a matrix of logits with -inf, for matrices that
 * something else than indexer_logits wrote, which does so itself.
 *
 * logits [T,S] fp32; query t has the window window_begin[t] <= s < window_end[t], clipped to
 * 0 <= s < S; an empty or inverted one is legal, and its whole row is filled. What lies inside a
 * window is neither read nor written.
 */
#ifndef SMELT_INDEXER_CLEAN_H
#define SMELT_INDEXER_CLEAN_H

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
typedef struct smelt_indexer_clean smelt_indexer_clean;

typedef struct smelt_indexer_clean_spec {
    size_t size;       /* sizeof, set by SMELT_INDEXER_CLEAN_SPEC_INIT */
    const char *knobs; /* there are none: NULL */
} smelt_indexer_clean_spec;

#define SMELT_INDEXER_CLEAN_SPEC_INIT SMELT_INIT(smelt_indexer_clean_spec)

/* Arguments. Every pointer is device memory; smelt/tensor.h says what strides mean. */
typedef struct smelt_indexer_clean_args {
    size_t size;                     /* sizeof, set by SMELT_INDEXER_CLEAN_ARGS_INIT */
    int64_t tokens;                  /* T, 0..2^31 - 1; 0 launches nothing */
    int64_t rows;                    /* S, 0..2^31 - 1; 0 launches nothing */
    int free_multiprocessors;        /* left to other streams while it runs; 0: none */
    int reserved;                    /* 0 */
    smelt_const_tensor window_begin; /* [T] int32: the window's first key */
    smelt_const_tensor window_end;   /* [T] int32: the one behind its last */
    smelt_tensor logits;             /* [T,S] fp32 */
} smelt_indexer_clean_args;

#define SMELT_INDEXER_CLEAN_ARGS_INIT SMELT_INIT(smelt_indexer_clean_args)

/* Canonical text of a spec, freed by smelt_free; and back, into a spec made by
 * SMELT_INDEXER_CLEAN_SPEC_INIT (knobs: NULL, or receives the spec's, freed by smelt_free). Pure;
 * any thread. Errors: INVALID_ARGUMENT, INVALID_SPEC, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_indexer_clean_spec_print(const smelt_indexer_clean_spec *spec,
                                                      char **text);
SMELT_API smelt_status smelt_indexer_clean_spec_parse(const char *text,
                                                      smelt_indexer_clean_spec *spec, char **knobs);

/* Whether create would find a plan; see smelt_sparse_attn_supported. */
SMELT_API smelt_status smelt_indexer_clean_supported(const smelt_context *context,
                                                     const smelt_indexer_clean_spec *spec,
                                                     const char **why);

/* Compiles, or takes from the cache, and loads the kernel. The context must outlive the operator.
 * Errors: as smelt_sparse_attn_create. *clean is NULL on failure. */
SMELT_API smelt_status smelt_indexer_clean_create(smelt_indexer_clean **clean,
                                                  smelt_context *context,
                                                  const smelt_indexer_clean_spec *spec);

/* Sets *clean to NULL, which it may be. Launches of the operator should be complete. */
SMELT_API void smelt_indexer_clean_destroy(smelt_indexer_clean **clean);

/* The figures of the kernel into *info, whose `size` the caller has set. `index`: 0 alone. Errors:
 * INVALID_ARGUMENT, also for another index. */
SMELT_API smelt_status smelt_indexer_clean_get_kernel_info(const smelt_indexer_clean *clean,
                                                           int index, smelt_kernel_info *info);

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph. Graphs, the CUDA context
 * and errors: as smelt_sparse_attn_forward.
 */
SMELT_API smelt_status smelt_indexer_clean_forward(const smelt_indexer_clean *clean,
                                                   const smelt_indexer_clean_args *args,
                                                   struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
