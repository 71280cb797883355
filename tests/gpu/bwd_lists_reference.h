/* A reference in scalar C of the backward pass's lists and sums (sparse_attn_bwd_lists,
 * sparse_attn_bwd_sum): params structs with host pointers. */
#pragma once

#include "ops/sparse_attn_params.h"

/* The pass `group`. most_rows: the total of all windows of the kernel's maps. Writes only what the
 * pass writes. */
void reference_lists(const struct sparse_attn_bwd_lists_params *params, long long most_rows);

/* The pass `transpose`. */
void reference_segments(const struct sparse_attn_bwd_segments_params *params);

/* sparse_attn_bwd_sum, bit for bit. */
struct sums_reference {
    int dqk, most_alone, run; /* the plan's DQK, MOST_ALONE, RUN */
};
void reference_sums(const struct sparse_attn_bwd_sum_params *params, struct sums_reference plan);
