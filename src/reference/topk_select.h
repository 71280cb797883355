/* The meaning of the operator topk_select (smelt/topk_select.h), by sorting. */
#ifndef SMELT_REFERENCE_TOPK_SELECT_H
#define SMELT_REFERENCE_TOPK_SELECT_H

#include <stdint.h>

#include "reference/specs.h"
#include "smelt/topk_select.h"

/* Row `row` of a call whose arguments lie in host memory, strides given: indices[topk] and
 * values[topk] as they are to be. How many were selected, or -1 when memory runs out. */
int64_t smelt__topk_select_reference(const struct smelt__topk_select_spec *spec,
                                     const smelt_topk_select_args *args, int64_t row,
                                     int64_t logits_stride, int32_t *indices, float *values);

/* The row's window, clipped. */
void smelt__topk_select_window(const smelt_topk_select_args *args, int64_t row, int64_t *begin,
                               int64_t *end);

#endif
