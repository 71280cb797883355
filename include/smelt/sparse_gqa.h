/*
 * smelt: sparse attention for grouped heads (GQA), keys and values apart: each query has lists of
 * blocks of rows, one list for all heads or one for each KV head, as in MiniMax-M3's MSA, Qwen's QSA
 * and NSA.
 *
 * Shapes are in C order, last index fastest:
 *   B batches, T query tokens of each, S rows of each, Hq query heads and Hkv KV heads on this rank,
 *   G lists of a query: 1 with lists=shared, Hkv with lists=kv.
 *   q [B,T,Hq,dqk] bf16   k [B,S,Hkv,dqk] bf16   v [B,S,Hkv,dv] bf16   indices [B,T,G,width] int32
 *   out [B,T,Hq,dv] bf16  lse [B,T,Hq,1] fp32
 *
 * Query head h reads KV head n = h / (Hq / Hkv) and list g = n, or 0 with lists=shared. With
 * granularity r, entry e of a list names the rows e*r .. e*r+r-1. Slot i of query (b,t) is valid when
 * i < topk_length[b,t,g] (if given), 0 <= e = indices[b,t,g,i] and e*r < L, where L is limit[b,t]
 * clamped to 0..S, or S without limits. The rows of the valid slots below L form the list J; all other
 * rows are masked and never read. A row named twice counts twice. With s[h,j] = scale *
 * <q[b,t,h,:], k[b,j,n,:]> over j in J:
 *   lse[h]   = ln sum_j exp(s[h,j])                                   natural logarithm, no sink
 *   p[h,j]   = exp(s[h,j]) / (exp(lse[h]) + exp(sink[h]))             sink: one logit per head
 *   out[h,:] = sum_j p[h,j] * v[b,j,n,:]
 * A query without a valid row gives out = 0, lse = -inf. fp32 accumulation; probabilities are rounded
 * to bf16 before the second product. The mathematics: sparse_attn.h.
 *
 * A query's results are bitwise independent of T, B, its position, the other queries and the run. With
 * unite=1 they may depend on its neighbours' lists.
 *
 * Spec: sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,lists=kv; keys:
 *   heads          Hq: 1..1024, a multiple of kv_heads, at most 64 times it
 *   kv_heads       Hkv: 1..1024
 *   dqk            width of a query and of a key: 64, 96, 128, 192 or 256
 *   dv             width of a value: 64, 96, 128, 192 or 256, at most dqk
 *   topk           the most entries of a list, 1..65536
 *   granularity    r: rows of an entry, 1, 4, 16, 64 or 128
 *   lists          shared: one list for all heads (the default); kv: one for each KV head
 *   sink           1: the softmax denominator holds a learnt logit per head (default 0)
 *   passes         forward (the default), backward or both: the passes to compile
 *   deterministic  1: the backward pass gives the same bits in every run (default 0)
 *   unite          1: the forward pass may unite the lists of neighbouring queries, which is faster
 *                  where they have much in common (docs/operators.md); a query's bits then depend
 *                  on its neighbours' lists, and NaN or infinity in a row of v that one query reads
 *                  may affect its neighbours (default 0)
 * In addition, knobs override the plan, "variant=mma"; `smelt list` prints them.
 */
#ifndef SMELT_SPARSE_GQA_H
#define SMELT_SPARSE_GQA_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Forward arguments. Every pointer is device memory; smelt/tensor.h explains strides. q, k, v and out
 * start at multiples of 16 bytes and their strides are multiples of 8 elements.
 *
 * Outputs and workspace must not overlap inputs or each other; overlaps are refused. Tensors may be
 * parts of one buffer, such as column ranges of its rows.
 */
