/* See indexer_windows_table.h. */
#include "ops/indexer_windows_table.h"

#include "smelt/indexer_windows.h"

#define ARGS smelt_indexer_windows_args
#define NUMBER(name) SMELT__INDEXER_WINDOWS_##name

enum { MOST_DOCUMENTS = 1 << 30 };

enum { T, D, BOUNDS }; /* enum smelt__indexer_windows_symbol */

static const struct smelt__symbol symbols[] = {
    [T] = SMELT__BY_ARGS("T", "token", tokens),
    [D] = SMELT__BY_ARGS("D", "document", documents),
    [BOUNDS] = {.letter = "D+1", .word = "bound", .field = offsetof(ARGS, documents), .plus = 1},
};

static const struct smelt__scalar_row scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(documents, INT64, 0, MOST_DOCUMENTS)},
    {SMELT__SCALAR(ratio, INT, 0, INT32_MAX), .zero = 1},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

static const struct smelt__tensor_row rows[] = {
    [NUMBER(CU_SEQLENS)] = {SMELT__TENSOR(cu_seqlens, INT32, INPUT, BOUNDS)},
    [NUMBER(CU_SEQLENS_PADDED)] = {SMELT__TENSOR(cu_seqlens_padded, INT32, INPUT, BOUNDS),
                                   .optional = 1},
    [NUMBER(CU_SEQLENS_KEYS)] = {SMELT__TENSOR(cu_seqlens_keys, INT32, INPUT, BOUNDS),
                                 .optional = 1},
    [NUMBER(CAUSAL_OFFSET)] = {SMELT__TENSOR(causal_offset, INT32, INPUT, D), .optional = 1},
    [NUMBER(QUERY_INDICES)] = {SMELT__TENSOR(query_indices, INT32, INPUT, T), .optional = 1},
    [NUMBER(BEGIN)] = {SMELT__TENSOR(window_begin, INT32, OUTPUT, T)},
    [NUMBER(END)] = {SMELT__TENSOR(window_end, INT32, OUTPUT, T)},
};

const struct smelt__args_table smelt__indexer_windows_table = {
    SMELT__ARGS("SMELT_INDEXER_WINDOWS_ARGS_INIT", window_end, symbols, scalars, rows),
};
