/* The tests' toy operator: see smelt/toy.h. */
#include "smelt/toy.h"

#include <math.h>

#include "ops/arguments.h"
#include "ops/operator.h"
#include "ops/toy_tensors.h"
#include "runtime/log.h"
#include "toy_scale.params.h"

extern const struct smelt__family smelt__toy;

struct smelt_toy {
    struct smelt__operator kernels;
    int width;
};

_Static_assert(sizeof(smelt_toy_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");

static const struct smelt__spec_field fields[] = {{"width", offsetof(smelt_toy_spec, width)}};

static const struct smelt__struct spec_struct = {.argument = "spec",
                                                 .initialiser = "SMELT_TOY_SPEC_INIT",
                                                 .known = sizeof(smelt_toy_spec),
                                                 .first = sizeof(smelt_toy_spec)};

static const struct smelt__spec_table spec_table = {.family = &smelt__toy,
                                                    .about = &spec_struct,
                                                    .object = "toy",
                                                    .object_bytes = sizeof(smelt_toy),
                                                    .fields = fields,
                                                    .count = 1,
                                                    .knobs = offsetof(smelt_toy_spec, knobs),
                                                    .passes = offsetof(smelt_toy_spec, passes)};

smelt_status smelt_toy_spec_print(const smelt_toy_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_toy_spec_parse(const char *text, smelt_toy_spec *spec, char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_toy_supported(smelt_context *context, const smelt_toy_spec *spec,
                                 const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

smelt_status smelt_toy_create(smelt_toy **toy, smelt_context *context,
                              const smelt_toy_spec *given) {
    struct smelt__spec spec;
    const smelt_status status = smelt__operator_create(&spec_table, toy, context, given, &spec);
    if (status == SMELT_OK)
        (*toy)->width = (int)smelt__spec_get(&spec, "width");
    return status;
}

void smelt_toy_destroy(smelt_toy **toy) {
    smelt__operator_destroy(toy);
}

/* Checks a call of a pass, whose tensors are `from` and `to`, and launches its kernel. */
static smelt_status launch(const smelt_toy *toy, unsigned pass, enum smelt__toy_tensor from,
                           enum smelt__toy_tensor to, const smelt_toy_args *given,
                           struct CUstream_st *stream) {
    smelt_toy_args args;
    int count;
    if (!toy)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "toy is NULL");
    smelt_status status = smelt__struct_read(
        SMELT__STRUCT(smelt_toy_args, "args", "SMELT_TOY_ARGS_INIT", dx), given, &args);
    if (status == SMELT_OK)
        status = smelt__operator_need_pass(&toy->kernels, pass);
    if (status == SMELT_OK)
        status = smelt__check_extent("tokens", args.tokens, 0, INT32_MAX);
    if (status == SMELT_OK && !isfinite(args.factor))
        status = smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                             "factor = %g is not legal; it must be "
                             "finite",
                             (double)args.factor);
    if (status != SMELT_OK || args.tokens == 0)
        return status;
    const int64_t extents[SMELT__TOY_SYMBOLS] = {args.tokens, toy->width};
    status = smelt__check_tensors(&smelt__toy_tensors, pass, extents, &args, NULL, 0);
    if (status != SMELT_OK)
        return status;
    const smelt_tensor *source = smelt__tensor_in(&smelt__toy_tensors.rows[from], &args);
    const smelt_tensor *target = smelt__tensor_in(&smelt__toy_tensors.rows[to], &args);
    const struct toy_scale_params params = {.from = source->data,
                                            .to = target->data,
                                            .from_row_stride = source->strides[0],
                                            .to_row_stride = target->strides[0],
                                            .rows = (int)args.tokens,
                                            .factor = args.factor};
    const int first = smelt__operator_pass(&toy->kernels, pass, &count);
    const struct smelt__kernel *kernel = toy->kernels.kernels[first];
    const struct smelt__launch one = {
        .blocks = {smelt__blocks_for(kernel, args.tokens, kernel->most_blocks)}, .params = &params};
    return smelt__kernel_launch(toy->kernels.context, kernel, &one, stream);
}

smelt_status smelt_toy_forward(const smelt_toy *toy, const smelt_toy_args *args,
                               struct CUstream_st *stream) {
    return launch(toy, SMELT_PASS_FORWARD, SMELT__TOY_X, SMELT__TOY_OUT, args, stream);
}

smelt_status smelt_toy_backward(const smelt_toy *toy, const smelt_toy_args *args,
                                struct CUstream_st *stream) {
    return launch(toy, SMELT_PASS_BACKWARD, SMELT__TOY_GRAD, SMELT__TOY_DX, args, stream);
}
