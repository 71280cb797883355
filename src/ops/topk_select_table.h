/* The arguments of the operator topk_select as a table (args_table.h); smelt/topk_select.h has their meaning. */
#ifndef SMELT_OPS_TOPK_SELECT_TABLE_H
#define SMELT_OPS_TOPK_SELECT_TABLE_H

#include "ops/args_table.h"

/* Extents by number. */
enum smelt__topk_select_symbol {
    SMELT__TOPK_SELECT_T,
    SMELT__TOPK_SELECT_S,
    SMELT__TOPK_SELECT_K, /* topk */
    SMELT__TOPK_SELECT_SYMBOLS
};

/* Rows by number. */
enum smelt__topk_select_tensor {
    SMELT__TOPK_SELECT_LOGITS,
    SMELT__TOPK_SELECT_BEGIN,
    SMELT__TOPK_SELECT_END,
    SMELT__TOPK_SELECT_OFFSET,
    SMELT__TOPK_SELECT_INDICES,
    SMELT__TOPK_SELECT_VALUES,
    SMELT__TOPK_SELECT_LENGTHS,
    SMELT__TOPK_SELECT_TENSORS
};

extern const struct smelt__args_table smelt__topk_select_table;

#endif
