/* The operator indexer_quantize: see smelt/indexer_quantize.h. */
#include "smelt/indexer_quantize.h"

#include "codegen/families/indexer_quantize.h"
#include "indexer_quantize_rows.params.h"
#include "ops/arguments.h"
#include "ops/indexer_quantize_tensors.h"
#include "ops/operator.h"
#include "runtime/log.h"

struct smelt_indexer_quantize {
    struct smelt__operator kernels;
    int dim;
};

_Static_assert(sizeof(smelt_indexer_quantize_spec) <= SMELT__MOST_SPEC_BYTES,
               "operator.c copies it");

/* ---- the spec -------------------------------------------------------------------------------- */

static const struct smelt__spec_field fields[] = {
    {"dim", offsetof(smelt_indexer_quantize_spec, dim)},
    {"scale", offsetof(smelt_indexer_quantize_spec, scale)},
};

static const struct smelt__struct spec_struct = SMELT__STRUCT_VALUE(
    smelt_indexer_quantize_spec, "spec", "SMELT_INDEXER_QUANTIZE_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__indexer_quantize,
    .about = &spec_struct,
    .object = "quantize",
    .object_bytes = sizeof(smelt_indexer_quantize),
    .fields = fields,
    .count = sizeof fields / sizeof *fields,
    .knobs = offsetof(smelt_indexer_quantize_spec, knobs),
};

smelt_status smelt_indexer_quantize_spec_print(const smelt_indexer_quantize_spec *spec,
                                               char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_indexer_quantize_spec_parse(const char *text, smelt_indexer_quantize_spec *spec,
                                               char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_indexer_quantize_supported(const smelt_context *context,
                                              const smelt_indexer_quantize_spec *spec,
                                              const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

smelt_status smelt_indexer_quantize_create(smelt_indexer_quantize **quantize,
                                           smelt_context *context,
                                           const smelt_indexer_quantize_spec *given) {
    struct smelt__spec spec;
    const smelt_status status =
        smelt__operator_create(&spec_table, quantize, context, given, &spec);
    if (status == SMELT_OK)
        (*quantize)->dim = (int)smelt__spec_get(&spec, "dim");
    return status;
}

void smelt_indexer_quantize_destroy(smelt_indexer_quantize **quantize) {
    smelt__operator_destroy(quantize);
}

smelt_status smelt_indexer_quantize_get_kernel_info(const smelt_indexer_quantize *quantize,
                                                    int index, smelt_kernel_info *info) {
    if (!quantize)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "quantize is NULL");
    return smelt__operator_get_kernel_info(&quantize->kernels, SMELT_PASS_FORWARD, index, info);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* This library's copy of the arguments, checked. */
static smelt_status read_args(const smelt_indexer_quantize *quantize,
                              const smelt_indexer_quantize_args *given,
                              smelt_indexer_quantize_args *args) {
    smelt_status status =
        smelt__struct_read(SMELT__STRUCT(smelt_indexer_quantize_args, "args",
                                         "SMELT_INDEXER_QUANTIZE_ARGS_INIT", factor),
                           given, args);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", args->rows, 0, INT32_MAX);
    if (status == SMELT_OK)
        status =
            smelt__check_extent("free_multiprocessors", args->free_multiprocessors, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("reserved", args->reserved, 0, 0);
    if (status != SMELT_OK || args->rows == 0)
        return status; /* of an empty call no tensor is looked at */
    const int64_t extents[SMELT__INDEXER_QUANTIZE_SYMBOLS] = {args->rows, quantize->dim};
    return smelt__check_tensors(&smelt__indexer_quantize_tensors, SMELT_PASS_FORWARD, extents, args,
                                NULL, 0);
}

smelt_status smelt_indexer_quantize_forward(const smelt_indexer_quantize *quantize,
                                            const smelt_indexer_quantize_args *given,
                                            struct CUstream_st *stream) {
    smelt_indexer_quantize_args args;
    if (!quantize)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "quantize is NULL");
    smelt_status status = read_args(quantize, given, &args);
    if (status != SMELT_OK || args.rows == 0)
        return status;
    const struct indexer_quantize_rows_params params = {
        .x = args.x.data,
        .y = args.y.data,
        .scale = args.scale.data,
        .factor = args.factor.data,
        .x_row_stride = args.x.strides[0],
        .y_row_stride = args.y.strides[0],
        .rows = (int)args.rows,
    };
    const struct smelt__kernel *kernel = quantize->kernels.kernels[0];
    const int64_t items = (args.rows - 1) / smelt__indexer_quantize_block_rows(quantize->dim) + 1;
    const int64_t most = smelt__blocks_beside(kernel, args.free_multiprocessors);
    const struct smelt__launch launch = {.blocks = {smelt__blocks_for(kernel, items, most)},
                                         .params = &params};
    return smelt__kernel_launch(quantize->kernels.context, kernel, &launch, stream);
}
