/*
 * smelt: exact top-k of the rows of a matrix within windows, as the lightning indexer selects its
 * keys.
 *
 * Row t of logits [T,S] fp32 has the window [window_begin[t], window_end[t]), clipped to [0, S);
 * one that is empty or ends before it begins has no elements. min(topk, window) elements are
 * selected: the largest, of equal ones those of the lowest index. -0 counts as +0 and NaN as -inf,
 * which is legal and the lowest of all. Nothing outside a window is read.
 *
 *   indices [T,topk] int32   the selected elements' columns, plus offset[t] and index_offset; -1
 *                            in the places that are left
 *   values  [T,topk] fp32    their scores as they were compared; -inf in the places that are left
 *   lengths [T] int32        how many were selected
 *
 * Places are in ascending order of columns or, with order=score, of descending score, and of
 * ascending columns where scores are equal.
 *
 * The result is exact whatever the data, and has the same bits in every run, whatever T, a row's
 * neighbours or the GPU. Windows of at most topk elements are not read unless values are asked for
 * or the order is by score.
 */
#ifndef SMELT_TOPK_SELECT_H
#define SMELT_TOPK_SELECT_H

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

/* One configured operator: its kernels compiled and loaded. Thread-safe but for destruction. */
typedef struct smelt_topk_select smelt_topk_select;

/* In which order a row's places are. */
enum smelt_topk_order { SMELT_TOPK_BY_INDEX = 0, SMELT_TOPK_BY_SCORE = 1 };

typedef struct smelt_topk_select_spec {
    size_t size;       /* sizeof, set by SMELT_TOPK_SELECT_SPEC_INIT */
    int topk;          /* elements that are selected of a row, 1..4096 */
    int order;         /* of enum smelt_topk_order */
    const char *knobs; /* plan overrides, or NULL */
} smelt_topk_select_spec;

#define SMELT_TOPK_SELECT_SPEC_INIT SMELT_INIT(smelt_topk_select_spec)

/*
 * Arguments. Every pointer is device memory; smelt/tensor.h says what strides mean. Rows of the
 * matrix may start at any element; they are read fastest where they start at multiples of 16 bytes.
 *
 * What a call writes (indices, values, lengths, workspace) must not overlap what it reads, nor each
 * other; overlaps are refused.
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
    size_t workspace_bytes; /* at least what smelt_topk_select_forward_workspace says */
} smelt_topk_select_args;

#define SMELT_TOPK_SELECT_ARGS_INIT SMELT_INIT(smelt_topk_select_args)

/* The spec's canonical text, freed by smelt_free; and back, into a spec made by
 * SMELT_TOPK_SELECT_SPEC_INIT (knobs: NULL, or receives the spec's, freed by smelt_free). Pure; any
 * thread. Errors: INVALID_ARGUMENT, INVALID_SPEC, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_topk_select_spec_print(const smelt_topk_select_spec *spec,
                                                    char **text);
SMELT_API smelt_status smelt_topk_select_spec_parse(const char *text, smelt_topk_select_spec *spec,
                                                    char **knobs);

/* Whether create would find a plan for every kernel; see smelt_sparse_attn_supported. */
SMELT_API smelt_status smelt_topk_select_supported(const smelt_context *context,
                                                   const smelt_topk_select_spec *spec,
                                                   const char **why);

/* Compiles, or takes from the cache, and loads the kernels. The context must outlive the operator.
 * Errors: as smelt_sparse_attn_create. *select is NULL on failure. */
SMELT_API smelt_status smelt_topk_select_create(smelt_topk_select **select, smelt_context *context,
                                                const smelt_topk_select_spec *spec);

/* Sets *select to NULL, which it may be. Launches of the operator should be complete. */
SMELT_API void smelt_topk_select_destroy(smelt_topk_select **select);

/* The figures of one of the kernels into *info, whose `size` the caller has set. `index`: 0 the
 * kernel of many rows, 1 and 2 those of few. Errors: INVALID_ARGUMENT, also for another index. */
SMELT_API smelt_status smelt_topk_select_get_kernel_info(const smelt_topk_select *select, int index,
                                                         smelt_kernel_info *info);

/* Bytes of workspace that a call with these arguments needs on the operator's GPU into *bytes: 0
 * for many rows or short ones, else at most 64 MiB, and more or less for more rows. Of *args,
 * tokens and rows count: no other field need be set. Any thread. Errors: INVALID_ARGUMENT. */
SMELT_API smelt_status smelt_topk_select_forward_workspace(const smelt_topk_select *select,
                                                           const smelt_topk_select_args *args,
                                                           size_t *bytes);

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph. Graphs, the CUDA context
 * and errors: as smelt_sparse_attn_forward.
 */
SMELT_API smelt_status smelt_topk_select_forward(const smelt_topk_select *select,
                                                 const smelt_topk_select_args *args,
                                                 struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
