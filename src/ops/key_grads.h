/* The gradients of keys that main kernels have added up in the workspace, in fp32: the last kernel of a backward
 * pass, key_grads_finish, writes the caller's tensor from the sums. */
#pragma once

#include <stdint.h>

#include "key_grads_finish.params.h"
#include "runtime/kernel.h"
#include "smelt/tensor.h"

/* The params for a tensor that has three forms, of which at most one is given: bf16, fp32, and fp32 that is
 * added to. */
struct key_grads_finish_params smelt__key_grads_params(const smelt_tensor *bf16,
                                                       const smelt_tensor *fp32,
                                                       const smelt_tensor *sum);

struct smelt__key_grads {
    const smelt_context *context;
    const struct smelt__kernel *finish;
    struct CUstream_st *stream;
    const float *sums; /* [keys, columns] */
    int64_t keys;
    int columns;
    int pdl; /* 1: the kernel waits for the launch before it */
};

/* Launches key_grads_finish; sets params.sums. Errors: DRIVER. */
smelt_status smelt__key_grads_launch(const struct smelt__key_grads *grads,
                                     struct key_grads_finish_params params);