typedef struct smelt_sparse_gqa_args {
    size_t size;                    /* sizeof, set by SMELT_SPARSE_GQA_ARGS_INIT */
    int64_t batches;                /* B; 0 counts as 1 */
    int64_t tokens;                 /* T >= 0; B * T <= 2^31 - 1; 0 queries launch nothing */
    int64_t rows;                   /* S, 0..2^31 - 1, of k and v; B * S <= 2^40 */
    int64_t width;                  /* slots of a list, 1..topk */
    float scale;                    /* softmax scale, > 0 and at most 2e38 */
    int free_multiprocessors;       /* left to other streams while it runs; 0: none */
    smelt_const_tensor q;           /* [B,T,Hq,dqk] bf16 */
    smelt_const_tensor k;           /* [B,S,Hkv,dqk] bf16; NULL if S is 0 */
    smelt_const_tensor v;           /* [B,S,Hkv,dv] bf16; NULL if S is 0 */
    smelt_const_tensor indices;     /* [B,T,G,width] int32 */
    smelt_const_tensor topk_length; /* [B,T,G,1] int32 or NULL; values below 0 count as 0, above
                                       width as width */
    smelt_const_tensor limit; /* [B,T,1] int32 or NULL; rows from it on are masked; values below
                                       0 count as 0, above S as S */
    smelt_const_tensor sink;  /* [Hq] fp32, exactly when the spec has sink=1 */
    smelt_tensor out;         /* [B,T,Hq,dv] bf16, every element of a computed query is written */
    smelt_tensor lse;         /* [B,T,Hq,1] fp32 */
    /* Query list: the only queries to compute. queries[i] = b * T + t; entries outside [0, B*T) are
     * skipped; outputs of other queries are not touched. A query listed n times is computed n times,
     * each time with the same bits. NULL: all queries. */
    smelt_const_tensor queries;     /* [query_capacity] int32 */
    smelt_const_tensor query_count; /* [1] int32, clamped to 0..query_capacity; NULL: all of it */
    int64_t query_capacity;         /* length of `queries` */
    void *workspace;                /* at a multiple of 256 bytes; previous contents are not read */
    size_t workspace_bytes;         /* at least the result of smelt_sparse_gqa_forward_workspace */
} smelt_sparse_gqa_args;

#define SMELT_SPARSE_GQA_ARGS_INIT SMELT_INIT(smelt_sparse_gqa_args)

/*
 * The backward pass. Over the valid rows, with p as above:
 *   delta[t,h] = <out[t,h,:], grad_out[t,h,:]>
 *   dp[h,j]    = <grad_out[t,h,:], v[j,n,:]>
 *   ds[h,j]    = scale * p[h,j] * (dp[h,j] - delta[t,h])
 *   dq[t,h,:]  = sum_j ds[h,j] * k[j,n,:]
 *   dk[j,n,:]  = sum of ds[h,j] * q[t,h,:] over all queries t, the heads h of n, and every time that
 *                t's list names j
 *   dv[j,n,:]  = sum of p[h,j] * grad_out[t,h,:] over the same
 *   dsink[h]   = -sum_t delta[t,h] * exp(sink[h]) / (exp(lse[t,h]) + exp(sink[h]))
 * A query without a valid row has dq = 0 and contributes nothing; a row that no query names has dk =
 * dv = 0. fp32 accumulation; p and ds are rounded to bf16 before the products that use them. The
 * error of delta that stems from rounding out: sparse_attn.h.
 *
 * dq and dsink have the same bits in every run with the same arguments. dk and dv are summed in any
 * order; with deterministic=1 either the arguments alone fix the order of every sum, or addends are
 * rounded so that sums are exact in any order (docs/operators.md). The previous contents of dk_sum and
 * dv_sum are added once, at the end.
 *
 * Every pointer is device memory; smelt/tensor.h explains strides. All tensors with rows of dqk or dv
 * elements start at multiples of 16 bytes, and so do their rows. out and lse are the forward pass's:
 * if they come from other lists or another sink, the results are finite but meaningless. Outputs and
 * workspace must not overlap inputs or each other.
 */
