/*
 * smelt: the lightning indexer's logits of all keys for each query, from which the topk largest
 * are selected for sparse attention.
 *
 * Shapes are in C order, last index fastest:
 *   T query tokens, S keys, H indexer heads, D their width.
 *   q [T,H,D]      k [S,D]      weights [T,H] fp32 or bf16    logits [T,S] fp32, without further keys
 *
 * Query t has the window of keys window_begin[t] <= s < window_end[t], clipped to 0 <= s < S; an
 * empty or inverted one is legal. Inside it
 *   logits[t,s] = k_scale[s] * sum_h weights[t,h] * max(0, <q[t,h,:], k[s,:]>)
 * (k_scale only with fp8), outside it -inf. One kernel writes every element of every row.
 * The mathematics: DeepSeek-V3.2-Exp (the lightning indexer). Scales of q are folded into weights.
 *
 * Keys of the spec change this for other models:
 *   activation=none  the product itself, instead of max(0, product)
 *   weights=0        every head has the weight `scale`, and there is no tensor weights
 *   groups=G         group g has the heads g * H/G .. (g + 1) * H/G - 1, and logits of its own, the
 *                    sum over its heads: logits is [T,G,S]
 *   candidate_block=r
 *                    only the keys of listed blocks of r keys are scored: candidates[t,c] is a block's
 *                    number, and logits is [T,N] or [T,G,N] with N = C * r. Logit c * r + i is of key
 *                    candidates[t,c] * r + i; it is -inf, and the key is not read, where no block has the
 *                    number (such as -1), and outside the window. A block that is listed twice is
 *                    scored twice. The cost is in proportion to C
 *   block_max=r      only the largest logit of each block of r consecutive keys is written, from key 0
 *                    on: logits is [T,N] or [T,G,N], N = ceil(S / r). Keys outside the window do not
 *                    count; a block without a key in the window has -inf. With candidate_block, N =
 *                    C * candidate_block / r: the blocks of r keys in the listed blocks, in their order
 *
 * Products accumulate in fp32, and so do the heads, in a fixed order. A logit's bits depend on its
 * query, its key and the operator's variant only: not on T, S, the window, other rows or the run.
 * A logit of -0 is written as +0; NaN (from a NaN or an infinity in the inputs) is written as -inf,
 * the lowest logit; +inf stays.
 *
 * Spec: indexer_logits:heads=64,dim=128,dtype=fp8; keys:
 *   heads  H: 1..128
 *   dim    D: 32, 64 or 128
 *   dtype  of q and k: bf16, or fp8: OCP's e4m3, which has four exponent bits and no infinity;
 *          from compute capability 8.9 on
 *   activation  relu (default) or none
 *   weights     1 (default) or 0
 *   weights_dtype  elements of weights: fp32 (default) or bf16
 *   groups      G: a divisor of heads, default 1
 *   block_max   r: 1 (default), 2, 4, 8, 16, 32, 64 or 128; at most candidate_block, if there is one
 *   candidate_block  r: 0 (default: all keys), 1, 2, 4, 8, 16, 32, 64 or 128
 * In addition, knobs override the plan, "variant=mma"; `smelt list` prints them.
 */
#ifndef SMELT_INDEXER_LOGITS_H
#define SMELT_INDEXER_LOGITS_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h explains strides. q and k start at
 * multiples of 16 bytes, and so do their rows. logits must not overlap an input; its rows may be
 * further apart than they are long, and the gaps between them are not touched.
 */
typedef struct smelt_indexer_logits_args {
    size_t size;                     /* sizeof, set by SMELT_INDEXER_LOGITS_ARGS_INIT */
    int64_t tokens;                  /* T, 0..2^31 - 1; 0 launches nothing */
    int64_t rows;                    /* S, 0..2^31 - 1; 0 launches nothing */
    int64_t candidate_count;         /* C, 0..2^31 - 1, C * candidate_block below 2^31; 0 without
                                        candidate_block, and launches nothing with it */
    int free_multiprocessors;        /* left to other streams while it runs; 0: none */
    float scale;                     /* of weights=0: every head's weight, finite; 0 counts as 1.
                                        With weights=1: 0 or 1 */
    smelt_const_tensor q;            /* [T,H,D] bf16 or e4m3 */
    smelt_const_tensor k;            /* [S,D] likewise */
    smelt_const_tensor weights;      /* [T,H] fp32 or bf16, by the key weights_dtype; exactly
                                        with weights=1 */
    smelt_const_tensor k_scale;      /* [S] fp32, exactly when the spec has fp8; a magnitude below
                                        2^-125 may lose its last bit, 2^-149 */
    smelt_const_tensor window_begin; /* [T] int32: the window's first key */
    smelt_const_tensor window_end;   /* [T] int32: its last key plus one */
    smelt_tensor logits;             /* [T,S] fp32; [T,G,S] with groups, [T,N] with block_max or
                                        candidate_block, [T,G,N] with groups and one of these */
    smelt_const_tensor candidates;   /* [T,C] int32, exactly when candidate_block is above 0: any
                                      numbers. The row stride of k is below 2^31 then */
} smelt_indexer_logits_args;

#define SMELT_INDEXER_LOGITS_ARGS_INIT SMELT_INIT(smelt_indexer_logits_args)

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph (the arguments are copied at
 * the call; the memory they point to is read at each replay). Makes the operator's CUDA context
 * current for the call if this thread has none or another, and restores the previous one.
 *
 * Errors, before anything is launched: INVALID_ARGUMENT naming the argument; DRIVER for a refusal by
 * the driver (an unknown stream, for example).
 */
SMELT_CALL smelt_status smelt_indexer_logits_forward(const smelt_operator *op,
                                                     const smelt_indexer_logits_args *args,
                                                     struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
