/* Tensor maps of dense attention's operands (templates/common/streamed_wgmma.cuh). */
#pragma once

#include "common/tensor_map.h"
#include "ops/arguments.h"
#include "smelt/context.h"
#include "smelt/tensor.h"

/* q [tokens, kv_heads * group, dqk] and k [rows, kv_heads, dqk], with all strides set, and the boxes of
 * 64 columns that one copy moves. */
struct smelt__dense_operands {
    smelt_const_tensor q, k;
    int64_t tokens, rows; /* above 0 */
    int kv_heads, group, dqk;
    int box_queries, box_heads, box_keys;
};

/* INVALID_ARGUMENT for strides that no map can have; the message suggests `knob`, which avoids maps. */
smelt_status smelt__dense_maps_check(const struct smelt__dense_operands *operands,
                                     const char *knob);

/* Errors: DRIVER. */
smelt_status smelt__dense_maps_make(const smelt_context *context,
                                    const struct smelt__dense_operands *operands,
                                    struct tensor_map *q_map, struct tensor_map *k_map);
