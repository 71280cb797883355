/* The params structs of a backward call's kernels. One function per kernel fills one from a checked
 * call. */
#pragma once

#include "ops/sparse_attn_grad_args.h"

/* Of a call with queries; the first with buckets only. */
struct sparse_attn_partition_params smelt__grad_partition(const struct smelt__grad_call *call);
struct sparse_attn_bwd_lists_params smelt__grad_lists(const struct smelt__grad_call *call);
struct sparse_attn_bwd_rows_params smelt__grad_rows(const struct smelt__grad_call *call);

/* The main kernel's params, except for the groups of a launch. Errors: INVALID_ARGUMENT if TMA does not support a stride; DRIVER. */
smelt_status smelt__grad_main(const struct smelt__grad_call *call,
                              const struct smelt__grad_grid *grid,
                              struct sparse_attn_bwd_params *params);

/* `grid`: NULL without queries. */
struct key_grads_finish_params smelt__grad_finish(const struct smelt__grad_call *call,
                                                  const struct smelt__grad_grid *grid);

/* The number of floats to zero from the workspace's `progress` on: progress and dkv's sums. */
int64_t smelt__grad_zeros(const struct smelt__grad_call *call);
