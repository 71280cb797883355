/*
 * smelt: attention's probabilities at the selected slots, summed over the heads: the target that the
 * lightning indexer is trained to predict. They are recomputed from the inputs of sparse attention's
 * forward pass and its lse, without a T x S matrix.
 *
 * Shapes are in C order, last index fastest:
 *   B batches, T query tokens of each, S KV rows of each, H query heads on this rank.
 *   q [B,T,H,dqk] bf16      kv [B,S,dqk] bf16      indices [B,T,width] int32
 *   lse [B,T,H,1] fp32      target [B,T,width] fp32
 *
 * With slots, valid ones and s[h,i] as in smelt/sparse_attn.h:
 *   p[h,i]         = exp(s[h,i]) / exp(lse[b,t,h])                            without a sink
 *                    exp(s[h,i]) / (exp(lse[b,t,h]) + exp(sink[h]))           with sink=1
 *   target[b,t,i]  = sum_h p[h,i], 0 for a masked slot
 * target[b,t,i] belongs to slot i; a row selected twice has its probability at both slots. lse is the
 * forward pass's: the natural logarithm, without the sink. With tensor parallelism the caller sums
 * the target over ranks. The mathematics: DeepSeek-V3.2-Exp (the indexer's training).
 *
 * fp32 accumulation, and nothing is rounded to bf16. A slot's bits depend on its query, its row and
 * the operator's variant only: not on its index, the other slots, T, B, other queries or the run.
 * If a query has a valid slot and its lse is not finite, its target is undefined.
 *
 * Spec: sparse_scores:heads=64,dqk=576,dv=512,topk=2048; keys:
 *   heads  H: 1..128, or a multiple of 64 up to 1024
 *   dqk    width of a query and of a KV row: a multiple of 16 up to 1024
 *   dv     width of a value, as attention has it: a multiple of 16 up to dqk
 *   topk   the maximum number of slots of a query, 1..1048576
 *   sink   1: p's denominator holds a learnt logit per head (default 0)
 * In addition, knobs override the plan, "variant=mma"; `smelt list` prints them.
 */
#ifndef SMELT_SPARSE_SCORES_H
#define SMELT_SPARSE_SCORES_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h explains strides. q and kv start at
 * multiples of 16 bytes and their strides are multiples of 8 elements. target must not overlap an
 * input.
 */
typedef struct smelt_sparse_scores_args {
    size_t size;                    /* sizeof, set by SMELT_SPARSE_SCORES_ARGS_INIT */
    int64_t batches;                /* B; 0 counts as 1 */
    int64_t tokens;                 /* T >= 0; B * T <= 2^31 - 1; 0 queries launch nothing */
    int64_t rows;                   /* S, 0..2^31 - 1 */
    int64_t width;                  /* slots of an index row and of the target, 1..topk */
    float scale;                    /* softmax scale, > 0 and at most 2e38 */
    int free_multiprocessors;       /* left to other streams while it runs; 0: none */
    smelt_const_tensor q;           /* [B,T,H,dqk] bf16 */
    smelt_const_tensor kv;          /* [B,S,dqk] bf16, row stride below 2^31; NULL if S is 0 */
    smelt_const_tensor indices;     /* [B,T,width] int32 */
    smelt_const_tensor topk_length; /* [B,T,1] int32 or NULL; values below 0 count as 0, above
                                       width as width */
    smelt_const_tensor sink;        /* [H] fp32, exactly when the spec has sink=1 */
    smelt_const_tensor lse;         /* [B,T,H,1] fp32 */
    smelt_tensor target; /* [B,T,width] fp32, every element of a computed query is written */
    /* Query list: the only queries to compute, each listed once. queries[i] = b * T + t; entries
     * outside [0, B*T) are skipped; the target of other queries is not touched. A query listed n
     * times is computed n times, with the same bits if a thread block processes all heads at once
     * (variant sm90; mma with up to 16 heads, or up to BLOCK_HEADS of `smelt emit`); else its
     * target, but no other query's, is undefined. NULL: all queries. */
    smelt_const_tensor queries;     /* [query_capacity] int32 */
    smelt_const_tensor query_count; /* [1] int32, clamped to 0..query_capacity; NULL: all of it */
    int64_t query_capacity;         /* length of `queries` */
} smelt_sparse_scores_args;

#define SMELT_SPARSE_SCORES_ARGS_INIT SMELT_INIT(smelt_sparse_scores_args)

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph (the arguments are copied at
 * the call; the memory they point to is read at each replay). Makes the operator's CUDA context
 * current for the call if this thread has none or another, and restores the previous one.
 *
 * Errors, before anything is launched: INVALID_ARGUMENT naming the argument; DRIVER for a refusal by
 * the driver (an unknown stream, for example).
 */
SMELT_CALL smelt_status smelt_sparse_scores_forward(const smelt_operator *op,
                                                    const smelt_sparse_scores_args *args,
                                                    struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
