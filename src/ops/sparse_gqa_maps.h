/* Tensor maps of the block-stationary kernels of sparse_gqa. */
#pragma once

#include "ops/sparse_gqa_call.h"
#include "smelt/context.h"

/* clang-format off */
#include "common/tensor_map.h"
#include "sparse_gqa_items.params.h"
/* clang-format on */

/* A bf16 tensor [batches, rows, heads, columns], in boxes of 64 columns. */
struct smelt__gqa_map_source {
    const char *name;
    const smelt_const_tensor *tensor; /* its strides are packed */
    int64_t columns, heads, rows, batches;
    int box_heads, box_rows;
};

/* INVALID_ARGUMENT for strides that no map can have; DRIVER. */
smelt_status smelt__gqa_map_make(const smelt_context *context,
                                 const struct smelt__gqa_map_source *source,
                                 struct tensor_map *map);

/* The same for k or v, in boxes of a block's rows. */
smelt_status smelt__gqa_source_make(const smelt_context *context,
                                    const struct smelt__gqa_map_source *source,
                                    struct gqa_block_source *block);
