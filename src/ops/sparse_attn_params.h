/* The params structs of sparse_attn's kernels, which their own headers, being templates' parts too,
 * declare without a guard. */
#pragma once

/* clang-format off: the first is part of the others */
#include "common/tensor_map.h"
#include "common/work.params.h"
#include "key_grads_finish.params.h"
#include "sparse_attn_bwd.params.h"
#include "sparse_attn_bwd_lists.params.h"
#include "sparse_attn_bwd_rows.params.h"
#include "sparse_attn_bwd_sum.params.h"
#include "sparse_attn_fwd.params.h"
#include "sparse_attn_partition.params.h"
/* clang-format on */
