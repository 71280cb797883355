/* The params structs of sparse_attn's own kernels (see attention_params.h). */
#pragma once

#include "ops/attention_params.h"

#include "common/tensor_map.h"
#include "sparse_attn_bwd.params.h"
#include "sparse_attn_bwd_sum.params.h"
#include "sparse_attn_fwd.params.h"
#include "sparse_attn_partition.params.h"
