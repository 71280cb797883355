/*
 * smelt: attention's probabilities at the selected slots, summed over the heads: what the lightning
 * indexer is trained to predict. They are computed again from what sparse attention's forward pass
 * had and gave; nothing of the size T x S is needed.
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
 * Slots keep their places, and a row named twice has its probability in both. lse is natural and
 * without the sink, as the forward pass gives it; sums over the heads of other ranks are the
 * caller's to add. The mathematics: DeepSeek-V3.2-Exp (the indexer's training).
 *
 * fp32 accumulation, and nothing is rounded to bf16. A slot's bits depend on its query, its row and
 * the operator's variant alone: not on its place, the other slots, T, B, neighbours or the run.
 * Where a query has a valid slot and lse is not finite, its target means nothing.
 */
#ifndef SMELT_SPARSE_SCORES_H
#define SMELT_SPARSE_SCORES_H

#include <stddef.h>
#include <stdint.h>

#include "smelt/context.h"
#include "smelt/kernels.h"
#include "smelt/status.h"
#include "smelt/struct.h"
#include "smelt/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* One configured operator: its kernel compiled and loaded. Thread-safe but for destruction. */
typedef struct smelt_sparse_scores smelt_sparse_scores;

typedef struct smelt_sparse_scores_spec {
    size_t size;       /* sizeof, set by SMELT_SPARSE_SCORES_SPEC_INIT */
    int heads;         /* H: 1..128, or a multiple of 64 up to 1024 */
    int dqk;           /* width of a query and of a KV row: dv or dv + 64 */
    int dv;            /* width of a value, as attention has it: 64, 128, 256 or 512 */
    int topk;          /* the most slots of a query, 1..1048576 */
    int sink;          /* 1: p's denominator holds a learnt logit per head */
    int reserved;      /* 0 */
    const char *knobs; /* plan overrides, "variant=mma", or NULL */
} smelt_sparse_scores_spec;

#define SMELT_SPARSE_SCORES_SPEC_INIT SMELT_INIT(smelt_sparse_scores_spec)

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h says what strides mean. q and kv start
 * at multiples of 16 bytes and their strides are multiples of 8 elements. target must not overlap
 * what is read.
 */
typedef struct smelt_sparse_scores_args {
    size_t size;                    /* sizeof, set by SMELT_SPARSE_SCORES_ARGS_INIT */
    int64_t batches;                /* B; 0 counts as 1: an empty call is one without tokens */
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
    /* Query list: compute only these, each named once. queries[i] = b * T + t; entries outside
     * [0, B*T) are skipped; the target of queries not listed stays untouched. A query listed
     * several times is computed as often: with the same bits where a thread block takes all heads
     * at once (variant sm90; mma with up to 16 heads, with more if BLOCK_HEADS of `smelt emit` says
     * so); else its own target, and no other, means nothing. NULL: all queries. */
    smelt_const_tensor queries;     /* [query_capacity] int32 */
    smelt_const_tensor query_count; /* [1] int32, clamped to 0..query_capacity; NULL: all of it */
    int64_t query_capacity;         /* length of `queries` */
} smelt_sparse_scores_args;

#define SMELT_SPARSE_SCORES_ARGS_INIT SMELT_INIT(smelt_sparse_scores_args)

/* The spec's canonical text, freed by smelt_free; and the spec of a text (knobs are not kept when
 * `knobs` is NULL; else *knobs receives them as a string freed by smelt_free, and spec->knobs
 * points to it). Pure; any thread. Errors: INVALID_ARGUMENT, INVALID_SPEC, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_sparse_scores_spec_print(const smelt_sparse_scores_spec *spec,
                                                      char **text);
SMELT_API smelt_status smelt_sparse_scores_spec_parse(const char *text,
                                                      smelt_sparse_scores_spec *spec, char **knobs);

/*
 * Whether create would find a plan for the spec's kernel on the context's architecture. Compiles
 * nothing, needs no GPU. *why (may be NULL) receives "" or the reason, a string of this thread
 * valid until its next failing call. Returns OK, INVALID_ARGUMENT, INVALID_SPEC or UNSUPPORTED.
 */
SMELT_API smelt_status smelt_sparse_scores_supported(const smelt_context *context,
                                                     const smelt_sparse_scores_spec *spec,
                                                     const char **why);

/*
 * Compiles, or takes from the cache, and loads the kernel of the spec, which is the same for every
 * topk, with a sink and without. The context must outlive the operator. Errors: INVALID_ARGUMENT,
 * INVALID_SPEC, UNSUPPORTED, NO_DEVICE (a compile-only context), NO_COMPILER, COMPILE, DRIVER,
 * OUT_OF_MEMORY. *scores is NULL on failure.
 */
SMELT_API smelt_status smelt_sparse_scores_create(smelt_sparse_scores **scores,
                                                  smelt_context *context,
                                                  const smelt_sparse_scores_spec *spec);

/* Sets *scores to NULL, which it may be. Launches of the operator should be complete. */
SMELT_API void smelt_sparse_scores_destroy(smelt_sparse_scores **scores);

/* The figures of the kernel into *info, whose `size` the caller has set. `index`: 0 alone. Errors:
 * INVALID_ARGUMENT, also for another index. */
SMELT_API smelt_status smelt_sparse_scores_get_kernel_info(const smelt_sparse_scores *scores,
                                                           int index, smelt_kernel_info *info);

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph (the arguments are copied at
 * the call; the memory they point to is read at each replay). Makes the operator's CUDA context
 * current for the call if this thread has none or another, and restores what was there.
 *
 * Errors, before anything is launched: INVALID_ARGUMENT naming the argument; DRIVER for what the
 * driver refuses (an unknown stream, for one).
 */
SMELT_API smelt_status smelt_sparse_scores_forward(const smelt_sparse_scores *scores,
                                                   const smelt_sparse_scores_args *args,
                                                   struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
