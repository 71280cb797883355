/*
 * smelt: sparse attention over a shared latent (multi-query) cache, DeepSeek style: each query
 * attends to its own list of at most `topk` KV rows, and the first dv columns of a KV row are its
 * value.
 *
 * Shapes are in C order, last index fastest:
 *   B batches, T query tokens of each, S KV rows of each, H query heads on this rank.
 *   q [B,T,H,dqk] bf16      kv [B,S,dqk] bf16      indices [B,T,width] int32
 *   out [B,T,H,dv] bf16     lse [B,T,H,1] fp32
 *
 * For query (b,t), slot i is valid when i < topk_length[b,t] (if given) and 0 <= indices[b,t,i] <
 * S; every other slot is masked and its row never read. With s[h,i] = scale * <q[b,t,h,:],
 * kv[b,indices[i],:]> over the valid slots:
 *   lse[h]   = ln sum_i exp(s[h,i])                                   natural logarithm, no sink
 *   p[h,i]   = exp(s[h,i]) / (exp(lse[h]) + exp(sink[h]))             sink: one logit per head
 *   out[h,:] = sum_i p[h,i] * kv[b,indices[i],0:dv]
 * A query without a valid slot gives out = 0, lse = -inf. A row selected twice counts twice.
 * The mathematics: DeepSeek-V3.2-Exp (sparse attention over MLA latents) and the streaming softmax
 * of Milakov and Gimelshein (arXiv 1805.02867). fp32 accumulation; probabilities are rounded to
 * bf16 before the second product.
 *
 * A query's results are bitwise independent of T, B, its position, the other queries and the run.
 *
 * Spec: sparse_attn:heads=64,dqk=576,dv=512,topk=2048; keys:
 *   heads          H: 1..128, or a multiple of 64 up to 1024
 *   dqk            width of a query and of a KV row: a multiple of 16 up to 1024
 *   dv             width of a value: a multiple of 16 up to dqk
 *   topk           the maximum number of valid slots of a query, 1..1048576
 *   sink           1: the softmax denominator holds a learnt logit per head (default 0)
 *   buckets        bounds, 256/512/1024, or auto: see "Buckets" (default: none)
 *   passes         forward (the default), backward or both: the passes to compile
 *   deterministic  1: the backward pass gives the same bits in every run (default 0)
 * In addition, knobs override the plan, "variant=mma"; `smelt list` prints them.
 */
#ifndef SMELT_SPARSE_ATTN_H
#define SMELT_SPARSE_ATTN_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Buckets. A bucketed operator first sorts the queries, on the device, into buckets by their number
 * of valid slots, then runs for each bucket a kernel compiled for its bound. The results are those of
 * the plain operator. The key `buckets` has up to eight ascending bounds: a bucket has the queries
 * whose number of valid slots is at most its bound and above the previous bound. Bounds of topk and
 * above are dropped and topk is appended, so that the last bucket has the rest. `auto` lets the
 * library choose. Index rows may then be wider than topk; the first topk valid slots are used.
 *
 * Use buckets where rows are padded or lengths differ: rows are scanned up to their last valid slot,
 * and the longest queries begin first (measured on an H200: 1.1 to 3.0 times as fast, see README.md).
 * Use the plain operator where nearly every slot is valid or there are fewer than about 500 queries:
 * there, buckets cost 10 to 40 us per call. The results have the plain operator's bits if the
 * bucket's kernel and the plain one add in the same order (variant mma; sm90 with more than 32
 * heads), else they are within the same tolerance.
 *
 * A call needs workspace (smelt_sparse_attn_forward_workspace). The host does not wait, and no tensor
 * is copied; a call captured in a CUDA graph sorts again at each replay.
 */

/*
 * Forward arguments. Every pointer is device memory; smelt/tensor.h explains strides. q, kv
 * and out start at multiples of 16 bytes and their strides are multiples of 8 elements.
 *
 * Outputs (out, lse, max_logits) and workspace must not overlap inputs or each other; overlaps are
 * refused. Tensors may be parts of one buffer, such as column ranges of its rows.
 */
