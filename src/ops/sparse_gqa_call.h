/* What sparse_gqa's passes have in common: the params of lists and limits. */
#pragma once

#include "ops/call.h"
#include "ops/sparse_attn_call.h"
#include "ops/sparse_gqa_table.h"

/* clang-format off: the first is part of the others */
#include "sparse_gqa.groups.params.h"
#include "sparse_gqa.params.h"
#include "sparse_gqa_bwd.params.h"
#include "sparse_gqa_fwd.params.h"
#include "sparse_gqa_scores_fwd.params.h"
/* clang-format on */

/* Of a pass's args struct, whose strides are packed. */
#define SMELT__SPARSE_GQA_LISTS_PARAMS(args)                                                       \
    {                                                                                              \
        .limit = (args)->limit.data, .limit_batch_stride = (args)->limit.strides[0],               \
        .limit_token_stride = (args)->limit.strides[1],                                            \
        .indices_group_stride = (args)->indices.strides[2],                                        \
        .topk_length_group_stride = (args)->topk_length.strides[2]                                 \
    }

/* The backward pass (sparse_gqa_backward.c): its workspace, and its launch. */
smelt_status smelt__sparse_gqa_backward_workspace(const struct smelt__call *call, size_t *bytes);
smelt_status smelt__sparse_gqa_backward_launch(struct smelt__call *call);
