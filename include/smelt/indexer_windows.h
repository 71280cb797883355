/*
 * smelt: windows of the lightning indexer: computes on the device, from the arrays that describe a
 * trainer's batch, the range of keys [window_begin, window_end) from which the indexer may select for
 * each query. The operators indexer_logits, topk_select and indexer_topk take the windows.
 *
 * D documents are packed: rows cu_seqlens[d] .. cu_seqlens[d+1] - 1 are document d's. With
 * cu_seqlens_padded (context parallelism pads every document to a multiple of the ranks) document d
 * has the rows from cu_seqlens_padded[d] to cu_seqlens_padded[d+1] - 1: first its
 * cu_seqlens[d+1] - cu_seqlens[d] tokens, then padding. Query t is at row query_indices[t] (a shard
 * of a context parallel batch, in any order) or, without query_indices, at row t.
 *
 * A query at position p of its document (from 0), with c = causal_offset[d] (0 without), sees
 *   its document's tokens 0 .. p + c,
 *   so the first (p + c + 1) / ratio of its document's keys      (ratio tokens share a key: V4),
 * of which there are (document's length) / ratio from row (document's first) on; or, with
 * cu_seqlens_keys, those from cu_seqlens_keys[d] to cu_seqlens_keys[d+1] - 1. Quotients round down.
 *
 * A padding query, one whose row is in no document, and one that sees no key have the window [0, 0).
 * Windows are clipped to [0, S).
 *
 * Spec: indexer_windows; it has no keys.
 */
#ifndef SMELT_INDEXER_WINDOWS_H
#define SMELT_INDEXER_WINDOWS_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/*
 * Arguments. Only the kernel reads the arrays, which are in device memory, so any value is legal: an
 * entry of the array that has the queries' rows (cu_seqlens_padded if given, else cu_seqlens) counts
 * as the maximum of 0, itself and the entries before it; a negative length counts as 0.
 */
typedef struct smelt_indexer_windows_args {
    size_t size;                          /* sizeof, set by SMELT_INDEXER_WINDOWS_ARGS_INIT */
    int64_t tokens;                       /* T queries, 0..2^31 - 1 */
    int64_t rows;                         /* S keys, 0..2^31 - 1 */
    int64_t documents;                    /* D, 0..2^30 */
    int ratio;                            /* tokens that share a key, 0 (as 1)..2^31 - 1 */
    int reserved;                         /* 0 */
    smelt_const_tensor cu_seqlens;        /* [D+1] int32 */
    smelt_const_tensor cu_seqlens_padded; /* [D+1] int32, optional */
    smelt_const_tensor cu_seqlens_keys;   /* [D+1] int32, optional */
    smelt_const_tensor causal_offset;     /* [D] int32, optional: tokens before the document's
                                             first query (a prefix; a rank's part of a document) */
    smelt_const_tensor query_indices;     /* [T] int32, optional */
    smelt_tensor window_begin;            /* [T] int32 */
    smelt_tensor window_end;              /* [T] int32 */
} smelt_indexer_windows_args;

#define SMELT_INDEXER_WINDOWS_ARGS_INIT SMELT_INIT(smelt_indexer_windows_args)

/*
 * Launches on `stream` (NULL: the default stream) and returns without waiting. Allocates nothing,
 * takes no lock, does not synchronise; may be captured in a CUDA graph. Graphs, the CUDA context
 * and errors: as smelt_sparse_attn_forward.
 */
SMELT_CALL smelt_status smelt_indexer_windows_forward(const smelt_operator *op,
                                                      const smelt_indexer_windows_args *args,
                                                      struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
