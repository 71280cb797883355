/*
 * smelt: the indexer's training loss against dense attention, with which its training begins, and
 * the gradients of the indexer's queries, weights and keys, without a T x S matrix.
 *
 * Shapes are in C order, last index fastest:
 *   T query tokens, S keys; attention: H heads, KV key heads, dqk their width; the indexer: HI heads,
 *   DI their width, N = S keys.
 *   q [T,H,dqk]    k [S,KV,dqk]    lse [T,H,1] fp32    index_q [T,HI,DI]    index_k [N,DI]
 *   index_weights [T,HI] fp32 or bf16
 *
 * Query t has the window W(t) of keys window_begin[t] <= s < window_end[t], clipped to 0 <= s < S.
 * Over its keys, with g = h / (H / KV):
 *   target[t,s] = sum_h exp(scale * dot(q[t,h,:], k[s,g,:]) - lse[t,h])      attention's probabilities
 *   logit[t,s]  = sum_h index_weights[t,h] * max(0, dot(index_q[t,h,:], index_k[s,:]))
 *   p[s], q[s]  = target[t,s] / sum over W(t) of target;  softmax over W(t) of the logits
 *   losses[t]   = w[t] * sum_s p[s] * (ln p[s] - ln q[s])       w[t] = query_weight * weight[t]
 *   loss        = sum_t losses[t]
 *   dlogit[t,s] = grad_loss * w[t] * (q[s] - p[s])
 * and from dlogit the gradients index_dq, index_dweights and index_dk as smelt/indexer_bwd.h has
 * them, with every key of the window as a slot. Attention's inputs have no gradient. With activation=none
 * the dot product stands for max(0, ..).
 *
 * With granularity=r above 1 a key of the indexer's is a pool of r keys: N = ceil(S / r). Pools
 * all of whose keys are in W(t) take the place of keys: a pool's target is the sum of its keys' targets.
 * With block_max=r above 1 blocks of r keys do: a block's target is the sum of its keys' targets in W(t), and
 * its logit is the largest of theirs, to whose key alone (the lowest, if several have it) its gradient
 * belongs. With groups=G each of G groups of consecutive heads, of attention's and of the indexer's, has a
 * target, logits and losses of its own: losses [T,G], of which `loss` is the sum.
 *
 * Each step is another operator's, with its exceptional values, roundings and errors: lse is
 * smelt/dense_lse.h's (or any attention's natural log-sum-exp without a sink; since the target is
 * divided by its sum, its error does not matter as long as all heads' are alike), the logits
 * smelt/indexer_logits.h's, loss and dlogit smelt/indexer_loss.h's: a query with an empty window, or a
 * target whose sum is below 2^-126 or infinite, has the loss 0 and gradients of 0.
 *
 * Tensor-parallel ranks have some of attention's heads each. The mean of the ranks' gradients, each
 * with the target of its own heads, is the gradient for all heads, since it is linear in the target;
 * the mean of the losses is not less than the loss of all heads.
 *
 * losses, loss, index_dq and index_dweights have the same bits in every run; index_dk only with
 * deterministic=1. The order of sums then also follows from workspace_limit and causal_limit.
 *
 * Spec: indexer_dense_loss:heads=64,dqk=576,index_heads=64,index_dim=128; keys:
 *   heads          H: 1..128 and multiples of 64 above, up to 1024
 *   dqk            a multiple of 16, 16..1024
 *   kv_heads       KV: a divisor of H (default 1)
 *   index_heads    HI: 1..128
 *   index_dim      DI: 32, 64 or 128
 *   activation     relu (the default), or none: of the indexer's heads
 *   weights_dtype  elements of index_weights and index_dweights: fp32 (the default) or bf16
 *   groups         G: divides H and HI; KV is a multiple or a divisor of it (default 1)
 *   granularity    r: keys of a pool, 1, 2, 4 .. 128 (default 1)
 *   block_max      r: keys of a block, likewise; one of both is 1
 *   deterministic  1: index_dk has the same bits in every run, too (default 0)
 * In addition, knobs override the plan, "scores.stages=3"; `smelt list` prints them.
 */
#ifndef SMELT_INDEXER_DENSE_LOSS_H
#define SMELT_INDEXER_DENSE_LOSS_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h explains strides. q, k, index_q, index_k
 * and the gradients but index_dweights start at multiples of 16 bytes, and so do their rows. Outputs
 * and workspace must not overlap anything else.
 *
 * Either index_dq, index_dweights and one of the three forms of index_dk are given, or none of them:
 * then the losses alone are computed.
 */
