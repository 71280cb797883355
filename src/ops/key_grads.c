/* See key_grads.h. */
#include "ops/key_grads.h"

#include "ops/divide.h"

enum { COLUMNS = 8 }; /* that a thread converts at a time */

struct key_grads_finish_params smelt__key_grads_params(const smelt_tensor *bf16,
                                                       const smelt_tensor *fp32,
                                                       const smelt_tensor *sum) {
    const smelt_tensor *const tensor = bf16->data ? bf16 : fp32->data ? fp32 : sum;
    return (struct key_grads_finish_params){
        .dkv = tensor->data,
        .dkv_batch_stride = tensor->strides[0],
        .dkv_row_stride = tensor->strides[1],
        .dkv_head_stride = tensor->strides[2],
        .mode = tensor == bf16   ? FINISH_BF16
                : tensor == fp32 ? FINISH_FP32
                                 : FINISH_ADD,
    };
}

smelt_status smelt__key_grads_launch(const smelt_context *context,
                                     const struct smelt__kernel *kernel, struct CUstream_st *stream,
                                     int columns, int pdl,
                                     const struct key_grads_finish_params *params) {
    const int64_t heads = params->key_heads ? params->key_heads : 1;
    const int64_t threads = (int64_t)params->batches * params->rows * heads * (columns / COLUMNS);
    const int64_t blocks = smelt__divide_up(threads, kernel->threads);
    const int64_t most = kernel->resident_blocks;
    const struct smelt__launch launch = {
        .blocks = {(uint32_t)(blocks < 1      ? 1
                              : blocks < most ? blocks
                                              : most)},
        .pdl = pdl,
        .params = params,
    };
    return smelt__kernel_launch(context, kernel, &launch, stream);
}
