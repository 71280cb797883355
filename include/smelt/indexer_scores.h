/*
 * smelt: the lightning indexer's logits at slots that are already selected, for the indexer's loss
 * and its gradient, without a T x S matrix.
 *
 * Shapes are in C order, last index fastest:
 *   T query tokens, S keys, H indexer heads, D their width, `width`: slots of an index row.
 *   q [T,H,D] bf16   k [S,D] bf16   weights [T,H] fp32 or bf16   indices [T,width] int32
 *   topk_length [T,1] int32   logits [T,width] fp32
 *
 * Slot i of query t is valid when i < topk_length[t] (if given), 0 <= indices[t,i] < S and
 * indices[t,i] < limit[t] (if given). Any other slot is masked: no key is read for it. With
 * s = indices[t,i], at a valid slot
 *   logits[t,i] = sum_h weights[t,h] * max(0, <q[t,h,:], k[s,:]>)
 * and at a masked one -inf; with activation=none <q[t,h,:], k[s,:]> replaces max(0, ..). logits[t,i]
 * belongs to slot i; every element is written. A row selected twice has its logit twice.
 *
 * It is the value that smelt/indexer_logits.h has for that key: products and heads accumulate in fp32,
 * in a fixed order; -0 is written as +0, NaN as -inf, +inf stays. The two operators differ by
 * rounding. A logit's bits depend on its query, its key and the operator's variant only: not on T, S,
 * the slot, other rows or the run.
 *
 * Spec: indexer_scores:heads=64,dim=128,topk=2048; keys:
 *   heads  H: 1..128
 *   dim    D: 32, 64 or 128
 *   topk   the maximum number of entries of a query, 1..1048576
 *   activation  relu (the default), or none
 *   granularity  r, rows of an entry: 1 (default), 2, 4, 8, 16, 32, 64 or 128. An entry e names the rows
 *          e * r .. e * r + r - 1, those at or past S masked; logits is [T, width * r], logit i * r + j
 *          of row indices[t,i] * r + j. width and topk_length count entries
 *   block_max  b: 1 (the default), 2, 4 .. granularity: of each b consecutive slots of an entry only the
 *          largest logit is written; keys has its row, of equal logits the lowest, -1 where the largest
 *          is -inf. indexer_bwd takes keys as indices
 *   weights_dtype  elements of weights: fp32 (the default) or bf16
 * In addition, knobs override the plan, "variant=mma"; `smelt list` prints them.
 */
#ifndef SMELT_INDEXER_SCORES_H
#define SMELT_INDEXER_SCORES_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h explains strides. q and k start at
 * multiples of 16 bytes, and so do their rows. logits must not overlap an input; its rows may be
 * more than `width` elements apart, and the gaps between them are not touched.
 */
typedef struct smelt_indexer_scores_args {
    size_t size;                    /* sizeof, set by SMELT_INDEXER_SCORES_ARGS_INIT */
    int64_t tokens;                 /* T, 0..2^31 - 1; 0 launches nothing */
    int64_t rows;                   /* S, 0..2^31 - 1; 0: every slot is masked */
    int64_t width;                  /* slots of a query, 1..topk */
    int free_multiprocessors;       /* left to other streams while it runs; 0: none */
    int reserved;                   /* 0 */
    smelt_const_tensor q;           /* [T,H,D] bf16 */
    smelt_const_tensor k;           /* [S,D] bf16, row stride below 2^31 */
    smelt_const_tensor weights;     /* [T,H] fp32 or bf16, by the key weights_dtype */
    smelt_const_tensor indices;     /* [T,width] int32 */
    smelt_const_tensor topk_length; /* [T,1] int32: slots that count; NULL: all. Below 0 is 0 */
    smelt_tensor logits;      /* [T,width] fp32; [T, width * granularity / block_max] above 1 */
    smelt_const_tensor limit; /* [T,1] int32, optional: rows from it on are masked */
    smelt_tensor keys;        /* [T,width] int32, like logits; optional, with block_max above 1 */
} smelt_indexer_scores_args;

#define SMELT_INDEXER_SCORES_ARGS_INIT SMELT_INIT(smelt_indexer_scores_args)

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph (the arguments are copied at
 * the call; the memory they point to is read at each replay). Makes the operator's CUDA context
 * current for the call if this thread has none or another, and restores what was there.
 *
 * Errors, before anything is launched: INVALID_ARGUMENT naming the argument; DRIVER for what the
 * driver refuses (an unknown stream, for one).
 */
SMELT_CALL smelt_status smelt_indexer_scores_forward(const smelt_operator *op,
                                                     const smelt_indexer_scores_args *args,
                                                     struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
