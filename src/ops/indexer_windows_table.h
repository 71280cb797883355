/* The arguments of the operator indexer_windows as a table (args_table.h); smelt/indexer_windows.h has their meaning. */
#ifndef SMELT_OPS_INDEXER_WINDOWS_TABLE_H
#define SMELT_OPS_INDEXER_WINDOWS_TABLE_H

#include "ops/args_table.h"

/* Extents by number. */
enum smelt__indexer_windows_symbol {
    SMELT__INDEXER_WINDOWS_T,
    SMELT__INDEXER_WINDOWS_D,
    SMELT__INDEXER_WINDOWS_BOUNDS, /* D + 1 */
    SMELT__INDEXER_WINDOWS_SYMBOLS
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

extern const struct smelt__args_table smelt__indexer_windows_table;

#endif
