/* sparse_attn: the tables of its two passes. */
#include "operators.h"

/* B batches, T tokens, H heads, Q width of a query and of a KV row, V of a value, S rows, W slots
 * of an index row, N entries of a query list. */

#define ARGS smelt_sparse_attn_args

static const struct tensor_argument forward_tensors[] = {
    ATTENTION_INPUTS,
    TENSOR(out, "BTHV", BF16, ROWS | OUTPUT),
    TENSOR(lse, "BTH1", FP32, OUTPUT),
    TENSOR(max_logits, "BTH1", FP32, OPTIONAL | OUTPUT),
};

static const struct scalar_argument forward_scalars[] = {
    SCALAR(scale, FLOAT),
    SCALAR(free_multiprocessors, INT),
};

static const struct extent_argument forward_extents[] = {
    ATTENTION_EXTENTS,
};

WORKSPACE_FUNCTION(forward, smelt_sparse_attn_forward_workspace)

NOTE(sparse_attn, FIX('H', heads) FIX('Q', dqk) FIX('V', dv))

OPERATOR_FUNCTIONS(sparse_attn, SPARSE_ATTN, note_sparse_attn)

static struct pass forward_pass = {
    .name = "forward",
    PASS(forward),
    .partition = -1,
    WORKSPACE(forward, 16),
    .launch = launch_sparse_attn,
};

#undef ARGS
#define ARGS smelt_sparse_attn_grad_args

enum { PARTITION = 14 };

static const struct tensor_argument backward_tensors[] = {
    ATTENTION_INPUTS,
    TENSOR(out, "BTHV", BF16, ROWS),
    TENSOR(lse, "BTH1", FP32, 0),
    TENSOR(grad_out, "BTHV", BF16, ROWS),
    TENSOR(dq, "BTHQ", BF16, ROWS | OUTPUT),
    TENSOR(dkv, "BSQ", BF16, ROWS | OPTIONAL | OUTPUT),
    TENSOR(dkv_fp32, "BSQ", FP32, ROWS | OPTIONAL | OUTPUT),
    TENSOR(dkv_sum, "BSQ", FP32, ROWS | OPTIONAL | WRITTEN),
    [PARTITION] = {"partition", "", 0, UINT8, OPTIONAL, 0},
    TENSOR(dsink, "H", FP32, OPTIONAL | OUTPUT),
};

static const struct scalar_argument backward_scalars[] = {
    SCALAR(scale, FLOAT),
    SCALAR(free_multiprocessors, INT),
    SCALAR(workspace_limit, SIZE),
};

static const struct extent_argument backward_extents[] = {
    ATTENTION_EXTENTS,
};

WORKSPACE_FUNCTION(backward, smelt_sparse_attn_backward_workspace)

static smelt_status backward(const void *handle, const void *args, struct CUstream_st *stream) {
    return smelt_sparse_attn_backward(handle, args, stream);
}

static struct pass backward_pass = {
    .name = "backward",
    PASS(backward),
    .partition = PARTITION,
    .partition_offset = offsetof(ARGS, partition),
    .partition_size = offsetof(ARGS, partition_bytes),
    WORKSPACE(backward, 256),
    .launch = backward,
};

const struct operator_class sparse_attn_class = {
    .name = "sparse_attn",
    .create = create_sparse_attn,
    .supported = supported_sparse_attn,
    .destroy = destroy_sparse_attn,
    .passes = {&forward_pass, &backward_pass},
};
