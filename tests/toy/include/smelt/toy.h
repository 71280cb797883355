/*
 * The tests' toy operator: rows multiplied by a factor. Forward: out[t,:] = factor * x[t,:].
 * Backward: dx[t,:] += factor * grad[t,:], added to what the caller has there.
 */
#ifndef SMELT_TOY_H
#define SMELT_TOY_H

#include "smelt/context.h"
#include "smelt/kernels.h"
#include "smelt/status.h"
#include "smelt/struct.h"
#include "smelt/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
typedef struct smelt_toy smelt_toy;

typedef struct smelt_toy_spec {
    size_t size;
    int width;         /* of a row, 1..4096 */
    unsigned passes;   /* of enum smelt_pass; 0: forward */
    const char *knobs; /* or NULL */
} smelt_toy_spec;

#define SMELT_TOY_SPEC_INIT SMELT_INIT(smelt_toy_spec)

typedef struct smelt_toy_args {
    size_t size;
    int64_t tokens;          /* T >= 0 */
    float factor;            /* finite */
    int reserved;            /* 0 */
    smelt_const_tensor x;    /* [T,width] fp32: forward */
    smelt_tensor out;        /* [T,width] fp32: forward */
    smelt_const_tensor grad; /* [T,width] fp32: backward */
    smelt_tensor dx;         /* [T,width] fp32, added to: backward */
} smelt_toy_args;

#define SMELT_TOY_ARGS_INIT SMELT_INIT(smelt_toy_args)

SMELT_API smelt_status smelt_toy_spec_print(const smelt_toy_spec *spec, char **text);
SMELT_API smelt_status smelt_toy_spec_parse(const char *text, smelt_toy_spec *spec, char **knobs);
SMELT_API smelt_status smelt_toy_supported(smelt_context *context, const smelt_toy_spec *spec,
                                           const char **why);
SMELT_API smelt_status smelt_toy_create(smelt_toy **toy, smelt_context *context,
                                        const smelt_toy_spec *spec);
SMELT_API void smelt_toy_destroy(smelt_toy **toy);
SMELT_API smelt_status smelt_toy_forward(const smelt_toy *toy, const smelt_toy_args *args,
                                         struct CUstream_st *stream);
SMELT_API smelt_status smelt_toy_backward(const smelt_toy *toy, const smelt_toy_args *args,
                                          struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
