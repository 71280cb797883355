/* The arguments of sparse_attn's forward pass: checked, then packed for the kernel. */
#pragma once

#include "ops/call.h"
#include "ops/sparse_attn_call.h"

/* Bytes of workspace for so many queries in so many buckets, 0: none. */
size_t smelt__sparse_attn_workspace(int64_t queries, int buckets);

/* Checks a call and fills *params. *queries: that the grid must cover; 0: there is nothing to
 * launch, and *params is not set. INVALID_ARGUMENT. Reads no device memory. */
smelt_status smelt__sparse_attn_pack(struct smelt__call *call, int buckets,
                                     struct sparse_attn_fwd_params *params, int64_t *queries);
