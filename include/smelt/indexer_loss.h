/*
 * smelt: the indexer's training loss and its gradient, at the selected slots.
 *
 * The loss is, per query, the Kullback-Leibler divergence of the indexer's softmax from attention's
 * probabilities. Over the valid slots i of query t, with target [T,width] (attention's probabilities,
 * summed over heads and ranks) and logits [T,width] (the indexer's):
 *
 *   p[i]      = target[t,i] / sum_j target[t,j]
 *   q[i]      = exp(logits[t,i]) / sum_j exp(logits[t,j])
 *   w[t]      = query_weight * weight[t]
 *   losses[t] = w[t] * sum_i p[i] * (ln p[i] - ln q[i])    (0 ln 0 = 0)
 *   loss      = sum_t losses[t]
 *   grad[t,i] = grad_loss * w[t] * (q[i] - p[i])           (with respect to the logits)
 * and grad is 0 at masked slots.
 *
 * Slot i of query t is valid when i < topk_length[t] (if given) and 0 <= indices[t,i] < S. Targets
 * and logits of masked slots are ignored. The target has no gradient.
 *
 * Exceptional values:
 *   - a target that is negative or NaN counts as 0;
 *   - a query has the loss 0 and the gradient 0 if it has no valid slot, if its targets' sum is below
 *     2^-126 or infinite, or if w[t] is 0, NaN or infinite. Negative weights are legal;
 *   - a NaN logit counts as -inf, as in all of the indexer's operators, and +inf as the largest
 *     finite number. A valid slot with the logit -inf has q = 0: if its target is above 0, the loss is
 *     infinite (with w[t]'s sign) and the gradient finite. If all valid slots have -inf, q is 0 at
 *     each;
 *   - so losses[t] is never NaN, and neither is a gradient if grad_loss is finite; `loss` is NaN only
 *     if it adds +inf and -inf. Where q equals p the gradient is 0 even if grad_loss is not finite.
 *
 * The order of every sum follows from width, topk and T: the same arguments give the same bits in
 * every run and on any number of multiprocessors. A query's losses[t] and grad[t,:] do not depend on
 * other queries.
 *
 * Accuracy: losses[t] within 1e-5 of |w[t]| * (1 + sum_i p[i] * |ln p[i] - ln q[i]|); a slot's
 * gradient within 2e-5 of |grad_loss * w[t]| * (q[i] + p[i]).
 *
 * Training: autograd knows grad_loss only after the loss. The gradient is linear in it, so one call
 * still computes both: call with grad_loss NULL (1), and multiply the final gradients. If grad_loss is
 * in device memory before the call (a loss scale), pass it.
 *
 * Spec: indexer_loss:topk=2048; keys:
 *   topk  the maximum number of slots of a query, 1..1048576
 * In addition, knobs override the plan, "vectors=2"; `smelt list` prints them.
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
 * Arguments. Every pointer is device memory; smelt/tensor.h explains strides. Rows may start at any
 * element; they are read fastest if the rows of all four matrices start at multiples of 16 bytes and
 * width is a multiple of 4.
 *
 * Outputs (loss, losses, grad) and workspace must not overlap inputs or each other; overlaps are
 * refused.
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
    smelt_const_tensor topk_length; /* [T,1] int32: slots that count; NULL: all. Below 0 is 0 */
    smelt_const_tensor weight;      /* [T] fp32; or NULL: 1 */
    smelt_const_tensor grad_loss;   /* [1] fp32; or NULL: 1 */
    smelt_tensor loss;              /* [1] fp32 */
    smelt_tensor losses;            /* [T] fp32; or NULL */
    smelt_tensor grad;              /* [T,width] fp32, every element is written; or NULL: the loss
                                       alone */
    /* Memory that the call may write until its work on the stream is done, at a multiple of 256
     * bytes. No call reads its previous contents. */
    void *workspace;
    size_t workspace_bytes; /* at least the result of smelt_indexer_loss_forward_workspace */
} smelt_indexer_loss_args;

#define SMELT_INDEXER_LOSS_ARGS_INIT SMELT_INIT(smelt_indexer_loss_args)

/* Bytes of workspace that a call with these arguments needs into *bytes: 4 * T, or 0 if `losses` is
 * given, which then serves. All integers must be legal; other tensors need not be set. Any
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
