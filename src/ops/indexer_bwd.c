/* The operator indexer_bwd: see smelt/indexer_bwd.h. */
#include "smelt/indexer_bwd.h"

#include <inttypes.h>
#include <stdint.h>

#include "ops/arguments.h"
#include "ops/divide.h"
#include "ops/indexer_bwd_launch.h"
#include "ops/indexer_bwd_tensors.h"

enum { KEY_STEP = 64 /* lists are padded to whole blocks of it */ };

_Static_assert(sizeof(smelt_indexer_bwd_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");

/* ---- the spec -------------------------------------------------------------------------------- */

#define FIELD(key)                                                                                 \
    { #key, offsetof(smelt_indexer_bwd_spec, key) }

static const struct smelt__spec_field fields[] = {FIELD(heads), FIELD(dim), FIELD(topk),
                                                  FIELD(deterministic)};

static const struct smelt__struct spec_struct =
    SMELT__STRUCT_VALUE(smelt_indexer_bwd_spec, "spec", "SMELT_INDEXER_BWD_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__indexer_bwd,
    .about = &spec_struct,
    .object = "indexer",
    .object_bytes = sizeof(smelt_indexer_bwd),
    .fields = fields,
    .count = sizeof fields / sizeof *fields,
    .knobs = offsetof(smelt_indexer_bwd_spec, knobs),
};

smelt_status smelt_indexer_bwd_spec_print(const smelt_indexer_bwd_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_indexer_bwd_spec_parse(const char *text, smelt_indexer_bwd_spec *spec,
                                          char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_indexer_bwd_supported(const smelt_context *context,
                                         const smelt_indexer_bwd_spec *spec, const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

/* What is kept besides the kernels. */
static void keep_plan(smelt_indexer_bwd *made, const struct smelt__spec *spec) {
    made->heads = (int)smelt__spec_get(spec, "heads");
    made->dim = (int)smelt__spec_get(spec, "dim");
    made->topk = (int)smelt__spec_get(spec, "topk");
    made->deterministic = (int)smelt__spec_get(spec, "deterministic");
    const int main = smelt__indexer_bwd_place(made, SMELT__INDEXER_BWD_MAIN);
    made->main = *smelt__indexer_bwd_main_launch(&made->kernels.kernels[main]->plan);
}

smelt_status smelt_indexer_bwd_create(smelt_indexer_bwd **indexer, smelt_context *context,
                                      const smelt_indexer_bwd_spec *given) {
    struct smelt__spec spec;
    const smelt_status status = smelt__operator_create(&spec_table, indexer, context, given, &spec);
    if (status == SMELT_OK)
        keep_plan(*indexer, &spec);
    return status;
}

void smelt_indexer_bwd_destroy(smelt_indexer_bwd **indexer) {
    smelt__operator_destroy(indexer);
}

smelt_status smelt_indexer_bwd_get_kernel_info(const smelt_indexer_bwd *indexer, int index,
                                               smelt_kernel_info *info) {
    if (!indexer)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "indexer is NULL");
    return smelt__operator_get_kernel_info(&indexer->kernels, SMELT_PASS_BACKWARD, index, info);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* This library's copy of the arguments, whose extents are legal. */
static smelt_status read_args(const smelt_indexer_bwd *indexer, const smelt_indexer_bwd_args *given,
                              smelt_indexer_bwd_args *args) {
    smelt_status status = smelt__struct_read(
        SMELT__STRUCT(smelt_indexer_bwd_args, "args", "SMELT_INDEXER_BWD_ARGS_INIT", reserved),
        given, args);
    if (status == SMELT_OK)
        status = smelt__check_extent("tokens", args->tokens, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", args->rows, 0, INT32_MAX);
    if (status != SMELT_OK || (args->width >= 1 && args->width <= indexer->topk))
        return status;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "width = %" PRId64 " is out of range; this operator was made for topk=%d: "
                       "legal are 1..%d, or make one with a larger topk",
                       args->width, indexer->topk, indexer->topk);
}

static struct smelt__indexer_bwd_layout find_layout(const smelt_indexer_bwd *indexer,
                                                    const smelt_indexer_bwd_args *args) {
    const struct smelt__key_grads_shape shape = smelt__indexer_bwd_shape(indexer);
    const int64_t groups = smelt__divide_up(args->tokens, indexer->main.group_queries);
    const int64_t entries = groups * indexer->main.group_queries;
    struct smelt__indexer_bwd_layout layout = {0};
    layout.dk.groups = groups;
    layout.dk.key_count = args->rows;
    layout.dk.key_stride =
        (int)(smelt__divide_up(args->width * indexer->main.group_queries, KEY_STEP) * KEY_STEP);
    layout.members = smelt__workspace_place(&layout.bytes, entries, sizeof(int));
    layout.dk.counts = smelt__workspace_place(&layout.bytes, groups, sizeof(int));
    layout.runs = smelt__workspace_place(&layout.bytes, indexer->main.group_tiles > 1 ? groups : 0,
                                         2 * sizeof(int));
    layout.dk.keys =
        smelt__workspace_place(&layout.bytes, groups * layout.dk.key_stride, sizeof(int));
    layout.grads =
        smelt__workspace_place(&layout.bytes, entries * layout.dk.key_stride, sizeof(float));
    if (indexer->deterministic) {
        layout.reach = smelt__workspace_place(&layout.bytes, entries, sizeof(float));
        layout.tops = smelt__workspace_place(&layout.bytes, SMELT__INDEXER_BWD_TOPS, sizeof(float));
        layout.grains = smelt__workspace_place(&layout.bytes, args->rows, sizeof(float));
        layout.totals = smelt__workspace_place(
            &layout.bytes, groups > indexer->main.exact_groups ? args->rows * indexer->dim : 0,
            sizeof(float));
    }
    layout.bounds = smelt__workspace_place(&layout.bytes, indexer->deterministic ? args->rows : 0,
                                           SMELT__INDEXER_BWD_UNIT_KINDS * sizeof(unsigned));
    smelt__key_grads_place(&shape, 0, &layout.bytes, &layout.dk);
    return layout;
}

/* Exactly one kind of dk. */
static smelt_status check_outputs(const smelt_indexer_bwd_args *args) {
    const int kinds = !!args->dk.data + !!args->dk_fp32.data + !!args->dk_sum.data;
    if (kinds == 1 || (kinds == 0 && args->rows == 0))
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s of dk, dk_fp32 and dk_sum %s given; give exactly one: bf16, fp32, or "
                       "fp32 to be added to",
                       kinds ? "several" : "none", kinds ? "are" : "is");
}

static smelt_status check_args(const smelt_indexer_bwd *indexer, smelt_indexer_bwd_args *args,
                               const struct smelt__indexer_bwd_layout *layout) {
    const int64_t extents[SMELT__INDEXER_BWD_SYMBOLS] = {
        [SMELT__INDEXER_BWD_T] = args->tokens,    [SMELT__INDEXER_BWD_S] = args->rows,
        [SMELT__INDEXER_BWD_H] = indexer->heads,  [SMELT__INDEXER_BWD_D] = indexer->dim,
        [SMELT__INDEXER_BWD_WIDTH] = args->width, [SMELT__INDEXER_BWD_ONE] = 1,
    };
    const struct smelt__memory workspace = {"workspace", args->workspace,
                                            layout->bytes ? args->workspace_bytes : 0, 1};
    smelt_status status =
        smelt__check_extent("free_multiprocessors", args->free_multiprocessors, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("reserved", args->reserved, 0, 0);
    if (status == SMELT_OK)
        status = check_outputs(args);
    if (status == SMELT_OK)
        status = smelt__check_tensors(&smelt__indexer_bwd_tensors, SMELT_PASS_BACKWARD, extents,
                                      args, &workspace, 1);
    if (status == SMELT_OK)
        status = smelt__check_workspace(args->workspace, args->workspace_bytes, layout->bytes,
                                        SMELT__BACKWARD_ALIGNMENT,
                                        "smelt_indexer_bwd_backward_workspace");
    return status == SMELT_OK ? smelt__operator_check_grid(&indexer->kernels, SMELT_PASS_BACKWARD,
                                                           layout->dk.groups)
                              : status;
}

smelt_status smelt_indexer_bwd_backward_workspace(const smelt_indexer_bwd *indexer,
                                                  const smelt_indexer_bwd_args *given,
                                                  size_t *bytes) {
    smelt_indexer_bwd_args args;
    if (!indexer || !bytes)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL",
                           indexer ? "bytes" : "indexer");
    *bytes = 0;
    const smelt_status status = read_args(indexer, given, &args);
    if (status == SMELT_OK)
        *bytes = find_layout(indexer, &args).bytes;
    return status;
}

smelt_status smelt_indexer_bwd_backward(const smelt_indexer_bwd *indexer,
                                        const smelt_indexer_bwd_args *given,
                                        struct CUstream_st *stream) {
    smelt_indexer_bwd_args args;
    int pushed;
    if (!indexer)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "indexer is NULL");
    smelt_status status = read_args(indexer, given, &args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__indexer_bwd_call call = {indexer, &args, find_layout(indexer, &args),
                                                 stream};
    status = check_args(indexer, &args, &call.layout);
    if (status == SMELT_OK) /* the CUDA context is made current once for all launches */
        status = smelt__context_enter(indexer->kernels.context, &pushed);
    if (status != SMELT_OK)
        return status;
    status = smelt__indexer_bwd_launch(&call);
    smelt__context_leave(indexer->kernels.context, pushed);
    return status;
}
