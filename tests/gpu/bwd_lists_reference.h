/* The meaning of the backward pass's lists (sparse_attn_bwd_lists, sparse_attn_bwd_sum), in scalar
 * C: params structs with host pointers. */
#ifndef SMELT_TESTS_BWD_LISTS_REFERENCE_H
#define SMELT_TESTS_BWD_LISTS_REFERENCE_H

#include "ops/sparse_attn_params.h"

/* The pass `group`. most_rows: of the kernel's maps, all windows together. What the pass leaves
 * alone is left alone. */
void reference_lists(const struct sparse_attn_bwd_lists_params *params, long long most_rows);

#endif
