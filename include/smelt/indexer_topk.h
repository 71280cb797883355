/*
 * smelt: the lightning indexer's selection: the topk keys with the largest logits in each query's
 * window, without the T x S matrix in memory.
 *
 * Shapes are in C order, last index fastest:
 *   T query tokens, S keys, H indexer heads, D their width.
 *   q [T,H,D]    k [S,D]    weights [T,H] fp32 or bf16    indices [T,topk] int32    values [T,topk] fp32
 *   lengths [T] int32
 *
 * The result is that of smelt/indexer_logits.h followed by smelt/topk_select.h, bit for bit: exactly
 * min(topk, keys of the window) keys per query, those with the largest logits; ties go to the lowest
 * index. -inf and NaN inside the window are legal and the lowest logits. The remaining slots are -1
 * (values: -inf). The result does not depend on T, S, the workspace or the number of
 * multiprocessors.
 *
 * The call processes queries in chunks whose logits fit the workspace; the host does not wait.
 *
 * With groups=G each group of heads selects for itself: indices are [T,G,topk], values likewise,
 * lengths [T,G]. With block_max=r the entries that are selected are blocks of r keys, by the largest
 * logit among the block's keys inside the window: indices are block numbers. pinned, expand and tail
 * are as in smelt/topk_select.h, where a window of keys has the entries floor(window_begin / r) ..
 * ceil(window_end / r) - 1.
 *
 * With candidate_block=r only the keys of listed blocks of r keys are scored and selected from, at a
 * cost in proportion to C: candidates[t,c] is a block's number, and the selected set is that of a
 * call of all keys in which all other keys are outside the windows. Numbers that no block has
 * (such as -1) are skipped. The numbers of blocks should ascend, as in published: otherwise lists are in the
 * order of the candidates, ties go to the earlier one, and a block that is listed twice counts twice; with a
 * limit a list may then have -1 between its rows, and its length is undefined. With block_max, at most
 * candidate_block, entries are the blocks of block_max keys in the listed blocks. Not with pinned or
 * publish.
 *
 * With publish=p the call also selects, from the same logits, the min(p, blocks of the window) blocks
 * of publish_block keys with the largest logits, of which the last publish_pinned ones of the window
 * are selected in any case: published [T,p] (with groups [T,G,p]) holds their numbers, ascending,
 * then -1, for every query.
 *
 * Spec: indexer_topk:heads=64,dim=128,dtype=fp8,topk=2048; keys:
 *   heads  H: 1..128
 *   dim    D: 32, 64 or 128
 *   dtype  of q and k: bf16, or fp8 (e4m3) from compute capability 8.9 on
 *   activation, weights, weights_dtype, groups, block_max, candidate_block: as in smelt/indexer_logits.h
 *   topk   1..16384; above 4096 it depends on the GPU's shared memory
 *   order  of a row: index (the default): ascending; score: by descending score
 *   pinned, expand, tail: as in smelt/topk_select.h
 *   publish         p: 0 (the default) to 16384
 *   publish_block   1 (the default), 2, 4 .. 128; at least block_max
 *   publish_pinned  0 (the default) to p
 *   logits          fp32 (the default) or bf16: what the logits are rounded to before the selection, to
 *                   nearest, ties to even. Equal rounded logits are ties, and values are the rounded ones.
 *                   A logit of bf16 takes half of the workspace
 * In addition, knobs override the plan, "fwd.variant=mma"; `smelt list` prints them.
 */
#ifndef SMELT_INDEXER_TOPK_H
#define SMELT_INDEXER_TOPK_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* The default limit of a call's workspace, in bytes. */
#define SMELT_INDEXER_TOPK_WORKSPACE ((size_t)128000000)

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h explains strides. q and k start at
 * multiples of 16 bytes, and so do their rows. Outputs and workspace must not overlap anything else.
 */
