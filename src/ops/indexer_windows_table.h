/* The arguments of the operator indexer_windows as a table (args_table.h); smelt/indexer_windows.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_windows.h"

#define OF(name) SMELT__INDEXER_WINDOWS_##name
#define ARGS smelt_indexer_windows_args

enum { SMELT__INDEXER_WINDOWS_MOST_DOCUMENTS = 1 << 30 };

#define SYMBOLS(ROW)                                                                               \
    ROW(T, SMELT__BY_ARGS("T", "token", tokens))                                                   \
    ROW(D, SMELT__BY_ARGS("D", "document", documents))                                             \
    ROW(BOUNDS, .letter = "D+1", .word = "bound", .field = offsetof(ARGS, documents), .plus = 1)

enum smelt__indexer_windows_symbol { SYMBOLS(SMELT__NUMBER) };

static const struct smelt__scalar_row smelt__indexer_windows_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(documents, INT64, 0, SMELT__INDEXER_WINDOWS_MOST_DOCUMENTS)},
    {SMELT__SCALAR(ratio, INT, 0, INT32_MAX), .zero = 1},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

#define TENSORS(ROW, ...)                                                                          \
    ROW(CU_SEQLENS, SMELT__TENSOR(cu_seqlens, INT32, INPUT, OF(BOUNDS)))                           \
    ROW(CU_SEQLENS_PADDED, SMELT__TENSOR(cu_seqlens_padded, INT32, INPUT, OF(BOUNDS)),             \
        .optional = 1)                                                                             \
    ROW(CU_SEQLENS_KEYS, SMELT__TENSOR(cu_seqlens_keys, INT32, INPUT, OF(BOUNDS)), .optional = 1)  \
    ROW(CAUSAL_OFFSET, SMELT__TENSOR(causal_offset, INT32, INPUT, OF(D)), .optional = 1)           \
    ROW(QUERY_INDICES, SMELT__TENSOR(query_indices, INT32, INPUT, OF(T)), .optional = 1)           \
    ROW(BEGIN, SMELT__TENSOR(window_begin, INT32, OUTPUT, OF(T)))                                  \
    ROW(END, SMELT__TENSOR(window_end, INT32, OUTPUT, OF(T)))

enum smelt__indexer_windows_tensor { TENSORS(SMELT__NUMBER, ) };

static const struct smelt__args_table smelt__indexer_windows_table = {
    SMELT__ARGS("SMELT_INDEXER_WINDOWS_ARGS_INIT", window_end, SMELT__SYMBOLS,
                smelt__indexer_windows_scalars, SMELT__ROWS()),
};

#include "ops/args_table_end.h"
