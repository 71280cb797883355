/* The operator topk_select: see smelt/topk_select.h. */

#include "codegen/families/topk_select.h"
#include "codegen/families/topk_select_rows.h"
#include "ops/arguments.h"
#include "ops/operator.h"
#include "ops/topk_select_rows.h"
#include "ops/topk_select_tensors.h"
#include "runtime/log.h"
#include "smelt/topk_select.h"

struct smelt_topk_select {
    struct smelt__operator kernels;
    struct smelt__topk_kernels passes; /* the same kernels by name */
};

_Static_assert(sizeof(smelt_topk_select_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");
_Static_assert((int)SMELT_TOPK_BY_SCORE == (int)SMELT__TOPK_BY_SCORE, "the key's values");

/* ---- the spec -------------------------------------------------------------------------------- */

#define FIELD(name)                                                                                \
    { #name, offsetof(smelt_topk_select_spec, name) }

static const struct smelt__spec_field fields[] = {FIELD(topk), FIELD(order)};

static const struct smelt__struct spec_struct =
    SMELT__STRUCT_VALUE(smelt_topk_select_spec, "spec", "SMELT_TOPK_SELECT_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__topk_select,
    .about = &spec_struct,
    .object = "select",
    .object_bytes = sizeof(smelt_topk_select),
    .fields = fields,
    .count = sizeof fields / sizeof *fields,
    .knobs = offsetof(smelt_topk_select_spec, knobs),
};

smelt_status smelt_topk_select_spec_print(const smelt_topk_select_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_topk_select_spec_parse(const char *text, smelt_topk_select_spec *spec,
                                          char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_topk_select_supported(const smelt_context *context,
                                         const smelt_topk_select_spec *spec, const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

smelt_status smelt_topk_select_create(smelt_topk_select **select, smelt_context *context,
                                      const smelt_topk_select_spec *given) {
    struct smelt__spec spec;
    const smelt_status status = smelt__operator_create(&spec_table, select, context, given, &spec);
    if (status == SMELT_OK)
        (*select)->passes = smelt__topk_kernels_from((*select)->kernels.kernels,
                                                     (int)smelt__spec_get(&spec, "topk"));
    return status;
}

void smelt_topk_select_destroy(smelt_topk_select **select) {
    smelt__operator_destroy(select);
}

smelt_status smelt_topk_select_get_kernel_info(const smelt_topk_select *select, int index,
                                               smelt_kernel_info *info) {
    if (!select)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "select is NULL");
    return smelt__operator_get_kernel_info(&select->kernels, SMELT_PASS_FORWARD, index, info);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* This library's copy of the arguments, whose extents are legal. */
static smelt_status read_args(const smelt_topk_select_args *given, smelt_topk_select_args *args) {
    smelt_status status =
        smelt__struct_read(SMELT__STRUCT(smelt_topk_select_args, "args",
                                         "SMELT_TOPK_SELECT_ARGS_INIT", workspace_bytes),
                           given, args);
    if (status == SMELT_OK)
        status = smelt__check_extent("tokens", args->tokens, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", args->rows, 0, SMELT__TOPK_MOST_COLUMNS);
    return status;
}

static size_t workspace_bytes(const smelt_topk_select *select, const smelt_topk_select_args *args) {
    return smelt__topk_workspace(&select->passes, args->tokens, args->rows);
}

static smelt_status check_args(const smelt_topk_select *select, smelt_topk_select_args *args) {
    const size_t needed = workspace_bytes(select, args);
    const int64_t extents[SMELT__TOPK_SELECT_SYMBOLS] = {args->tokens, args->rows,
                                                         select->passes.topk};
    const struct smelt__memory workspace = {"workspace", args->workspace,
                                            needed ? args->workspace_bytes : 0, 1};
    smelt_status status = smelt__check_extent("reserved", args->reserved, 0, 0);
    if (status == SMELT_OK && !args->window_begin.data != !args->window_end.data)
        status = smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                             "%s is NULL and %s is not; windows need both, whole rows neither",
                             args->window_begin.data ? "window_end" : "window_begin",
                             args->window_begin.data ? "window_begin" : "window_end");
    if (status == SMELT_OK)
        status = smelt__check_tensors(&smelt__topk_select_tensors, SMELT_PASS_FORWARD, extents,
                                      args, &workspace, 1);
    return status == SMELT_OK ? smelt__check_workspace(args->workspace, args->workspace_bytes,
                                                       needed, SMELT__TOPK_ALIGNMENT,
                                                       "smelt_topk_select_forward_workspace")
                              : status;
}

smelt_status smelt_topk_select_forward_workspace(const smelt_topk_select *select,
                                                 const smelt_topk_select_args *given,
                                                 size_t *bytes) {
    smelt_topk_select_args args;
    if (!select || !bytes)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL", select ? "bytes" : "select");
    *bytes = 0;
    const smelt_status status = read_args(given, &args);
    if (status == SMELT_OK)
        *bytes = workspace_bytes(select, &args);
    return status;
}

/* ---- launching ------------------------------------------------------------------------------- */

smelt_status smelt_topk_select_forward(const smelt_topk_select *select,
                                       const smelt_topk_select_args *given,
                                       struct CUstream_st *stream) {
    smelt_topk_select_args args;
    if (!select)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "select is NULL");
    smelt_status status = read_args(given, &args);
    if (status != SMELT_OK || args.tokens == 0)
        return status;
    status = check_args(select, &args);
    if (status != SMELT_OK)
        return status;
    const struct topk_select_rows_params params = {
        .logits = args.logits.data,
        .window_begin = args.window_begin.data,
        .window_end = args.window_end.data,
        .offset = args.offset.data,
        .indices = args.indices.data,
        .values = args.values.data,
        .lengths = args.lengths.data,
        .logits_stride = args.logits.strides[0],
        .indices_stride = args.indices.strides[0],
        .values_stride = args.values.strides[0],
        .rows = (int)args.tokens,
        .columns = (int)args.rows,
        .index_offset = args.index_offset,
    };
    return smelt__topk_launch(select->kernels.context, &select->passes, &params, args.workspace,
                              stream);
}