typedef struct smelt_sparse_attn_args {
    size_t size;                    /* sizeof, set by SMELT_SPARSE_ATTN_ARGS_INIT */
    int64_t batches;                /* B; 0 counts as 1 */
    int64_t tokens;                 /* T >= 0; B * T <= 2^31 - 1; 0 queries launch nothing */
    int64_t rows;                   /* S, 0..2^31 - 1 */
    int64_t width;                  /* slots of an index row, 1..topk; with buckets 1..2^28 - 1 */
    float scale;                    /* softmax scale, > 0 and at most 2e38 */
    int free_multiprocessors;       /* left to other streams while it runs; 0: none */
    smelt_const_tensor q;           /* [B,T,H,dqk] bf16 */
    smelt_const_tensor kv;          /* [B,S,dqk] bf16, row stride below 2^31; NULL if S is 0 */
    smelt_const_tensor indices;     /* [B,T,width] int32 */
    smelt_const_tensor topk_length; /* [B,T,1] int32 or NULL; values below 0 count as 0, above
                                       width as width */
    smelt_const_tensor sink;        /* [H] fp32, exactly when the spec has sink=1 */
    smelt_tensor out;        /* [B,T,H,dv] bf16, every element of a computed query is written */
    smelt_tensor lse;        /* [B,T,H,1] fp32 */
    smelt_tensor max_logits; /* [B,T,H,1] fp32, max_i s[h,i], -inf when empty; or NULL */
    /* Query list: the only queries to compute. queries[i] = b * T + t; entries outside [0, B*T) are
     * skipped; outputs of other queries are not touched. A query listed n times is computed n times,
     * each time with the same bits. NULL: all queries. */
    smelt_const_tensor queries;     /* [query_capacity] int32 */
    smelt_const_tensor query_count; /* [1] int32, clamped to 0..query_capacity; NULL: all of it */
    int64_t query_capacity;         /* length of `queries` */
    /* With buckets: memory that the call may write until its work on the stream is done, at a
     * multiple of 16 bytes. The call does not read its previous contents; a backward call may read
     * what it wrote, as `partition`. Ignored without buckets. */
    void *workspace;
    size_t workspace_bytes; /* at least the result of smelt_sparse_attn_forward_workspace */
} smelt_sparse_attn_args;

#define SMELT_SPARSE_ATTN_ARGS_INIT SMELT_INIT(smelt_sparse_attn_args)

/*
 * The backward pass. Over the valid slots, with p as above:
 *   delta[t,h] = <out[t,h,:], grad_out[t,h,:]>
 *   dp[h,i]    = <grad_out[t,h,:], kv[indices[i],0:dv]>
 *   ds[h,i]    = scale * p[h,i] * (dp[h,i] - delta[t,h])
 *   dq[t,h,:]  = sum_i ds[h,i] * kv[indices[i],:]
 *   dkv[j,:]   = sum of ds[h,i] * q[t,h,:] over all t, h, i with indices[t,i] = j;
 *                in its first dv columns also of p[h,i] * grad_out[t,h,:]
 *   dsink[h]   = -sum_t delta[t,h] * exp(sink[h]) / (exp(lse[t,h]) + exp(sink[h]))
 *
 * The forward pass rounded out to bf16, so the error of delta is up to
 *   e = 2^-8 * (sum_d |out[t,h,d] * grad_out[t,h,d]| + sum_i p[h,i] * |dp[h,i]|)
 * which adds up to scale * e * |sum_i p[h,i] * kv[indices[i],:]| to the error of dq[t,h,:]. This is
 * a large part of dq where one key has nearly all of a row's weight: 2 to 30 % for a query with one
 * distinct key and a sink.
 *
 * A query without a valid slot has dq = 0 and contributes nothing; a row that no query selects has
 * dkv = 0. fp32 accumulation; p and ds are rounded to bf16 before the products that use them.
 * (The mathematics: Dao et al., FlashAttention, arXiv 2205.14135, appendix B.)
 *
 * dq and dsink have the same bits in every run with the same arguments. dkv is summed in any order,
 * so that it differs from run to run by rounding; with deterministic=1 the arguments alone fix the
 * order of every sum. The previous contents of dkv_sum are added once, at the end. A query's dq may
 * depend, within the tolerance, on the queries next to it and, unless the operator is deterministic,
 * on the number of multiprocessors and free_multiprocessors.
 *
 * Every pointer is device memory; smelt/tensor.h explains strides. q, kv, out, grad_out, dq and each
 * kind of dkv start at multiples of 16 bytes, and so do their rows. out and lse are the forward
 * pass's: if they come from other lists or another sink, the results are finite but meaningless.
 * Outputs and workspace must not overlap inputs or each other.
 */
