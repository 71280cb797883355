/*
 * What every operator shares: from a spec's text to loaded kernels, and the path of a call from the
 * caller's struct to checked arguments. An operator adds a `struct smelt__operator_type`: its
 * family, the tables of its args structs, and the functions that launch its kernels.
 */
#pragma once

#include "codegen/family.h"
#include "ops/args_table.h"
#include "ops/arguments.h"
#include "runtime/kernel.h"
#include "smelt/operator.h"

/* A public handle; the head of each operator's own struct. Immutable once made. */
struct smelt_operator {
    const struct smelt__operator_type *type;
    smelt_context *context;
    struct smelt__spec spec;
    unsigned passes;
    int count;
    const struct smelt__kernel *kernels[SMELT__MAX_KERNELS]; /* the context's; pass after pass, in
                                                                the order of launch */
    unsigned char pass[SMELT__MAX_KERNELS];
    /* The same by pass and role (struct smelt__expansion); NULL: no kernel has it. */
    const struct smelt__kernel *by_role[SMELT__PASSES][SMELT__MAX_KERNELS];
    /* What the spec says of the arguments of each of the type's passes. */
    struct smelt__pass_limits {
        int64_t extents[SMELT__MOST_SYMBOLS]; /* of the symbols that name a key */
        int64_t most[SMELT__MOST_SCALARS];    /* of each number */
        uint32_t keyed;                       /* bit i: the key of tensor i is above 0 */
    } limits[SMELT__PASSES];
};

/* A call that is being made. */
struct smelt__call {
    const smelt_operator *op;
    const struct smelt__pass *pass;
    const struct smelt__args_table *table;
    const struct smelt__pass_limits *limits;
    void *args; /* this library's copy: numbers are in range, strides filled in once checked */
    int64_t extents[SMELT__MOST_SYMBOLS];
    struct CUstream_st *stream;
};

/* One pass of an operator. */
struct smelt__pass {
    unsigned pass;
    const char *call; /* the public function: "smelt_sparse_attn_forward" */
    /* The table of its args struct; or several, from which the spec chooses one (struct smelt__table_key). The
     * first one describes the operator where there is no spec. */
    const struct smelt__args_table *tables;
    /* Bytes of workspace for these arguments, whose tensors are not checked. NULL: never any. */
    smelt_status (*workspace)(const struct smelt__call *call, size_t *bytes);
    /* Checks what the tables cannot say, calls smelt__call_check, and launches. The context is
     * current (smelt__context_enter). */
    smelt_status (*launch)(struct smelt__call *call);
};

struct smelt__operator_type {
    const struct smelt__operator_family *family;
    size_t bytes; /* of the handle: a struct that begins with smelt_operator */
    /* Fills in what follows from the spec and the kernels; NULL: nothing does. */
    void (*prepare)(smelt_operator *op);
    const struct smelt__pass *passes;
    int pass_count;
};

/* The operators' types, in ops/STEM.c of each. */
#define OPERATOR(stem) extern const struct smelt__operator_type smelt__##stem##_type;
#include "operators.list"
#undef OPERATOR

/* Of them (registry.c) number `index`, NULL past the end; that of a schema. */
const struct smelt__operator_type *smelt__operator_type_at(int index);
const struct smelt__operator_type *smelt__operator_type_of(const struct smelt__schema *schema);

/* The table of a pass, for a spec. */
const struct smelt__args_table *smelt__pass_table(const struct smelt__pass *pass,
                                                  const struct smelt__spec *spec);

/* Sets all of a zeroed handle but its kernels and what the type adds. */
void smelt__operator_begin(smelt_operator *op, const struct smelt__operator_type *type,
                           smelt_context *context, const struct smelt__spec *spec);

/* The extent that a spec gives a symbol that names a key. */
int64_t smelt__spec_extent(const struct smelt__symbol *symbol, const struct smelt__spec *spec);

/* The largest legal value of a number, for a spec. */
int64_t smelt__scalar_limit(const struct smelt__scalar_row *row, const struct smelt__spec *spec);

/* ---- calls ----------------------------------------------------------------------------------- */

/* The public calls of operators of one type. INVALID_ARGUMENT for an operator of another type, or
 * one without the pass; what the pass returns. */
smelt_status smelt__operator_call(const smelt_operator *op, const struct smelt__operator_type *type,
                                  unsigned pass, const void *args, struct CUstream_st *stream);
smelt_status smelt__operator_ask(const smelt_operator *op, const struct smelt__operator_type *type,
                                 unsigned pass, const void *args, size_t *bytes);

