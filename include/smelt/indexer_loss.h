/*
 * smelt: the indexer's loss and its gradient, at the slots that were selected.
 *
 * The indexer learns to rank keys as attention weighs them: per query, the Kullback-Leibler
 * divergence of its softmax from attention's probabilities. Over the valid slots i of query t, with
 * target [T,width] (attention's probabilities, added up over heads and ranks) and logits [T,width]
 * (the indexer's):
 *
 *   p[i]      = target[t,i] / sum_j target[t,j]
 *   q[i]      = exp(logits[t,i]) / sum_j exp(logits[t,j])
 *   w[t]      = query_weight * weight[t]
 *   losses[t] = w[t] * sum_i p[i] * (ln p[i] - ln q[i])    (0 ln 0 = 0)
 *   loss      = sum_t losses[t]
 *   grad[t,i] = grad_loss * w[t] * (q[i] - p[i])           (the gradient by the logits)
 * and grad is 0 at masked slots.
 *
 * Slot i of query t is valid when i < topk_length[t] (if given) and 0 <= indices[t,i] < S, whatever
 * stands in target and logits of the others. The target takes no gradient.
 *
 * What is no number in the sense of this, and what becomes of it:
 *   - a target that is negative or NaN counts as 0;
 *   - a query without a valid slot, or whose targets' sum is 0, below 2^-126 or infinite, has the
 *     loss 0 and the gradient 0; so has one whose w[t] is 0, NaN or infinite. Negative weights are
 *     weights like any other;
 *   - a logit that is NaN counts as -inf, as in all of the indexer's operators, and +inf as the
 *     largest finite number. A valid slot with the logit -inf has q = 0: with a target above 0 the
 *     loss is infinite (of w[t]'s sign), since no q of such a slot explains it, and the gradient
 *     the finite number above. Where all valid slots have it, q is 0 in each of them;
 *   - so neither losses nor, with a finite grad_loss, gradients are ever NaN; the loss is where
 *     queries with +inf and with -inf meet. Where q and p are equal the gradient is 0 also if
 *     grad_loss is not finite.
 *
 * Every sum is taken in an order that width, topk and T alone fix: the same arguments give the same
 * bits in every run and on any number of multiprocessors. A query's losses[t] and grad[t,:] do not
 * depend on the others.
 *
 * Accuracy: losses[t] within 1e-5 of |w[t]| * (1 + sum_i p[i] * |ln p[i] - ln q[i]|); a slot's
 * gradient within 2e-5 of |grad_loss * w[t]| * (q[i] + p[i]).
 *
 * Training: the gradient by the loss is known, in general, only after the loss. The gradient is
 * linear in it, so that loss and gradient still come from one call, without the host looking at a
 * number: call with grad_loss NULL (1), and multiply what the gradient leads to. A trainer that
 * scales its loss by a factor it keeps in device memory gives that as grad_loss, and has nothing
 * left to do.
 *
 * Spec: indexer_loss:topk=2048; keys:
 *   topk  the most slots of a query, 1..1048576
 * Beside them knobs override the plan, "vectors=2"; `smelt list` prints them.
 */
#ifndef SMELT_INDEXER_LOSS_H
#define SMELT_INDEXER_LOSS_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h says what strides mean. Rows may start
 * at any element; they are read fastest where all four matrices' start at multiples of 16 bytes and
 * width is a multiple of 4.
 *
 * What a call writes (loss, losses, grad, workspace) must not overlap what it reads, nor each
 * other; overlaps are refused.
 */
typedef struct smelt_indexer_loss_args {
    size_t size;              /* sizeof, set by SMELT_INDEXER_LOSS_ARGS_INIT */
    int64_t tokens;           /* T, 0..2^31 - 1; with 0 the loss is 0 */
    int64_t rows;             /* S, 0..2^31 - 1: keys */
    int64_t width;            /* slots of a query, 1..topk: those of logits, target and indices */
    float query_weight;       /* multiplies every query's weight: 1, or 1 / T for a mean; finite and
                                 not 0 */
    int free_multiprocessors; /* left to other streams while it runs; 0: none */
    smelt_const_tensor logits;      /* [T,width] fp32 */
    smelt_const_tensor target;      /* [T,width] fp32, the same width */
    smelt_const_tensor indices;     /* [T,width] int32 */
    smelt_const_tensor topk_length; /* [T,1] int32: slots to look at; NULL: all. Below 0 is 0 */
    smelt_const_tensor weight;      /* [T] fp32; or NULL: 1 */
    smelt_const_tensor grad_loss;   /* [1] fp32; or NULL: 1 */
    smelt_tensor loss;              /* [1] fp32 */
    smelt_tensor losses;            /* [T] fp32; or NULL */
    smelt_tensor grad;              /* [T,width] fp32, every element is written; or NULL: the loss
                                       alone */
    /* Memory that the call may write until its work on the stream is done, at a multiple of 256
     * bytes. Its contents before and after mean nothing. */
    void *workspace;
    size_t workspace_bytes; /* at least what smelt_indexer_loss_forward_workspace says */
} smelt_indexer_loss_args;

#define SMELT_INDEXER_LOSS_ARGS_INIT SMELT_INIT(smelt_indexer_loss_args)

/* Bytes of workspace that a call with these arguments needs into *bytes: 4 * T, or 0 where losses
 * are given, which it then uses. All integers must be legal; other tensors need not be set. Any
 * thread. Errors: INVALID_ARGUMENT. */
SMELT_CALL smelt_status smelt_indexer_loss_forward_workspace(const smelt_operator *op,
                                                             const smelt_indexer_loss_args *args,
                                                             size_t *bytes);

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph. Graphs, the CUDA context
 * and errors: as smelt_sparse_attn_forward.
 */
SMELT_CALL smelt_status smelt_indexer_loss_forward(const smelt_operator *op,
                                                   const smelt_indexer_loss_args *args,
                                                   struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
