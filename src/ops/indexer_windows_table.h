/* The arguments of the operator indexer_windows as a table (args_table.h); smelt/indexer_windows.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_windows.h"

/* Extents by number. */
enum smelt__indexer_windows_symbol {
    SMELT__INDEXER_WINDOWS_T,
    SMELT__INDEXER_WINDOWS_D,
    SMELT__INDEXER_WINDOWS_BOUNDS, /* D + 1 */
};

/* Rows by number. */
enum smelt__indexer_windows_tensor {
    SMELT__INDEXER_WINDOWS_CU_SEQLENS,
    SMELT__INDEXER_WINDOWS_CU_SEQLENS_PADDED,
    SMELT__INDEXER_WINDOWS_CU_SEQLENS_KEYS,
    SMELT__INDEXER_WINDOWS_CAUSAL_OFFSET,
    SMELT__INDEXER_WINDOWS_QUERY_INDICES,
    SMELT__INDEXER_WINDOWS_BEGIN,
    SMELT__INDEXER_WINDOWS_END,
    SMELT__INDEXER_WINDOWS_TENSORS
};

#define OF(name) SMELT__INDEXER_WINDOWS_##name
#define ARGS smelt_indexer_windows_args

enum { SMELT__INDEXER_WINDOWS_MOST_DOCUMENTS = 1 << 30 };

static const struct smelt__symbol smelt__indexer_windows_symbols[] = {
    [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),
    [OF(D)] = SMELT__BY_ARGS("D", "document", documents),
    [OF(BOUNDS)] = {.letter = "D+1",
                    .word = "bound",
                    .field = offsetof(ARGS, documents),
                    .plus = 1},
};

static const struct smelt__scalar_row smelt__indexer_windows_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(documents, INT64, 0, SMELT__INDEXER_WINDOWS_MOST_DOCUMENTS)},
    {SMELT__SCALAR(ratio, INT, 0, INT32_MAX), .zero = 1},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

static const struct smelt__tensor_row smelt__indexer_windows_tensors[] = {
    [OF(CU_SEQLENS)] = {SMELT__TENSOR(cu_seqlens, INT32, INPUT, OF(BOUNDS))},
    [OF(CU_SEQLENS_PADDED)] = {SMELT__TENSOR(cu_seqlens_padded, INT32, INPUT, OF(BOUNDS)),
                               .optional = 1},
    [OF(CU_SEQLENS_KEYS)] = {SMELT__TENSOR(cu_seqlens_keys, INT32, INPUT, OF(BOUNDS)),
                             .optional = 1},
    [OF(CAUSAL_OFFSET)] = {SMELT__TENSOR(causal_offset, INT32, INPUT, OF(D)), .optional = 1},
    [OF(QUERY_INDICES)] = {SMELT__TENSOR(query_indices, INT32, INPUT, OF(T)), .optional = 1},
    [OF(BEGIN)] = {SMELT__TENSOR(window_begin, INT32, OUTPUT, OF(T))},
    [OF(END)] = {SMELT__TENSOR(window_end, INT32, OUTPUT, OF(T))},
};

static const struct smelt__args_table smelt__indexer_windows_table = {
    SMELT__ARGS("SMELT_INDEXER_WINDOWS_ARGS_INIT", window_end, smelt__indexer_windows_symbols,
                smelt__indexer_windows_scalars, smelt__indexer_windows_tensors),
};

#undef ARGS
#undef OF