typedef struct smelt_sparse_gqa_grad_args {
    size_t size;                    /* sizeof, set by SMELT_SPARSE_GQA_GRAD_ARGS_INIT */
    int64_t batches;                /* B; 0 counts as 1 */
    int64_t tokens;                 /* T >= 0; B * T <= 2^31 - 1 */
    int64_t rows;                   /* S, 0..2^31 - 1, of k and v; B * S <= 2^40 */
    int64_t width;                  /* slots of a list, 1..topk */
    float scale;                    /* the forward's */
    int free_multiprocessors;       /* that the main kernels leave to other streams; 0: none */
    smelt_const_tensor q;           /* [B,T,Hq,dqk] bf16 */
    smelt_const_tensor k;           /* [B,S,Hkv,dqk] bf16; NULL if S is 0 */
    smelt_const_tensor v;           /* [B,S,Hkv,dv] bf16; NULL if S is 0 */
    smelt_const_tensor indices;     /* [B,T,G,width] int32 */
    smelt_const_tensor topk_length; /* [B,T,G,1] int32 or NULL */
    smelt_const_tensor limit;       /* [B,T,1] int32 or NULL */
    smelt_const_tensor sink;        /* [Hq] fp32, exactly when the spec has sink=1 */
    smelt_const_tensor out;         /* [B,T,Hq,dv] bf16 */
    smelt_const_tensor lse;         /* [B,T,Hq,1] fp32 */
    smelt_const_tensor grad_out;    /* [B,T,Hq,dv] bf16 */
    smelt_tensor dq;                /* [B,T,Hq,dqk] bf16, overwritten */
    /* Exactly one of these: bf16 or fp32, overwritten, or fp32 that is added to. */
    smelt_tensor dk;      /* [B,S,Hkv,dqk] bf16 */
    smelt_tensor dk_fp32; /* [B,S,Hkv,dqk] fp32 */
    smelt_tensor dk_sum;  /* [B,S,Hkv,dqk] fp32, added to */
    /* Exactly one of these, likewise. */
    smelt_tensor dv;      /* [B,S,Hkv,dv] bf16 */
    smelt_tensor dv_fp32; /* [B,S,Hkv,dv] fp32 */
    smelt_tensor dv_sum;  /* [B,S,Hkv,dv] fp32, added to */
    smelt_tensor dsink;   /* [Hq] fp32, overwritten; or NULL. With sink=1 alone */
    /* Query list, as in the forward pass: only these queries have and contribute gradients; dq of the
     * others is not touched. A query listed n times contributes n times to dk, dv and dsink. NULL:
     * all queries. */
    smelt_const_tensor queries;     /* [query_capacity] int32 */
    smelt_const_tensor query_count; /* [1] int32, clamped to 0..query_capacity; NULL: all of it */
    int64_t query_capacity;         /* length of `queries` */
    void *workspace;                /* at a multiple of 256 bytes; previous contents are not read */
    size_t workspace_bytes;         /* at least the result of smelt_sparse_gqa_backward_workspace */
} smelt_sparse_gqa_grad_args;

#define SMELT_SPARSE_GQA_GRAD_ARGS_INIT SMELT_INIT(smelt_sparse_gqa_grad_args)

/* Bytes of workspace that a forward call with these arguments needs into *bytes: 0 with variant mma,
 * at most about 2.5 GiB and the lists by block with variant sm90 and granularity 64 or 128, 5 bytes
 * for each slot with variant sm90, unite=1 and less (docs/operators.md).
 * It depends on batches, tokens, rows, width, queries and query_capacity; all integers must be legal,
 * other tensors need not be set. Pure; any thread. Errors: INVALID_ARGUMENT. */
SMELT_CALL smelt_status smelt_sparse_gqa_forward_workspace(const smelt_operator *op,
                                                           const smelt_sparse_gqa_args *args,
                                                           size_t *bytes);

/*
 * Launches the forward pass on `stream` (NULL: the default stream) and returns without waiting.
 * Allocates nothing, takes no lock, does not synchronise; may be captured in a CUDA graph (the
 * arguments are copied at the call; the memory they point to is read at each replay). Makes the
 * operator's CUDA context current for the call if this thread has none or another, and restores
 * the previous one.
 *
 * Errors: INVALID_ARGUMENT naming the argument, before anything is launched; DRIVER for a refusal by
 * the driver (an unknown stream, for example): earlier kernels of the call may have been launched
 * then, and the outputs are undefined.
 */
SMELT_CALL smelt_status smelt_sparse_gqa_forward(const smelt_operator *op,
                                                 const smelt_sparse_gqa_args *args,
                                                 struct CUstream_st *stream);

/* Bytes of workspace that a backward call with these arguments needs into *bytes; it depends on the
 * same integers as the forward pass's. Pure; any thread. Errors: INVALID_ARGUMENT. */
SMELT_CALL smelt_status smelt_sparse_gqa_backward_workspace(const smelt_operator *op,
                                                            const smelt_sparse_gqa_grad_args *args,
                                                            size_t *bytes);

/*
 * Launches the backward pass, several kernels, on `stream` (NULL: the default stream) and returns
 * without waiting; may be captured in a CUDA graph, whose replays read the memory anew. Without
 * queries dk, dv and dsink become zeros, and dk_sum and dv_sum keep their values. Everything else as
 * smelt_sparse_gqa_forward. The operator must have been made with passes=backward or passes=both.
 */
SMELT_CALL smelt_status smelt_sparse_gqa_backward(const smelt_operator *op,
                                                  const smelt_sparse_gqa_grad_args *args,
                                                  struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
