/*
 * smelt: the log-sum-exp of dense attention over windows of keys, which indexer_dense_loss takes.
 *
 * Shapes are in C order, last index fastest:
 *   T query tokens, S keys, H query heads, KV key heads, dqk their width.
 *   q [T,H,dqk] bf16    k [S,KV,dqk] bf16    lse [T,H,1] fp32
 *
 * Query t has the window of keys window_begin[t] <= s < window_end[t], clipped to 0 <= s < S. Over
 * its keys, with g = h / (H / KV), the key head that head h reads:
 *   lse[t,h] = ln( sum over s of exp(scale * dot(q[t,h,:], k[s,g,:])) )
 * It is -inf where the window is empty. Latent attention has KV = 1: its rows of kv are k.
 *
 * Products and sums are fp32. A result's bits depend on its query, its window's keys, the windows of
 * queries that share a tile with it and the spec: they are the same in every run.
 *
 * Spec: dense_lse:heads=64,dqk=576; keys:
 *   heads     H: 1..128 and multiples of 64 above, up to 1024
 *   dqk       a multiple of 16, 16..1024
 *   kv_heads  KV: a divisor of H (default 1)
 * In addition, knobs override the plan, "stages=3"; `smelt list` prints them.
 */
#ifndef SMELT_DENSE_LSE_H
#define SMELT_DENSE_LSE_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h explains strides. q and k start at
 * multiples of 16 bytes, and so do their rows. lse must not overlap an input.
 */
typedef struct smelt_dense_lse_args {
    size_t size;                     /* sizeof, set by SMELT_DENSE_LSE_ARGS_INIT */
    int64_t tokens;                  /* T, 0..2^31 - 1; 0 launches nothing */
    int64_t rows;                    /* S, 0..2^30 */
    float scale;                     /* of the products: positive, at most 2e38 */
    int free_multiprocessors;        /* left to other streams while it runs; 0: none */
    smelt_const_tensor q;            /* [T,H,dqk] bf16 */
    smelt_const_tensor k;            /* [S,KV,dqk] bf16 */
    smelt_const_tensor window_begin; /* [T] int32: the window's first key */
    smelt_const_tensor window_end;   /* [T] int32: its last key plus one */
    smelt_tensor lse;                /* [T,H,1] fp32 */
} smelt_dense_lse_args;

#define SMELT_DENSE_LSE_ARGS_INIT SMELT_INIT(smelt_dense_lse_args)

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph. Graphs, the CUDA context
 * and errors: as smelt_indexer_logits_forward.
 */
SMELT_CALL smelt_status smelt_dense_lse_forward(const smelt_operator *op,
                                                const smelt_dense_lse_args *args,
                                                struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
