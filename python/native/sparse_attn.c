/* sparse_attn: the tables of its two passes. */
#include "operators.h"

/* B batches, T tokens, H heads, Q width of a query and of a KV row, V of a value, S rows, W slots
 * of an index row, N entries of a query list. */

#define ARGS smelt_sparse_attn_args

static const struct tensor_argument forward_tensors[] = {
    TENSOR(q, "BTHQ", BF16, ROWS),
    TENSOR(kv, "BSQ", BF16, ROWS),
    TENSOR(indices, "BTW", INT32, 0),
    TENSOR(topk_length, "BT1", INT32, OPTIONAL),
    TENSOR(sink, "H", FP32, OPTIONAL),
    TENSOR(queries, "N", INT32, OPTIONAL),
    TENSOR(query_count, "1", INT32, OPTIONAL),
    TENSOR(out, "BTHV", BF16, ROWS),
    TENSOR(lse, "BTH1", FP32, 0),
    TENSOR(max_logits, "BTH1", FP32, OPTIONAL),
};

static const struct scalar_argument forward_scalars[] = {
    SCALAR(scale, FLOAT),
    SCALAR(free_multiprocessors, INT),
};

static const struct extent_argument forward_extents[] = {
    EXTENT('B', batches), EXTENT('T', tokens),         EXTENT('S', rows),
    EXTENT('W', width),   EXTENT('N', query_capacity),
};

static smelt_status forward_workspace(const void *handle, const void *args, size_t *bytes) {
    return smelt_sparse_attn_forward_workspace(handle, args, bytes);
}

static void note_sparse_attn(const smelt_sparse_attn_spec *spec, struct made *made) {
    made->extents['H' - 'A'] = spec->heads;
    made->extents['Q' - 'A'] = spec->dqk;
    made->extents['V' - 'A'] = spec->dv;
}

OPERATOR_FUNCTIONS(sparse_attn, SPARSE_ATTN, note_sparse_attn)

static const struct pass forward_pass = {
    .name = "forward",
    .args_bytes = sizeof(ARGS),
    .tensors = forward_tensors,
    .tensor_count = COUNT(forward_tensors),
    .scalars = forward_scalars,
    .scalar_count = COUNT(forward_scalars),
    .extents = forward_extents,
    .extent_count = COUNT(forward_extents),
    .partition = -1,
    .workspace_offset = offsetof(ARGS, workspace),
    .workspace_size = offsetof(ARGS, workspace_bytes),
    .workspace_alignment = 16,
    .workspace = forward_workspace,
    .launch = launch_sparse_attn,
};

#undef ARGS
#define ARGS smelt_sparse_attn_grad_args

enum { PARTITION = 14 };

static const struct tensor_argument backward_tensors[] = {
    TENSOR(q, "BTHQ", BF16, ROWS),
    TENSOR(kv, "BSQ", BF16, ROWS),
    TENSOR(indices, "BTW", INT32, 0),
    TENSOR(topk_length, "BT1", INT32, OPTIONAL),
    TENSOR(sink, "H", FP32, OPTIONAL),
    TENSOR(queries, "N", INT32, OPTIONAL),
    TENSOR(query_count, "1", INT32, OPTIONAL),
    TENSOR(out, "BTHV", BF16, ROWS),
    TENSOR(lse, "BTH1", FP32, 0),
    TENSOR(grad_out, "BTHV", BF16, ROWS),
    TENSOR(dq, "BTHQ", BF16, ROWS),
    TENSOR(dkv, "BSQ", BF16, ROWS | OPTIONAL),
    TENSOR(dkv_fp32, "BSQ", FP32, ROWS | OPTIONAL),
    TENSOR(dkv_sum, "BSQ", FP32, ROWS | OPTIONAL),
    [PARTITION] = {"partition", "", UINT8, OPTIONAL, 0},
    TENSOR(dsink, "H", FP32, OPTIONAL),
};

static const struct scalar_argument backward_scalars[] = {
    SCALAR(scale, FLOAT),
    SCALAR(free_multiprocessors, INT),
    SCALAR(workspace_limit, SIZE),
};

static const struct extent_argument backward_extents[] = {
    EXTENT('B', batches), EXTENT('T', tokens),         EXTENT('S', rows),
    EXTENT('W', width),   EXTENT('N', query_capacity),
};

static smelt_status backward_workspace(const void *handle, const void *args, size_t *bytes) {
    return smelt_sparse_attn_backward_workspace(handle, args, bytes);
}

static smelt_status backward(const void *handle, const void *args, struct CUstream_st *stream) {
    return smelt_sparse_attn_backward(handle, args, stream);
}

static const struct pass backward_pass = {
    .name = "backward",
    .args_bytes = sizeof(ARGS),
    .tensors = backward_tensors,
    .tensor_count = COUNT(backward_tensors),
    .scalars = backward_scalars,
    .scalar_count = COUNT(backward_scalars),
    .extents = backward_extents,
    .extent_count = COUNT(backward_extents),
    .partition = PARTITION,
    .partition_offset = offsetof(ARGS, partition),
    .partition_size = offsetof(ARGS, partition_bytes),
    .workspace_offset = offsetof(ARGS, workspace),
    .workspace_size = offsetof(ARGS, workspace_bytes),
    .workspace_alignment = 256,
    .workspace = backward_workspace,
    .launch = backward,
};

const struct operator_class sparse_attn_class = {
    .name = "sparse_attn",
    .create = create_sparse_attn,
    .supported = supported_sparse_attn,
    .destroy = destroy_sparse_attn,
    .passes = {&forward_pass, &backward_pass},
};
