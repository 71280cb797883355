/*
 * smelt: the lightning indexer's backward pass: from the gradients of the logits at each query's
 * selected keys those of the indexer's queries, weights and keys, without a T x S matrix.
 *
 * Shapes are in C order, last index fastest:
 *   T query tokens, S keys, H indexer heads, D their width, width slots a query's row has.
 *   q [T,H,D] bf16    k [S,D] bf16    weights [T,H] fp32    indices, grad [T,width]
 *
 * Slot i of query t is valid when i < topk_length[t] (if given) and 0 <= indices[t,i] < S. All
 * others are masked: they give and take nothing, and their grad is not read. A key that is named
 * twice counts twice. With s = indices[t,i], x = dot(q[t,h,:], k[s,:]) and g = grad[t,i], over
 * valid slots:
 *   dq[t,h,:]     = sum over i of g * weights[t,h] * [x > 0] * k[s,:]
 *   dweights[t,h] = sum over i of g * max(0, x)
 *   dk[s,:]       = sum over t, h and i of g * weights[t,h] * [x > 0] * q[t,h,:]
 * which are the gradients of smelt/indexer_logits.h's logits. The derivative at 0 is 0. Queries
 * without a valid slot have gradients of 0, and so have keys that nobody selects: exactly 0.
 * g * weights * [x > 0] is rounded to bf16 before it is multiplied; sums are fp32.
 *
 * The same call gives the same dq and dweights, bit for bit, in every run; dk with deterministic =
 * 1 alone: what is added to a row is rounded then, to 24 bits of what all of it comes to at most,
 * so that fp32 additions are exact and their order does not matter; of many queries that is done in
 * parts, whose sums are added up in order. Neighbouring queries may share a tile, so a query's dq
 * may depend, within rounding, on what stands beside it.
 *
 * Weights may have any sign. What is not finite goes on as arithmetic has it, x = NaN counting as
 * no x > 0, and no further than queries that share a tile (as many as GROUP_QUERIES of `smelt show`
 * says): what a query brings reaches its own results and the rows of dk that these queries select,
 * a key the results of those that share a tile with one that selects it.
 *
 * Spec: indexer_bwd:heads=64,dim=128,topk=2048; keys:
 *   heads          H: 1..128
 *   dim            D: 64 or 128
 *   topk           the most slots of a query, 1..1048576
 *   deterministic  1: dk has the same bits in every run, too (default 0)
 * Beside them knobs override the plan, "main.variant=mma"; `smelt list` prints them.
 */
#ifndef SMELT_INDEXER_BWD_H
#define SMELT_INDEXER_BWD_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h says what strides mean. q, k, dq and
 * the three forms of dk start at multiples of 16 bytes, and so do their rows. What is written must
 * not overlap anything else.
 */
typedef struct smelt_indexer_bwd_args {
    size_t size;                    /* sizeof, set by SMELT_INDEXER_BWD_ARGS_INIT */
    int64_t tokens;                 /* T, 0..2^31 - 1 */
    int64_t rows;                   /* S, 0..2^31 - 1 */
    int64_t width;                  /* 1..topk */
    smelt_const_tensor q;           /* [T,H,D] bf16 */
    smelt_const_tensor k;           /* [S,D] bf16, row stride below 2^31 */
    smelt_const_tensor weights;     /* [T,H] fp32 */
    smelt_const_tensor indices;     /* [T,width] int32 */
    smelt_const_tensor topk_length; /* [T,1] int32, optional */
    smelt_const_tensor grad;        /* [T,width] fp32 */
    smelt_tensor dq;                /* [T,H,D] bf16 */
    smelt_tensor dweights;          /* [T,H] fp32 */
    smelt_tensor dk;                /* [S,D] bf16; of these three exactly one is given, unless S
                                        is 0 */
    smelt_tensor dk_fp32;           /* [S,D] fp32 */
    smelt_tensor dk_sum;            /* [S,D] fp32, added to: what it held, plus the gradient */
    /* Memory that the call may write until its work on the stream is done, at a multiple of 256
     * bytes. Its contents before and after mean nothing. */
    void *workspace;
    size_t workspace_bytes;   /* at least what smelt_indexer_bwd_backward_workspace says */
    int free_multiprocessors; /* that the long kernel leaves to other streams; 0: none */
    int reserved;             /* 0 */
} smelt_indexer_bwd_args;

#define SMELT_INDEXER_BWD_ARGS_INIT SMELT_INIT(smelt_indexer_bwd_args)

/* Bytes of workspace that a call with these arguments needs into *bytes. All integers must be
 * legal; tensors need not be set. About 4 * (1 + n) * T * width bytes,
 * n queries sharing a tile (the constant GROUP_QUERIES of `smelt show`), and 4 * S * D, or with
 * deterministic = 1 and more than EXACT_GROUPS tiles twice that.
 * Pure; any thread. Errors: INVALID_ARGUMENT. */
SMELT_CALL smelt_status smelt_indexer_bwd_backward_workspace(const smelt_operator *op,
                                                             const smelt_indexer_bwd_args *args,
                                                             size_t *bytes);

/*
 * Launches the chain of kernels on `stream` (NULL: the default stream) and returns without waiting.
 * Allocates nothing, takes no lock, does not synchronise; may be captured in a CUDA graph (the
 * arguments are copied at the call; the memory they point to is read at each replay). Makes the
 * operator's CUDA context current for the call if this thread has none or another, and restores
 * what was there. With T = 0 dk is zeros, or dk_sum what it was.
 *
 * Errors: INVALID_ARGUMENT naming the argument, before anything is launched; DRIVER for what the
 * driver refuses (an unknown stream, for one): earlier kernels of the chain may be on their way
 * then, and what the call writes means nothing.
 */
SMELT_CALL smelt_status smelt_indexer_bwd_backward(const smelt_operator *op,
                                                   const smelt_indexer_bwd_args *args,
                                                   struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