/* Defines them: SMELT__CALL(sparse_attn, forward, FORWARD, smelt_sparse_attn_args). */
#define SMELT__CALL(stem, verb, PASS, args_type)                                                   \
    smelt_status smelt_##stem##_##verb(const smelt_operator *op, const args_type *args,            \
                                       struct CUstream_st *stream) {                               \
        return smelt__operator_call(op, &smelt__##stem##_type, SMELT_PASS_##PASS, args, stream);   \
    }
#define SMELT__ASK(stem, verb, PASS, args_type)                                                    \
    smelt_status smelt_##stem##_##verb##_workspace(const smelt_operator *op,                       \
                                                   const args_type *args, size_t *bytes) {         \
        return smelt__operator_ask(op, &smelt__##stem##_type, SMELT_PASS_##PASS, args, bytes);     \
    }

/* An element of the array `passes` of an operator (`...`: further fields), and the operator's type. */
#define SMELT__PASS(stem, verb, PASS, ...)                                                         \
    { .pass = SMELT_PASS_##PASS, .call = "smelt_" #stem "_" #verb, __VA_ARGS__ }
#define SMELT__TYPE(stem, handle, prepare_)                                                        \
    const struct smelt__operator_type smelt__##stem##_type = {.family = &smelt__##stem,            \
                                                              .bytes = sizeof(handle),             \
                                                              .prepare = prepare_,                 \
                                                              .passes = passes,                    \
                                                              .pass_count =                        \
                                                                  sizeof passes / sizeof *passes};

/* The type of an operator with one pass, and its call. `handle`: the struct that begins with
 * smelt_operator; `prepare_` may be NULL; then the fields of the pass. */
#define SMELT__OPERATOR(stem, verb, PASS, handle, prepare_, ...)                                   \
    static const struct smelt__pass passes[] = {SMELT__PASS(stem, verb, PASS, __VA_ARGS__)};       \
    SMELT__TYPE(stem, handle, prepare_)                                                            \
    SMELT__CALL(stem, verb, PASS, smelt_##stem##_args)

/* For a pass's launch: checks the tensors, and the workspace of `needed` bytes. `others`: further
 * memory of the call. Fills in packed strides. INVALID_ARGUMENT. */
smelt_status smelt__call_check(struct smelt__call *call, size_t needed,
                               const struct smelt__memory *others, int count);

/* Fields of a kernel's params: a tensor's address, and the steps of its batches, tokens (or rows) and
 * heads. */
#define SMELT__TENSOR_T(name, tensor) .name = (tensor).data, SMELT__STEP(name, token, tensor, 0)
#define SMELT__TENSOR_S(name, tensor) .name = (tensor).data, SMELT__STEP(name, row, tensor, 0)
#define SMELT__TENSOR_TH(name, tensor)                                                             \
    SMELT__TENSOR_T(name, tensor), SMELT__STEP(name, head, tensor, 1)
#define SMELT__TENSOR_SH(name, tensor)                                                             \
    SMELT__TENSOR_S(name, tensor), SMELT__STEP(name, head, tensor, 1)
#define SMELT__TENSOR_BTH(name, tensor)                                                            \
    .name = (tensor).data, SMELT__STEP(name, batch, tensor, 0),                                    \
    SMELT__STEP(name, token, tensor, 1), SMELT__STEP(name, head, tensor, 2)
#define SMELT__TENSOR_BSH(name, tensor)                                                            \
    .name = (tensor).data, SMELT__STEP(name, batch, tensor, 0), SMELT__STEP(name, row, tensor, 1), \
    SMELT__STEP(name, head, tensor, 2)
#define SMELT__STEP(name, dimension, tensor, number)                                               \
    .name##_##dimension##_stride = (tensor).strides[number]

/* ---- kernels --------------------------------------------------------------------------------- */

/* The kernels of a pass by their roles; NULL for a role that no kernel has. */
static inline const struct smelt__kernel *const *smelt__operator_kernels(const smelt_operator *op,
                                                                         unsigned pass) {
    return op->by_role[pass - 1];
}

/* OK, or INVALID_ARGUMENT for no operator, for no pass, or for one that it was not made for. */
smelt_status smelt__operator_need(const smelt_operator *op, unsigned pass);

/* Whether a grid for `items` can be had of each kernel of a pass that has items. */
smelt_status smelt__operator_check_grid(const smelt_operator *op, unsigned pass, int64_t items);

/* The maximum number of blocks of a launch that leaves `free_multiprocessors` to other streams (and
 * uses at least one); with 0, the kernel's most_blocks. The kernel must process all of its items with
 * any grid. */
int64_t smelt__available_blocks(const struct smelt__kernel *kernel, int64_t free_multiprocessors);

/* Blocks for `items` of a kernel, at most `most`. */
uint32_t smelt__blocks_for(const struct smelt__kernel *kernel, int64_t items, int64_t most);

/* Launches a kernel of a call for `items` items, on all multiprocessors but `free_multiprocessors`. The second
 * function launches it with PDL. */
smelt_status smelt__call_launch(const struct smelt__call *call, const struct smelt__kernel *kernel,
                                int64_t items, int64_t free_multiprocessors, const void *params);
smelt_status smelt__call_launch_pdl(const struct smelt__call *call,
                                    const struct smelt__kernel *kernel, int64_t items,
                                    int64_t free_multiprocessors, const void *params);
