/* The params structs of sparse_attn's kernels, which their own headers, being templates' parts too,
 * declare without a guard. */
#ifndef SMELT_OPS_SPARSE_ATTN_PARAMS_H
#define SMELT_OPS_SPARSE_ATTN_PARAMS_H

/* clang-format off: the first is part of the others */
#include "common/work.params.h"
#include "sparse_attn_fwd.params.h"
#include "sparse_attn_partition.params.h"
/* clang-format on */

#endif
