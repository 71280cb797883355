/*
 * smelt: the lightning indexer's choice of keys: of each query's window the topk keys with the
 * largest logits, without the matrix of them in memory.
 *
 * Shapes are in C order, last index fastest:
 *   T query tokens, S keys, H indexer heads, D their width.
 *   q [T,H,D]    k [S,D]    weights [T,H] fp32    indices [T,topk] int32    values [T,topk] fp32
 *   lengths [T] int32
 *
 * The result is that of smelt/indexer_logits.h followed by smelt/topk_select.h, bit for bit: of
 * query t exactly min(topk, keys of its window) keys, those with the largest logits; equal ones by
 * the lowest index. -inf and NaN inside the window are the lowest logits, and legal. Slots beyond
 * are -1 (values: -inf). It depends neither on T, S, the workspace nor the GPU's number of
 * multiprocessors.
 *
 * Logits are computed for as many queries at a time as the workspace has room for, and selected
 * from; the host waits for nothing.
 *
 * Spec: indexer_topk:heads=64,dim=128,dtype=fp8,topk=2048; keys:
 *   heads  H: 1..128
 *   dim    D: 64 or 128
 *   dtype  of q and k: bf16, or fp8 (e4m3) from compute capability 8.9 on
 *   topk   1..4096
 *   order  of a row: index (the default), ascending, or score, descending
 * Beside them knobs override the plan, "fwd.variant=mma"; `smelt list` prints them.
 */
#ifndef SMELT_INDEXER_TOPK_H
#define SMELT_INDEXER_TOPK_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* Bytes that a call's workspace has at most unless its arguments say otherwise. */
#define SMELT_INDEXER_TOPK_WORKSPACE ((size_t)128000000)

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h says what strides mean. q and k start
 * at multiples of 16 bytes, and so do their rows. What is written must not overlap anything else.
 */
typedef struct smelt_indexer_topk_args {
    size_t size;                     /* sizeof, set by SMELT_INDEXER_TOPK_ARGS_INIT */
    int64_t tokens;                  /* T, 0..2^31 - 1; 0 launches nothing */
    int64_t rows;                    /* S, 0..2^20 */
    int index_offset;                /* added to the indices of chosen keys, modulo 2^32 */
    int free_multiprocessors;        /* left to other streams by the logits' kernels, not by the
                                        selection's; 0: none */
    smelt_const_tensor q;            /* [T,H,D] bf16 or e4m3 */
    smelt_const_tensor k;            /* [S,D] likewise */
    smelt_const_tensor weights;      /* [T,H] fp32 */
    smelt_const_tensor k_scale;      /* [S] fp32, exactly when the spec has fp8 */
    smelt_const_tensor window_begin; /* [T] int32: the window's first key */
    smelt_const_tensor window_end;   /* [T] int32: the one behind its last */
    smelt_const_tensor offset;       /* [T] int32, optional: added to a query's indices, too */
    smelt_tensor indices;            /* [T,topk] int32 */
    smelt_tensor values;             /* [T,topk] fp32, optional */
    smelt_tensor lengths;            /* [T] int32, optional: how many were selected */
    /* Memory that the call may write until its work on the stream is done, at a multiple of 256
     * bytes. Its contents before and after mean nothing. */
    void *workspace;
    size_t workspace_bytes; /* at least what smelt_indexer_topk_forward_workspace says */
    size_t workspace_limit; /* bytes that it asks for at most; 0: SMELT_INDEXER_TOPK_WORKSPACE */
    int64_t causal_limit;   /* above 0 a promise: window_end[t] <= t + causal_limit for each query t
                               (0 to T - 1); 1 where query t stands at key t and sees nothing behind
                               itself. The logits of early queries take less room then, so that
                               chunks are fewer. Keys from t + causal_limit on may or may not be
                               chosen where it is broken. 0: windows are any; to 2^31 - 1 */
} smelt_indexer_topk_args;

#define SMELT_INDEXER_TOPK_ARGS_INIT SMELT_INIT(smelt_indexer_topk_args)

/* Stores in *bytes the workspace that a call with these arguments needs, at most workspace_limit.
 * With a causal_limit and more than one chunk of queries the result is workspace_limit itself.
 * Tensors need not be set. Pure; any thread; its time
 * does not depend on the number of chunks. Errors: INVALID_ARGUMENT, also for a limit that is too
 * small for one query's logits. */
SMELT_CALL smelt_status smelt_indexer_topk_forward_workspace(const smelt_operator *op,
                                                             const smelt_indexer_topk_args *args,
                                                             size_t *bytes);

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting: two or three kernels
 * for each chunk of queries, whose number follows from tokens, rows and the two limits. Allocates
 * nothing, takes no lock, does not synchronise; may be captured in a CUDA graph (the arguments are
 * copied at the call; the memory they point to is read at each replay). Makes the operator's CUDA
 * context current for the call if this thread has none or another, and restores what was there.
 *
 * Errors: INVALID_ARGUMENT naming the argument, before anything is launched; DRIVER for what the
 * driver refuses (an unknown stream, for one): earlier kernels of the chain may be on their way
 * then, and what the call writes means nothing.
 */
SMELT_CALL smelt_status smelt_indexer_topk_forward(const smelt_operator *op,
                                                   const smelt_indexer_topk_args *args,
                                                   struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