typedef struct smelt_sparse_attn_grad_args {
    size_t size;                    /* sizeof, set by SMELT_SPARSE_ATTN_GRAD_ARGS_INIT */
    int64_t batches;                /* B; 0 counts as 1 */
    int64_t tokens;                 /* T >= 0; B * T <= 2^31 - 1 */
    int64_t rows;                   /* S >= 0; B * S <= 2^31 - 1 */
    int64_t width;                  /* slots of an index row, 1..topk; with buckets 1..2^28 - 1 */
    float scale;                    /* the forward's */
    int free_multiprocessors;       /* that the main kernel leaves to other streams; 0: none */
    smelt_const_tensor q;           /* [B,T,H,dqk] bf16 */
    smelt_const_tensor kv;          /* [B,S,dqk] bf16, row stride below 2^31; NULL if S is 0 */
    smelt_const_tensor indices;     /* [B,T,width] int32 */
    smelt_const_tensor topk_length; /* [B,T,1] int32 or NULL */
    smelt_const_tensor sink;        /* [H] fp32, exactly when the spec has sink=1 */
    smelt_const_tensor out;         /* [B,T,H,dv] bf16 */
    smelt_const_tensor lse;         /* [B,T,H,1] fp32 */
    smelt_const_tensor grad_out;    /* [B,T,H,dv] bf16 */
    smelt_tensor dq;                /* [B,T,H,dqk] bf16, overwritten */
    /* Exactly one of these: bf16 or fp32, overwritten, or fp32 that is added to. */
    smelt_tensor dkv;      /* [B,S,dqk] bf16 */
    smelt_tensor dkv_fp32; /* [B,S,dqk] fp32 */
    smelt_tensor dkv_sum;  /* [B,S,dqk] fp32, added to */
    smelt_tensor dsink;    /* [H] fp32, overwritten; or NULL. With sink=1 alone */
    /* Query list, as in the forward pass: only these queries have and contribute gradients; dq of the
     * others is not touched. A query listed n times contributes n times to dkv and dsink; its dq is
     * then one of several results within the tolerance, unspecified which (deterministic operators
     * with 64 or more heads: all have the same bits). NULL: all queries. */
    smelt_const_tensor queries;     /* [query_capacity] int32 */
    smelt_const_tensor query_count; /* [1] int32, clamped to 0..query_capacity; NULL: all of it */
    int64_t query_capacity;         /* length of `queries` */
    /* Bucketed operators: the workspace of a forward call with the same indices, topk_length and
     * queries, whose partition is reused. NULL: the call sorts the queries itself. */
    const void *partition;
    size_t partition_bytes; /* its size */
    void *workspace;        /* at a multiple of 256 bytes; previous contents are not read */
    size_t workspace_bytes; /* at least the result of smelt_sparse_attn_backward_workspace */
    size_t workspace_limit; /* of deterministic operators: the maximum size of their partial rows,
                               in bytes, but at least those of one tile of queries; 0: 1.5 GiB.
                               A smaller limit takes longer */
} smelt_sparse_attn_grad_args;

#define SMELT_SPARSE_ATTN_GRAD_ARGS_INIT SMELT_INIT(smelt_sparse_attn_grad_args)

/* Bytes of workspace that a forward call with these arguments needs into *bytes: 0 for a plain
 * operator; with buckets about 12 bytes per query. It depends on batches, tokens, queries and
 * query_capacity; all integers must be legal, other tensors need not be set. More queries never need
 * less. Pure; any thread.
 * Errors: INVALID_ARGUMENT. */
SMELT_CALL smelt_status smelt_sparse_attn_forward_workspace(const smelt_operator *op,
                                                            const smelt_sparse_attn_args *args,
                                                            size_t *bytes);

/*
 * Launches the forward pass on `stream` (NULL: the default stream) and returns without waiting.
 * With buckets it launches several kernels, which overlap; later work of the stream waits for all.
 * Allocates nothing, takes no lock, does not synchronise; may be captured in a CUDA graph (the
 * arguments are copied at the call; the memory they point to is read at each replay). Makes the
 * operator's CUDA context current for the call if this thread has none or another, and restores
 * the previous one.
 *
 * Errors: INVALID_ARGUMENT naming the argument, before anything is launched; DRIVER for a refusal by
 * the driver (an unknown stream, for example): earlier kernels of the call may have been launched
 * then, and the outputs are undefined.
 */
SMELT_CALL smelt_status smelt_sparse_attn_forward(const smelt_operator *op,
                                                  const smelt_sparse_attn_args *args,
                                                  struct CUstream_st *stream);

/* Bytes of workspace that a backward call with these arguments needs into *bytes. All integers must be
 * legal. Of the tensors only `queries` and dq matter: if dq is set (data not NULL) and its strides
 * let the call keep its lists of keys in dq until dq is computed, the size is 4 bytes per slot smaller,
 * for a dq with these strides at any address; without dq the size is enough for every dq. More queries,
 * rows or slots never need less, except with deterministic=1, where the limit cuts the partial rows
 * at whole queries. Pure; any thread. Errors: INVALID_ARGUMENT. */
SMELT_CALL smelt_status smelt_sparse_attn_backward_workspace(
    const smelt_operator *op, const smelt_sparse_attn_grad_args *args, size_t *bytes);

/*
 * Launches the backward pass, several kernels, on `stream` (NULL: the default stream) and returns
 * without waiting; may be captured in a CUDA graph, whose replays read the memory anew. Without
 * queries dkv and dsink become zeros, and dkv_sum keeps its values. Everything else as
 * smelt_sparse_attn_forward. The operator must have been made with passes=backward or passes=both.
 */
SMELT_CALL smelt_status smelt_sparse_attn_backward(const smelt_operator *op,
                                                   const smelt_sparse_attn_grad_args *args,
                                                   struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
