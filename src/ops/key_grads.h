/* key_grads_finish, the last kernel of a backward pass, writes the caller's gradient by keys from the fp32 sums
 * that the main kernel has left in the workspace. */
#pragma once

#include <stdint.h>

#include "key_grads_finish.params.h"
#include "runtime/kernel.h"
#include "smelt/tensor.h"

/* The params for a gradient that the caller wants in one of three forms: bf16, fp32, or added to fp32. At most
 * one of the tensors is given. */
struct key_grads_finish_params smelt__key_grads_params(const smelt_tensor *bf16,
                                                       const smelt_tensor *fp32,
                                                       const smelt_tensor *sum);

/* A launch of key_grads_finish. */
struct smelt__key_grads {
    const smelt_context *context;
    const struct smelt__kernel *finish;
    struct CUstream_st *stream;
    const float *sums; /* [keys, columns] */
    int64_t keys;
    int columns;
    int pdl; /* 1: launched with PDL; the kernel itself waits for the launch before it */
};

/* Launches key_grads_finish; sets params.sums. Errors: DRIVER. */
smelt_status smelt__key_grads_launch(const struct smelt__key_grads *grads,
                                     struct key_grads_finish_params params);
