/* A C function for FlashMLA's sparse prefill on Hopper. flash_mla.py compiles it with a checkout
 * that the user names, and calls it; this repository contains no code of FlashMLA. */
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>

#include <cuda_runtime.h>

#include "params.h"
#include "sm90/prefill/sparse/fwd.h"

/* flash_mla.py's Call. Device memory; strides in elements. */
struct call {
    int32_t queries, rows, heads, dqk, dv, topk, multiprocessors;
    float scale;
    void *q, *kv;
    int32_t *indices, *topk_length;
    float *sink;
    void *out;
    float *lse, *max_logits;
    int32_t q_token_stride, q_head_stride, kv_row_stride, indices_token_stride;
};

/* NULL, or a message. */
extern "C" __attribute__((visibility("default"))) const char *
flash_mla_forward(const struct call *call, cudaStream_t stream) {
    static thread_local char message[256];
    SparseAttnFwdParams params = {};
    params.s_q = call->queries;
    params.s_kv = call->rows;
    params.h_q = call->heads;
    params.h_kv = 1;
    params.d_qk = call->dqk;
    params.d_v = call->dv;
    params.topk = call->topk;
    params.sm_scale = call->scale;
    params.sm_scale_div_log2 = (float)(call->scale * M_LOG2E);
    params.q = (cutlass::bfloat16_t *)call->q;
    params.kv = (cutlass::bfloat16_t *)call->kv;
    params.indices = call->indices;
    params.attn_sink = call->sink;
    params.topk_length = call->topk_length;
    params.stride_q_s_q = call->q_token_stride;
    params.stride_q_h_q = call->q_head_stride;
    params.stride_kv_s_kv = params.stride_kv_h_kv = call->kv_row_stride;
    params.stride_indices_s_q = params.stride_indices_h_kv = call->indices_token_stride;
    params.out = (cutlass::bfloat16_t *)call->out;
    params.max_logits = call->max_logits;
    params.lse = call->lse;
    params.num_sm = call->multiprocessors;
    params.stream = stream;
    try {
        sm90::run_fwd_kernel(params);
    } catch (const std::exception &error) {
        snprintf(message, sizeof message, "%s", error.what());
        return message;
    }
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
