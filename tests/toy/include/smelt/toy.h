/*
 * The tests' toy operator: rows multiplied by a factor. Forward: out[t,:] = factor * x[t,:].
 * Backward: dx[t,:] += factor * grad[t,:], added to what the caller has there. Spec: toy:width=75; keys: width,
 * of a row, 1..4096, and passes.
 */
#ifndef SMELT_TOY_H
#define SMELT_TOY_H

#include <stdint.h>

#include "smelt/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

typedef struct smelt_toy_args {
    size_t size;
    int64_t tokens;       /* T >= 0 */
    float factor;         /* finite */
    int reserved;         /* 0 */
    smelt_const_tensor x; /* [T,width] fp32 */
    smelt_tensor out;     /* [T,width] fp32 */
} smelt_toy_args;

#define SMELT_TOY_ARGS_INIT SMELT_INIT(smelt_toy_args)

typedef struct smelt_toy_grad_args {
    size_t size;
    int64_t tokens;          /* T >= 0 */
    float factor;            /* finite */
    int reserved;            /* 0 */
    smelt_const_tensor grad; /* [T,width] fp32 */
    smelt_tensor dx;         /* [T,width] fp32, added to */
} smelt_toy_grad_args;

#define SMELT_TOY_GRAD_ARGS_INIT SMELT_INIT(smelt_toy_grad_args)

SMELT_CALL smelt_status smelt_toy_forward(const smelt_operator *op, const smelt_toy_args *args,
                                          struct CUstream_st *stream);
SMELT_CALL smelt_status smelt_toy_backward(const smelt_operator *op,
                                           const smelt_toy_grad_args *args,
                                           struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
