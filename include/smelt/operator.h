/*
 * smelt: operators. One type of handle serves all operators: it is created from a spec's text, and
 * holds the compiled and loaded kernels of the passes that the spec names.
 *
 *   smelt_operator *op;
 *   smelt_operator_create(&op, context, "sparse_attn:heads=64,dqk=576,dv=512,topk=2048");
 *   smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
 *   ...
 *   smelt_sparse_attn_forward(op, &args, stream);
 *   smelt_operator_destroy(&op);
 *
 * Each operator's own header (smelt/sparse_attn.h and so on) has its mathematics, the keys of its
 * spec, and its calls with their argument structs. For bindings and tools, this header describes the
 * tensors and numbers of those structs at run time.
 */
#ifndef SMELT_OPERATOR_H
#define SMELT_OPERATOR_H

#include <stddef.h>
#include <stdint.h>

#include "smelt/context.h"
#include "smelt/kernels.h"
#include "smelt/status.h"
#include "smelt/struct.h"
#include "smelt/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* One operator with its kernels. Immutable: any number of threads may use it at the same time, until
 * it is destroyed. */
typedef struct smelt_operator smelt_operator;

/*
 * Whether create would find a plan for each kernel of the spec on the context's architecture.
 * Compiles nothing, needs no GPU. *why (may be NULL) receives "" or the reason, a string of this
 * thread that is valid until its next failing call. Returns OK, INVALID_ARGUMENT, INVALID_SPEC (the
 * message names the operator, key or value and what is legal) or UNSUPPORTED.
 */
SMELT_CALL smelt_status smelt_operator_supported(const smelt_context *context, const char *spec,
                                                 const char **why);

/*
 * Creates an operator: compiles the kernels of its passes, or takes them from the cache, and loads
 * them. The key `passes`, where an operator has it, selects the passes: forward (the default),
 * backward or both. The context must outlive the operator. Errors: INVALID_ARGUMENT, INVALID_SPEC,
 * UNSUPPORTED, NO_DEVICE (a compile-only context), NO_COMPILER, COMPILE, DRIVER, OUT_OF_MEMORY. *op
 * is NULL on failure.
 */
SMELT_CALL smelt_status smelt_operator_create(smelt_operator **op, smelt_context *context,
                                              const char *spec);

/* Frees *op and sets it to NULL; `op` and *op may be NULL. The behaviour is undefined if another thread is in a call
 * with the operator or uses it afterwards. Kernels that its calls have launched, or captured in a graph, may still
 * run: they stay loaded until the context is destroyed. */
SMELT_API void smelt_operator_destroy(smelt_operator **op);

/* The figures of kernel number `index` of a pass, in the order of launch, into *info, whose `size` the
 * caller has set. Errors: INVALID_ARGUMENT, also for an index past the last kernel. */
SMELT_CALL smelt_status smelt_operator_get_kernel_info(const smelt_operator *op,
                                                       enum smelt_pass pass, int index,
                                                       smelt_kernel_info *info);

/* ---- calls, by pass -------------------------------------------------------------------------- */

/* Does the same as smelt_OPERATOR_forward and _backward, for programs that hold operators of any kind.
 * `args`: the struct of the pass, of any version. The same errors. */
SMELT_CALL smelt_status smelt_operator_launch(const smelt_operator *op, enum smelt_pass pass,
                                              const void *args, struct CUstream_st *stream);

/* Bytes of workspace that a call with these arguments needs; 0 where none is needed. */
SMELT_CALL smelt_status smelt_operator_workspace(const smelt_operator *op, enum smelt_pass pass,
                                                 const void *args, size_t *bytes);

/* ---- descriptions: pure, any thread -----------------------------------------------------------
 * `spec`: an operator's spec, or its name alone. With a spec, the description has its element types
 * and the extents that its keys determine. Strings are constants of the library. Errors:
 * INVALID_SPEC (for an unknown operator, the message lists all operators); INVALID_ARGUMENT for a
 * pass or an index that does not exist. */

/* Element types of tensors. */
enum smelt_element {
    SMELT_ELEMENT_BF16 = 0,
    SMELT_ELEMENT_FP32 = 1,
    SMELT_ELEMENT_INT32 = 2,
    SMELT_ELEMENT_E4M3 = 3 /* OCP's FP8 with four exponent bits */
};