typedef struct smelt_indexer_topk_args {
    size_t size;                     /* sizeof, set by SMELT_INDEXER_TOPK_ARGS_INIT */
    int64_t tokens;                  /* T, 0..2^31 - 1; 0 launches nothing */
    int64_t rows;                    /* S, 0..2^20 */
    int64_t width;                   /* slots of a row of indices; with expand=1 0 or topk */
    int64_t candidate_count;         /* C, with candidate_block; else 0 */
    int index_offset;                /* added to the indices of selected keys, modulo 2^32 */
    int free_multiprocessors;        /* left to other streams by the logits kernels, not by the
                                        selection kernels; 0: none */
    float scale;                     /* as in smelt/indexer_logits.h: without weights */
    int reserved;                    /* 0 */
    smelt_const_tensor q;            /* [T,H,D] bf16 or e4m3 */
    smelt_const_tensor k;            /* [S,D] likewise */
    smelt_const_tensor weights;      /* [T,H] fp32 or bf16, by the key weights_dtype;
                                        exactly when the spec has weights=1 */
    smelt_const_tensor k_scale;      /* [S] fp32, exactly when the spec has fp8 */
    smelt_const_tensor window_begin; /* [T] int32: the window's first key */
    smelt_const_tensor window_end;   /* [T] int32: its last key plus one */
    smelt_const_tensor offset;       /* [T] int32, optional: added to a query's indices, too */
    smelt_const_tensor limit;        /* [T] int32, optional: a query's number of rows, for
                                        expand; as in smelt/topk_select.h */
    smelt_const_tensor candidates;   /* [T,C] int32, exactly when the spec has candidate_block:
                                        numbers of blocks, ascending */
    smelt_tensor indices;            /* [T,topk] int32 */
    smelt_tensor values;             /* [T,topk] fp32, optional */
    smelt_tensor lengths;            /* [T] int32, optional: the valid slots of indices */
    smelt_tensor published;          /* [T,publish] int32, exactly when the spec has publish */
    /* Memory that the call may write until its work on the stream is done, at a multiple of 256
     * bytes. No call reads its previous contents. */
    void *workspace;
    size_t workspace_bytes; /* at least the result of smelt_indexer_topk_forward_workspace */
    size_t workspace_limit; /* the maximum of that result; 0: SMELT_INDEXER_TOPK_WORKSPACE */
    int64_t causal_limit;   /* above 0, the caller guarantees window_end[t] <= t + causal_limit for
                               each query t (0 to T - 1): 1 for causal windows with query t at the
                               position of key t. Early queries then need less memory, so that there
                               are fewer chunks. If the guarantee is broken, keys from
                               t + causal_limit on may or may not be selected. 0: any windows; to
                               2^31 - 1 */
} smelt_indexer_topk_args;

#define SMELT_INDEXER_TOPK_ARGS_INIT SMELT_INIT(smelt_indexer_topk_args)

/* Stores in *bytes the workspace that a call with these arguments needs, at most workspace_limit.
 * With a causal_limit and more than one chunk of queries the result is workspace_limit itself.
 * Tensors need not be set. Pure; any thread; takes constant time. Errors: INVALID_ARGUMENT, also for
 * a limit that is too small for one query's logits. */
SMELT_CALL smelt_status smelt_indexer_topk_forward_workspace(const smelt_operator *op,
                                                             const smelt_indexer_topk_args *args,
                                                             size_t *bytes);

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting: two to five kernels
 * for each chunk of queries, whose number follows from tokens, rows and the two limits. Allocates
 * nothing, takes no lock, does not synchronise; may be captured in a CUDA graph (the arguments are
 * copied at the call; the memory they point to is read at each replay). Makes the operator's CUDA
 * context current for the call if this thread has none or another, and restores the previous one.
 *
 * Errors: INVALID_ARGUMENT naming the argument, before anything is launched; DRIVER for a refusal by
 * the driver (an unknown stream, for example): earlier kernels of the call may have been launched
 * then, and the outputs are undefined.
 */
SMELT_CALL smelt_status smelt_indexer_topk_forward(const smelt_operator *op,
                                                   const smelt_indexer_topk_args *args,
                                                   struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
