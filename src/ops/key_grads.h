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

/* Launches key_grads_finish. `columns`: of a sum; `pdl`: 1: with PDL; the kernel itself waits for the launch
 * before it. Errors: DRIVER. */
smelt_status smelt__key_grads_launch(const smelt_context *context,
                                     const struct smelt__kernel *kernel, struct CUstream_st *stream,
                                     int columns, int pdl,
                                     const struct key_grads_finish_params *params);