typedef struct smelt_indexer_dense_loss_args {
    size_t size;              /* sizeof, set by SMELT_INDEXER_DENSE_LOSS_ARGS_INIT */
    int64_t tokens;           /* T, 0..2^31 - 1; with 0 the loss is 0 */
    int64_t rows;             /* S, 0..2^30 */
    float scale;              /* of attention's scores: positive, at most 2e38 */
    float query_weight;       /* multiplies every query's weight: 1, or 1 / T for a mean; finite and
                                 not 0 */
    int free_multiprocessors; /* that the main kernels leave to other streams; 0: none */
    int reserved;             /* 0 */
    smelt_const_tensor q;     /* [T,H,dqk] bf16 */
    smelt_const_tensor k;     /* [S,KV,dqk] bf16 */
    smelt_const_tensor lse;   /* [T,H,1] fp32 */
    smelt_const_tensor index_q;       /* [T,HI,DI] bf16 */
    smelt_const_tensor index_k;       /* [N,DI] bf16, row stride below 2^31 */
    smelt_const_tensor index_weights; /* [T,HI] fp32 or bf16, by the key weights_dtype */
    smelt_const_tensor window_begin;  /* [T] int32: the window's first key */
    smelt_const_tensor window_end;    /* [T] int32: its last key plus one */
    smelt_const_tensor weight;        /* [T] fp32; or NULL: 1 */
    smelt_const_tensor grad_loss;     /* [1] fp32; or NULL: 1 */
    smelt_tensor loss;                /* [1] fp32 */
    smelt_tensor losses;              /* [T] fp32, [T,G] with groups; or NULL */
    smelt_tensor index_dq;            /* [T,HI,DI] bf16; or NULL: the losses alone */
    smelt_tensor index_dweights;      /* [T,HI] fp32 or bf16, of index_weights' type; optional */
    smelt_tensor index_dk;            /* [N,DI] bf16, optional; one of three */
    smelt_tensor index_dk_fp32;       /* [N,DI] fp32, optional */
    smelt_tensor index_dk_sum;        /* [N,DI] fp32, optional, added to */
    /* Memory that the call may write until its work on the stream is done, at a multiple of 256
     * bytes. No call reads its previous contents. */
    void *workspace;
    size_t workspace_bytes; /* at least the result of smelt_indexer_dense_loss_forward_workspace */
    size_t
        workspace_limit; /* the maximum of that result; 0: room for SMELT_INDEXER_DENSE_LOSS_QUERIES
                               queries at once */
    int64_t causal_limit; /* above 0, the caller guarantees window_end[t] <= t + causal_limit for
                               each query t (0 to T - 1): 1 for causal windows with query t at the
                               position of key t. Less time is spent on finding that blocks of keys
                               are outside the windows. Keys from t + causal_limit on may count as
                               outside. 0: any windows; to 2^31 - 1 */
} smelt_indexer_dense_loss_args;

#define SMELT_INDEXER_DENSE_LOSS_ARGS_INIT SMELT_INIT(smelt_indexer_dense_loss_args)

/* Queries whose targets and logits are in the workspace at once, unless it is limited. */
enum { SMELT_INDEXER_DENSE_LOSS_QUERIES = 528 };

/* Bytes of workspace that a call with these arguments needs into *bytes: for each query of a chunk,
 * at most 12 bytes a key (17 with block_max); 4 * S * DI bytes for the sums of index_dk, with deterministic=1 twice that;
 * 4 * T if `losses` is not given. Which gradients are given matters, other tensors need not be set.
 * Pure; any thread. Errors: INVALID_ARGUMENT, also for a limit that is too small for a chunk of one
 * group of queries. */
SMELT_CALL smelt_status smelt_indexer_dense_loss_forward_workspace(
    const smelt_operator *op, const smelt_indexer_dense_loss_args *args, size_t *bytes);

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting: a few kernels for each
 * chunk of queries, whose number follows from tokens, rows and workspace_limit. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph. Graphs, the CUDA context and
 * errors: as smelt_indexer_bwd_backward.
 */
SMELT_CALL smelt_status smelt_indexer_dense_loss_forward(const smelt_operator *op,
                                                         const smelt_indexer_dense_loss_args *args,
                                                         struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
