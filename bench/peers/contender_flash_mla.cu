/* FlashMLA's sparse prefill for Hopper as a contender: its parameter struct is filled and its
 * launcher called. Built by build.sh against a checkout that the user names; nothing of FlashMLA is
 * in this repository. */
#include <cmath>
#include <cstdio>
#include <exception>

#include <cuda_runtime.h>

#include "contender.h"
#include "params.h"
#include "sm90/prefill/sparse/fwd.h"

namespace {

int fail(char *message, size_t message_bytes, const char *what) {
    snprintf(message, message_bytes, "FlashMLA: %s", what);
    return -1;
}

/* Its kernels are compiled ahead of time: there is nothing to make but a note of the number of
 * multiprocessors. */
int open_operation(void **operation, const contender_shape *shape, const char *, char *message,
                   size_t message_bytes) {
    static int multiprocessors;
    if (shape->heads % 64 != 0 || shape->topk % 128 != 0 || shape->dv != 512 ||
        (shape->dqk != 512 && shape->dqk != 576))
        return fail(message, message_bytes, "a shape it has no kernel for");
    cudaError_t error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    if (error != cudaSuccess)
        return fail(message, message_bytes, cudaGetErrorString(error));
    *operation = &multiprocessors;
    return 0;
}

size_t workspace(void *, const contender_call *) {
    return 0;
}

int launch(void *operation, const contender_call *call, void *, size_t, CUstream_st *stream,
           char *message, size_t message_bytes) {
    SparseAttnFwdParams params = {};
    params.s_q = (int)call->queries;
    params.s_kv = (int)call->rows;
    params.h_q = call->heads;
    params.h_kv = 1;
    params.d_qk = call->dqk;
    params.d_v = call->dv;
    params.topk = call->topk;
    params.sm_scale = call->scale;
    params.sm_scale_div_log2 = (float)(call->scale * M_LOG2E);
    params.q = (cutlass::bfloat16_t *)call->q;
    params.kv = (cutlass::bfloat16_t *)call->kv;
    params.indices = (int *)call->indices;
    params.attn_sink = (float *)call->sink;
    params.topk_length = (int *)call->topk_length;
    params.stride_q_s_q = (int)call->q_token_stride;
    params.stride_q_h_q = (int)call->q_head_stride;
    params.stride_kv_s_kv = (int)call->kv_row_stride;
    params.stride_kv_h_kv = (int)call->kv_row_stride;
    params.stride_indices_s_q = (int)call->indices_token_stride;
    params.stride_indices_h_kv = (int)call->indices_token_stride;
    params.out = (cutlass::bfloat16_t *)call->out;
    params.max_logits = call->max_logits;
    params.lse = call->lse;
    params.num_sm = *(const int *)operation;
    params.stream = (cudaStream_t)stream;
    try {
        sm90::run_fwd_kernel(params);
    } catch (const std::exception &error) {
        return fail(message, message_bytes, error.what());
    }
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? 0 : fail(message, message_bytes, cudaGetErrorString(error));
}

void close_operation(void *) {}

} // namespace

extern "C" __attribute__((visibility("default"))) const contender peers_contender = {
    CONTENDER_VERSION, 64, 128, 1, open_operation, workspace, launch, close_operation,
};
