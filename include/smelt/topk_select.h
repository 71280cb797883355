/*
 * smelt: exact top-k of the rows of a matrix within windows, as the lightning indexer selects its
 * keys.
 *
 * Row t of logits [T,S] fp32 has the window [window_begin[t], window_end[t]), clipped to [0, S);
 * an empty or inverted window has no elements. The min(topk, window) largest elements are selected;
 * ties go to the lowest index. -0 counts as +0 and NaN as -inf, which is legal and the lowest score.
 * Nothing outside a window is read.
 *
 *   indices [T,topk] int32   the selected elements' columns, plus offset[t] and index_offset;
 *                            the rest is -1
 *   values  [T,topk] fp32    their scores as compared; the rest is -inf
 *   lengths [T] int32        the number of selected elements
 *
 * A row is sorted by ascending column or, with order=score, by descending score, and by ascending
 * column where scores are equal.
 *
 * The result is exact for all data, and has the same bits in every run, on every GPU, for any T and
 * other rows. Windows of at most topk elements are not read unless values are requested or the order
 * is by score.
 *
 * Spec: topk_select:topk=2048; keys:
 *   topk   selected elements per row, 1..4096
 *   order  of a row: index (the default): ascending; score: by descending score
 * In addition, knobs override the plan, "threads=512"; `smelt list` prints them.
 */
#ifndef SMELT_TOPK_SELECT_H
#define SMELT_TOPK_SELECT_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h explains strides. Rows of the matrix may
 * start at any element; they are read fastest where they start at multiples of 16 bytes.
 *
 * Outputs (indices, values, lengths) and workspace must not overlap inputs or each other; overlaps
 * are refused.
 */
typedef struct smelt_topk_select_args {
    size_t size;                     /* sizeof, set by SMELT_TOPK_SELECT_ARGS_INIT */
    int64_t tokens;                  /* T, rows of the matrix, 0..2^31 - 1; 0 launches nothing */
    int64_t rows;                    /* S, its columns (rows of keys), 0..2^30 */
    int index_offset;                /* added to selected indices; sums are taken modulo 2^32 */
    int reserved;                    /* 0 */
    smelt_const_tensor logits;       /* [T,S] fp32; NULL if S is 0 */
    smelt_const_tensor window_begin; /* [T] int32, any values; NULL with window_end: 0 */
    smelt_const_tensor window_end;   /* [T] int32, any values; NULL with window_begin: S */
    smelt_const_tensor offset;       /* [T] int32, added to a row's indices; or NULL */
    smelt_tensor indices;            /* [T,topk] int32, every element is written */
    smelt_tensor values;             /* [T,topk] fp32, likewise; or NULL */
    smelt_tensor lengths;            /* [T] int32; or NULL */
    /* For few long rows: memory that the call may write until its work on the stream is done, at a
     * multiple of 256 bytes. Its contents before and after mean nothing. */
    void *workspace;
    size_t workspace_bytes; /* at least the result of smelt_topk_select_forward_workspace */
} smelt_topk_select_args;

#define SMELT_TOPK_SELECT_ARGS_INIT SMELT_INIT(smelt_topk_select_args)

/* Bytes of workspace that a call with these arguments needs on the operator's GPU into *bytes: 0
 * for many rows or short ones, else at most 64 MiB; it does not grow monotonically with the rows.
 * Tensors need not be set. Any thread. Errors: INVALID_ARGUMENT. */
SMELT_CALL smelt_status smelt_topk_select_forward_workspace(const smelt_operator *op,
                                                            const smelt_topk_select_args *args,
                                                            size_t *bytes);

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph. Graphs, the CUDA context
 * and errors: as smelt_sparse_attn_forward.
 */
SMELT_CALL smelt_status smelt_topk_select_forward(const smelt_operator *op,
                                                  const smelt_topk_select_args *args,
                                                  struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
