/*
 * smelt: the lightning indexer's backward pass: computes the gradients of the indexer's queries,
 * weights and keys from those of its logits at the selected slots, without a T x S matrix.
 *
 * Shapes are in C order, last index fastest:
 *   T query tokens, S keys, H indexer heads, D their width, width: slots of an index row.
 *   q [T,H,D] bf16    k [S,D] bf16    weights [T,H] fp32 or bf16    indices, grad [T,width]
 *
 * Slot i of query t is valid when i < topk_length[t] (if given), 0 <= indices[t,i] < S and
 * indices[t,i] < limit[t] (if given). All others are masked: they do not contribute, and their grad
 * is not read. A key that is selected twice counts twice. With s = indices[t,i],
 * x = dot(q[t,h,:], k[s,:]) and g = grad[t,i], over valid slots:
 *   dq[t,h,:]     = sum over i of g * weights[t,h] * [x > 0] * k[s,:]
 *   dweights[t,h] = sum over i of g * max(0, x)
 *   dk[s,:]       = sum over t, h and i of g * weights[t,h] * [x > 0] * q[t,h,:]
 * which are the gradients of smelt/indexer_logits.h's logits. The derivative at x = 0 is 0. Queries
 * without a valid slot and keys that no query selects have gradients of exactly 0.
 * g * weights * [x > 0] is rounded to bf16 before it is multiplied; sums are fp32. With activation=none 1
 * stands for [x > 0], and x for max(0, x).
 *
 * With granularity r an entry e of the lists names the keys e * r .. e * r + r - 1, as in
 * smelt/indexer_scores.h: grad is [T, width * r], and grad[t, i * r + j] that of key indices[t,i] * r + j;
 * width and topk_length count entries.
 *
 * dq and dweights have the same bits in every run; dk only with deterministic=1. Each addend of a
 * row of dk is then rounded to 2^-24 of a bound of the row's sum, so that fp32 additions are exact
 * in any order; many queries are processed in parts, whose sums are added in order. Neighbouring
 * queries may share a tile, so that a query's dq may depend, within rounding, on the queries next
 * to it.
 *
 * Weights may have any sign. NaN and infinities propagate by the rules of arithmetic, with [x > 0] = 0
 * for NaN, and only among queries that share a tile (GROUP_QUERIES of `smelt show`): a query's q,
 * weights and grad affect its own results and the rows of dk that these queries select; a key affects
 * the results of the queries that share a tile with a query that selects it.
 *
 * Spec: indexer_bwd:heads=64,dim=128,topk=2048; keys:
 *   heads          H: 1..128
 *   dim            D: 32, 64 or 128
 *   topk           the maximum number of entries of a query, 1..1048576
 *   activation     relu (the default), or none
 *   granularity    r, keys of an entry: 1 (default), 2, 4, 8, 16, 32, 64 or 128
 *   weights_dtype  elements of weights and dweights: fp32 (the default) or bf16
 *   deterministic  1: dk has the same bits in every run, too (default 0)
 * In addition, knobs override the plan, "main.variant=mma"; `smelt list` prints them.
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
 * Arguments. Every pointer is device memory; smelt/tensor.h explains strides. q, k, dq and
 * the three forms of dk start at multiples of 16 bytes, and so do their rows. Outputs and workspace
 * must not overlap anything else.
 */
typedef struct smelt_indexer_bwd_args {
    size_t size;                    /* sizeof, set by SMELT_INDEXER_BWD_ARGS_INIT */
    int64_t tokens;                 /* T, 0..2^31 - 1 */
    int64_t rows;                   /* S, 0..2^31 - 1 */
    int64_t width;                  /* 1..topk */
    smelt_const_tensor q;           /* [T,H,D] bf16 */
    smelt_const_tensor k;           /* [S,D] bf16, row stride below 2^31 */
    smelt_const_tensor weights;     /* [T,H] fp32 or bf16, by the key weights_dtype */
    smelt_const_tensor indices;     /* [T,width] int32 */
    smelt_const_tensor topk_length; /* [T,1] int32, optional */
    smelt_const_tensor grad;        /* [T,width] fp32; [T, width * granularity] above 1 */
    smelt_tensor dq;                /* [T,H,D] bf16 */
    smelt_tensor dweights;          /* [T,H] fp32 or bf16, of the weights' type */
    smelt_tensor dk;                /* [S,D] bf16; of these three exactly one is given, unless S
                                        is 0 */
    smelt_tensor dk_fp32;           /* [S,D] fp32 */
    smelt_tensor dk_sum;            /* [S,D] fp32, added to */
    /* Memory that the call may write until its work on the stream is done, at a multiple of 256
     * bytes. No call reads its previous contents. */
    void *workspace;
    size_t workspace_bytes;   /* at least the result of smelt_indexer_bwd_backward_workspace */
    int free_multiprocessors; /* that the main kernel leaves to other streams; 0: none */
    int reserved;             /* 0 */
    smelt_const_tensor limit; /* [T,1] int32, optional: keys from it on are masked */
} smelt_indexer_bwd_args;

#define SMELT_INDEXER_BWD_ARGS_INIT SMELT_INIT(smelt_indexer_bwd_args)

/* Bytes of workspace that a call with these arguments needs into *bytes. All integers must be
 * legal; tensors need not be set. About 4 * (1 + GROUP_QUERIES) * T * width + 4 * S * D bytes
 * (GROUP_QUERIES: a constant of `smelt show`); with deterministic=1 and more than EXACT_GROUPS
 * groups the second term doubles.
 * Pure; any thread. Errors: INVALID_ARGUMENT. */
SMELT_CALL smelt_status smelt_indexer_bwd_backward_workspace(const smelt_operator *op,
                                                             const smelt_indexer_bwd_args *args,
                                                             size_t *bytes);

/*
 * Launches several kernels on `stream` (NULL: the default stream) and returns without waiting.
 * Allocates nothing, takes no lock, does not synchronise; may be captured in a CUDA graph (the
 * arguments are copied at the call; the memory they point to is read at each replay). Makes the
 * operator's CUDA context current for the call if this thread has none or another, and restores
 * the previous one. With T = 0 dk becomes zeros, or dk_sum keeps its values.
 *
 * Errors: INVALID_ARGUMENT naming the argument, before anything is launched; DRIVER for a refusal by
 * the driver (an unknown stream, for example): earlier kernels of the call may have been launched
 * then, and the outputs are undefined.
 */
SMELT_CALL smelt_status smelt_indexer_bwd_backward(const smelt_operator *op,
                                                   const smelt_indexer_bwd_args *args,
                                                   struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
