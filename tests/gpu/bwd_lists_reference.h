/* The meaning of the backward pass's lists (sparse_attn_bwd_lists, sparse_attn_bwd_sum), in scalar
 * C: params structs with host pointers. */
#pragma once

#include "ops/sparse_attn_params.h"

/* The pass `group`. most_rows: of the kernel's maps, all windows together. What the pass leaves
 * alone is left alone. */
void reference_lists(const struct sparse_attn_bwd_lists_params *params, long long most_rows);

/* The pass `transpose`. */
void reference_segments(const struct sparse_attn_bwd_segments_params *params);

/* sparse_attn_bwd_sum, bit for bit. */
struct sums_reference {
    int dqk, most_alone, run; /* the plan's DQK, MOST_ALONE, RUN */
};
void reference_sums(const struct sparse_attn_bwd_sum_params *params, struct sums_reference plan);
