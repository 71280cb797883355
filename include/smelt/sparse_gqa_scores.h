/*
 * smelt: the probabilities of grouped heads' attention (smelt/sparse_gqa.h), summed over the heads that
 * share a list and over the rows of each entry: the target that the indexers of MiniMax-M3's MSA and
 * Qwen's QSA are trained to predict. They are recomputed from q, k and the forward pass's lse.
 *
 * Shapes are in C order, last index fastest; letters, lists, entries and valid rows are sparse_gqa's:
 *   q [B,T,Hq,dqk] bf16      k [B,S,Hkv,dqk] bf16      indices [B,T,G,width] int32
 *   lse [B,T,Hq,1] fp32      target [B,T,G,width] fp32
 *
 * With s[h,j] as in smelt/sparse_gqa.h:
 *   p[h,j]           = exp(s[h,j]) / exp(lse[b,t,h])                          without a sink
 *                      exp(s[h,j]) / (exp(lse[b,t,h]) + exp(sink[h]))         with sink=1
 *   target[b,t,g,i]  = the sum of p[h,j] over the heads h that read list g (with lists=kv those of KV
 *                      head g, else all) and over the valid rows j of its slot i: e*r <= j < (e+1)*r and
 *                      j < L, e = indices[b,t,g,i]; 0 for a masked slot
 * An entry that a list names twice has its probability at both slots. lse is the forward pass's: the
 * natural logarithm, without the sink. With tensor parallelism the caller sums the target over ranks.
 *
 * fp32 accumulation, and nothing is rounded to bf16. A slot's bits depend on its query, its rows and the
 * plan only: not on its index, the other slots, T, B, other queries or the run. If a list has a valid
 * row and the lse of one of its heads is not finite, the list's target is undefined.
 *
 * Spec: sparse_gqa_scores:heads=64,kv_heads=4,dqk=128,topk=16,granularity=128,lists=kv; keys:
 *   heads          Hq: 1..1024, a multiple of kv_heads, at most 64 times it
 *   kv_heads       Hkv: 1..1024
 *   dqk            width of a query and of a key: 64, 96, 128, 192 or 256
 *   topk           the most entries of a list, 1..65536
 *   granularity    r: rows of an entry, 1, 4, 16, 64 or 128
 *   lists          shared: one list for all heads (the default); kv: one for each KV head
 *   sink           1: p's denominator holds a learnt logit per head (default 0)
 * In addition, knobs override the plan, "block_keys=32"; `smelt list` prints them.
 */
#ifndef SMELT_SPARSE_GQA_SCORES_H
#define SMELT_SPARSE_GQA_SCORES_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h explains strides. q and k start at
 * multiples of 16 bytes and their strides are multiples of 8 elements. target must not overlap an
 * input.
 */
typedef struct smelt_sparse_gqa_scores_args {
    size_t size;                    /* sizeof, set by SMELT_SPARSE_GQA_SCORES_ARGS_INIT */
    int64_t batches;                /* B; 0 counts as 1 */
    int64_t tokens;                 /* T >= 0; B * T <= 2^31 - 1; 0 queries launch nothing */
    int64_t rows;                   /* S, 0..2^31 - 1 */
    int64_t width;                  /* slots of a list and of a row of the target, 1..topk */
    float scale;                    /* softmax scale, > 0 and at most 2e38 */
    int free_multiprocessors;       /* left to other streams while it runs; 0: none */
    smelt_const_tensor q;           /* [B,T,Hq,dqk] bf16 */
    smelt_const_tensor k;           /* [B,S,Hkv,dqk] bf16; NULL if S is 0 */
    smelt_const_tensor lse;         /* [B,T,Hq,1] fp32 */
    smelt_const_tensor indices;     /* [B,T,G,width] int32 */
    smelt_const_tensor topk_length; /* [B,T,G,1] int32 or NULL; values below 0 count as 0, above
                                       width as width */
    smelt_const_tensor limit; /* [B,T,1] int32 or NULL; rows from it on are masked; values below
                                       0 count as 0, above S as S */
    smelt_const_tensor sink;  /* [Hq] fp32, exactly when the spec has sink=1 */
    smelt_tensor target;      /* [B,T,G,width] fp32, every element of a computed query is written */
    /* Query list: the only queries to compute, each listed once. queries[i] = b * T + t; entries
     * outside [0, B*T) are skipped; the target of other queries is not touched. A query listed n
     * times is computed n times: with the same bits with lists=kv or one KV head; else its target,
     * but no other query's, is undefined. NULL: all queries. */
    smelt_const_tensor queries;     /* [query_capacity] int32 */
    smelt_const_tensor query_count; /* [1] int32, clamped to 0..query_capacity; NULL: all of it */
    int64_t query_capacity;         /* length of `queries` */
} smelt_sparse_gqa_scores_args;

#define SMELT_SPARSE_GQA_SCORES_ARGS_INIT SMELT_INIT(smelt_sparse_gqa_scores_args)

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph (the arguments are copied at
 * the call; the memory they point to is read at each replay). Makes the operator's CUDA context
 * current for the call if this thread has none or another, and restores the previous one.
 *
 * Errors, before anything is launched: INVALID_ARGUMENT naming the argument; DRIVER for a refusal by
 * the driver (an unknown stream, for example).
 */
SMELT_CALL smelt_status smelt_sparse_gqa_scores_forward(const smelt_operator *op,
                                                        const smelt_sparse_gqa_scores_args *args,
                                                        struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