/* What a call does with a tensor. */
enum smelt_role {
    SMELT_ROLE_INPUT = 0,      /* read */
    SMELT_ROLE_OUTPUT = 1,     /* overwritten */
    SMELT_ROLE_ACCUMULATED = 2 /* added to */
};

/* C types of numbers in argument structs. */
enum smelt_scalar_type {
    SMELT_SCALAR_INT = 0,
    SMELT_SCALAR_INT64 = 1,
    SMELT_SCALAR_SIZE = 2, /* size_t */
    SMELT_SCALAR_FLOAT = 3
};

/* An operator's pass and its args struct. */
typedef struct smelt_pass_info {
    size_t size;
    const char *args_type;                           /* "smelt_sparse_attn_args" */
    size_t args_bytes;                               /* its sizeof: the value of its field `size` */
    int tensors, scalars;                            /* the number of each */
    size_t workspace_offset, workspace_bytes_offset; /* of the fields for the workspace; 0: the call
                                                        never needs one */
    size_t workspace_alignment;                      /* of its address, in bytes */
    /* Of the fields for a forward call's workspace, which the call may read; 0: it never does. */
    size_t partition_offset, partition_bytes_offset;
    /* The letter of an extent that several dimensions may stand for, the same ones in all tensors:
     * [T,H,D] for [N,D]. "": none. */
    const char *flattened;
} smelt_pass_info;

#define SMELT_PASS_INFO_INIT SMELT_INIT(smelt_pass_info)

/* *passes: the passes that the operator has; of a spec, those it selects. `info` may be NULL, and
 * `pass` is then ignored; else *info describes `pass`, whether the spec selects it or not. Its `size`
 * is set by the caller. */
SMELT_CALL smelt_status smelt_operator_describe(const char *spec, enum smelt_pass pass,
                                                unsigned *passes, smelt_pass_info *info);

/* One tensor of an args struct. */
typedef struct smelt_tensor_info {
    size_t size;
    const char *name;        /* the field */
    const char *element;     /* "bf16", "fp32", "int32", "e4m3" */
    size_t offset;           /* of the smelt_tensor or smelt_const_tensor in the args struct */
    enum smelt_element type; /* the same as a number */
    enum smelt_role role;    /* read, overwritten or added to */
    int optional;            /* 1: may be NULL */
    int one_of;              /* above 0: of the tensors with this number exactly one is given */
    const char *key; /* legal only with this key of the spec above 0 (and required then, unless
                        optional); "" without such a rule */
    int alignment;   /* of its data and of each of its rows, in bytes */
    int dimensions;  /* their number */
    /* The letter of each dimension's extent, in C order: "T", "1". */
    const char *shape[SMELT_TENSOR_STRIDES + 1];
    /* The extents that the spec determines, else -1. */
    int64_t extents[SMELT_TENSOR_STRIDES + 1];
    /* Of an extent that follows from another: the other one's letter, else "". It is that one times
     * `times`, divided by `per` and rounded up; both are 1 unless the spec says another number. */
    const char *of[SMELT_TENSOR_STRIDES + 1];
    int64_t times[SMELT_TENSOR_STRIDES + 1]; /* see `of` */
    int64_t per[SMELT_TENSOR_STRIDES + 1];   /* likewise */
} smelt_tensor_info;

#define SMELT_TENSOR_INFO_INIT SMELT_INIT(smelt_tensor_info)

/* Tensor number `index` of a pass's args struct into *info, whose `size` the caller has set. */
SMELT_CALL smelt_status smelt_operator_get_tensor(const char *spec, enum smelt_pass pass, int index,
                                                  smelt_tensor_info *info);

/* One number of an args struct. */
typedef struct smelt_scalar_info {
    size_t size;
    const char *name;            /* the field */
    size_t offset;               /* of the field in the args struct */
    enum smelt_scalar_type type; /* its C type */
    int reserved;                /* 0 */
    /* Legal values of an integer (for an operator's name alone, those of any spec); 0, 0 for the
     * other types. */
    int64_t least;
    int64_t most;       /* the largest */
    const char *letter; /* of the extent that it gives; "": none */
} smelt_scalar_info;

#define SMELT_SCALAR_INFO_INIT SMELT_INIT(smelt_scalar_info)

/* Number `index` of a pass's args struct likewise. */
SMELT_CALL smelt_status smelt_operator_get_scalar(const char *spec, enum smelt_pass pass, int index,
                                                  smelt_scalar_info *info);

#ifdef __cplusplus
}
#endif

#endif
