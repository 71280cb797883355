/*
 * smelt: exact top-k of the rows of a matrix within windows, as the lightning indexer selects its
 * keys.
 *
 * Row t of logits [T,S] has the window [window_begin[t], window_end[t]), clipped to [0, S);
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
 * With groups=G the tensors are [T,G,S], [T,G,topk] and [T,G]: the G rows of a query share its
 * window, offset and limit. With pinned=p the last min(p, window) elements of a window are always
 * selected, and count among topk.
 *
 * With expand=r a selected element e stands for the rows e*r .. e*r + r - 1 of a KV table, and
 * indices [T,width] holds rows, ascending, of which those at or past limit[t] are left out. With
 * tail=1 the rows of the entry that the limit leaves incomplete follow: from the larger of
 * window_end[t] * r and the last multiple of r up to limit[t], up to limit[t]. offset[t] and
 * index_offset are added to rows. The rest is -1. width is at least topk*r, with tail
 * topk*r + r - 1. lengths counts the valid slots of indices, values are those of the elements,
 * [T,topk] as without expand.
 *
 * The result is exact for all data, and has the same bits in every run, on every GPU, for any T and
 * other rows. Windows of at most topk elements are not read unless values are requested or the order
 * is by score.
 *
 * Spec: topk_select:topk=2048; keys:
 *   topk    selected elements per row, 1..16384; above 4096 it depends on the GPU's shared memory
 *   order   of a row: index (the default): ascending; score: by descending score
 *   dtype   of logits: fp32 (the default) or bf16
 *   groups  G, 1..128; default 1
 *   pinned  p, 0..topk; default 0; not with order=score
 *   expand  r: 1 (the default), 2, 4 .. 128; above 1 not with order=score
 *   tail    1: rows after the last complete entry are appended; default 0; needs expand above 1
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
    int64_t rows;                    /* S, its columns (entries), 0..2^30; times r below 2^31 */
    int64_t width;                   /* slots of a row of indices; with expand=1 0 or topk */
    int index_offset;                /* added to selected indices; sums are taken modulo 2^32 */
    int reserved;                    /* 0 */
    smelt_const_tensor logits;       /* [T,S] fp32 or bf16; NULL if S is 0 */
    smelt_const_tensor window_begin; /* [T] int32, any values; NULL with window_end: 0 */
    smelt_const_tensor window_end;   /* [T] int32, any values; NULL with window_begin: S */
    smelt_const_tensor offset;       /* [T] int32, added to a row's indices; or NULL */
    smelt_const_tensor limit; /* [T] int32, any values, clipped to [0, S*r + r - 1]: a query's
                                        number of rows; or NULL: S*r. Only where expand is above 1,
                                        and required by tail */
    smelt_tensor indices;     /* [T,topk] int32, every element is written */
    smelt_tensor values;      /* [T,topk] fp32, likewise; or NULL */
    smelt_tensor lengths;     /* [T] int32; or NULL */
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
