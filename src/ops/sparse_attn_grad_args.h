/* The arguments of sparse_attn's backward pass: read and checked. */
#pragma once

#include "ops/sparse_attn_grad_layout.h"

/* A checked call. */
struct smelt__grad_call {
    const struct smelt__sparse_attn_backward *backward;
    const smelt_sparse_attn_grad_args *args; /* the library's copy, with every stride filled in */
    struct smelt__grad_layout layout;        /* of args.workspace */
    struct CUstream_st *stream;
};

/* Checks a call whose numbers are in range. INVALID_ARGUMENT names the argument, its value and what
 * is legal. Reads no device memory. */
smelt_status smelt__grad_check(const struct smelt__sparse_attn_backward *backward,
                               struct smelt__call *given, struct smelt__grad_call *call);

/* The bytes of workspace that a call needs, for which dq's strides alone of the tensors count.
 * Errors as above. */
smelt_status smelt__grad_workspace(const struct smelt__sparse_attn_backward *backward,
                                   const struct smelt__call *given, size_t *bytes);
