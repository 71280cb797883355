/*
 * smelt: writes -inf outside the windows of a matrix of logits, for matrices from another source
 * than indexer_logits (which writes -inf itself).
 *
 * logits [T,S] fp32; query t has the window window_begin[t] <= s < window_end[t], clipped to
 * 0 <= s < S; an empty or inverted one is legal, and its whole row is filled. Elements inside a
 * window are neither read nor written.
 *
 * Spec: indexer_clean; it has no keys.
 */
#ifndef SMELT_INDEXER_CLEAN_H
#define SMELT_INDEXER_CLEAN_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* Arguments. Every pointer is device memory; smelt/tensor.h explains strides. */
typedef struct smelt_indexer_clean_args {
    size_t size;                     /* sizeof, set by SMELT_INDEXER_CLEAN_ARGS_INIT */
    int64_t tokens;                  /* T, 0..2^31 - 1; 0 launches nothing */
    int64_t rows;                    /* S, 0..2^31 - 1; 0 launches nothing */
    int free_multiprocessors;        /* left to other streams while it runs; 0: none */
    int reserved;                    /* 0 */
    smelt_const_tensor window_begin; /* [T] int32: the window's first key */
    smelt_const_tensor window_end;   /* [T] int32: its last key plus one */
    smelt_tensor logits;             /* [T,S] fp32 */
} smelt_indexer_clean_args;

#define SMELT_INDEXER_CLEAN_ARGS_INIT SMELT_INIT(smelt_indexer_clean_args)

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph. Graphs, the CUDA context
 * and errors: as smelt_sparse_attn_forward.
 */
SMELT_CALL smelt_status smelt_indexer_clean_forward(const smelt_operator *op,
                                                    const smelt_indexer_clean_args *args,
                                                    struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
