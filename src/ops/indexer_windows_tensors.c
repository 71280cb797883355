/* See indexer_windows_tensors.h. */
#include "ops/indexer_windows_tensors.h"

#include "smelt/indexer_windows.h"
#include "smelt/kernels.h"

#define SYMBOL(name) SMELT__INDEXER_WINDOWS_##name
#define LIST(tensor, symbol, role_, optional_)                                                     \
    {                                                                                              \
        .name = #tensor, .field = offsetof(smelt_indexer_windows_args, tensor),                    \
        .element = SMELT__INT32, .role = (role_), .passes = SMELT_PASS_FORWARD, .dimensions = 1,   \
        .shape = {SYMBOL(symbol)}, .optional = (optional_)                                         \
    }

static const struct smelt__symbol symbols[SMELT__INDEXER_WINDOWS_SYMBOLS] = {
    [SYMBOL(T)] = {"T", "token"},
    [SYMBOL(D)] = {"D", "document"},
    [SYMBOL(BOUNDS)] = {"D+1", "bound"},
};

static const struct smelt__tensor_row rows[SMELT__INDEXER_WINDOWS_TENSORS] = {
    [SYMBOL(CU_SEQLENS)] = LIST(cu_seqlens, BOUNDS, SMELT__INPUT, 0),
    [SYMBOL(CU_SEQLENS_PADDED)] = LIST(cu_seqlens_padded, BOUNDS, SMELT__INPUT, 1),
    [SYMBOL(CU_SEQLENS_KEYS)] = LIST(cu_seqlens_keys, BOUNDS, SMELT__INPUT, 1),
    [SYMBOL(CAUSAL_OFFSET)] = LIST(causal_offset, D, SMELT__INPUT, 1),
    [SYMBOL(QUERY_INDICES)] = LIST(query_indices, T, SMELT__INPUT, 1),
    [SYMBOL(BEGIN)] = LIST(window_begin, T, SMELT__OUTPUT, 0),
    [SYMBOL(END)] = LIST(window_end, T, SMELT__OUTPUT, 0),
};

const struct smelt__tensor_table smelt__indexer_windows_tensors = {
    .symbols = symbols,
    .symbol_count = SMELT__INDEXER_WINDOWS_SYMBOLS,
    .rows = rows,
    .count = SMELT__INDEXER_WINDOWS_TENSORS,
    .args_bytes = sizeof(smelt_indexer_windows_args),
};
