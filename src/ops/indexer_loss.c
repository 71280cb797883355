/* The operator indexer_loss: see smelt/indexer_loss.h. */
#include "smelt/indexer_loss.h"

#include <math.h>

#include "codegen/families/indexer_loss.h"
#include "indexer_loss_rows.params.h"
#include "indexer_loss_sum.params.h"
#include "ops/arguments.h"
#include "ops/indexer_loss_tensors.h"
#include "ops/operator.h"
#include "runtime/log.h"

enum { ROWS, SUM }; /* kernels in launch order */
enum { WORKSPACE_ALIGNMENT = 256, VECTOR = 4 /* elements of 16 bytes */ };

struct smelt_indexer_loss {
    struct smelt__operator kernels;
    int topk;
};

_Static_assert(sizeof(smelt_indexer_loss_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");

/* ---- the spec -------------------------------------------------------------------------------- */

static const struct smelt__spec_field fields[] = {
    {"topk", offsetof(smelt_indexer_loss_spec, topk)}};

static const struct smelt__struct spec_struct =
    SMELT__STRUCT_VALUE(smelt_indexer_loss_spec, "spec", "SMELT_INDEXER_LOSS_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__indexer_loss,
    .about = &spec_struct,
    .object = "loss",
    .object_bytes = sizeof(smelt_indexer_loss),
    .fields = fields,
    .count = sizeof fields / sizeof *fields,
    .knobs = offsetof(smelt_indexer_loss_spec, knobs),
    .reserved = offsetof(smelt_indexer_loss_spec, reserved),
};

smelt_status smelt_indexer_loss_spec_print(const smelt_indexer_loss_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_indexer_loss_spec_parse(const char *text, smelt_indexer_loss_spec *spec,
                                           char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_indexer_loss_supported(const smelt_context *context,
                                          const smelt_indexer_loss_spec *spec, const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

smelt_status smelt_indexer_loss_create(smelt_indexer_loss **loss, smelt_context *context,
                                       const smelt_indexer_loss_spec *given) {
    struct smelt__spec spec;
    const smelt_status status = smelt__operator_create(&spec_table, loss, context, given, &spec);
    if (status == SMELT_OK)
        (*loss)->topk = (int)smelt__spec_get(&spec, "topk");
    return status;
}

void smelt_indexer_loss_destroy(smelt_indexer_loss **loss) {
    smelt__operator_destroy(loss);
}

smelt_status smelt_indexer_loss_get_kernel_info(const smelt_indexer_loss *loss, int index,
                                                smelt_kernel_info *info) {
    if (!loss)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "loss is NULL");
    return smelt__operator_get_kernel_info(&loss->kernels, SMELT_PASS_FORWARD, index, info);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* This library's copy of the arguments, with a legal number of queries. */
static smelt_status read_args(const smelt_indexer_loss_args *given, smelt_indexer_loss_args *args) {
    const smelt_status status =
        smelt__struct_read(SMELT__STRUCT(smelt_indexer_loss_args, "args",
                                         "SMELT_INDEXER_LOSS_ARGS_INIT", workspace_bytes),
                           given, args);
    return status == SMELT_OK ? smelt__check_extent("tokens", args->tokens, 0, INT32_MAX) : status;
}

/* Where the caller keeps no queries' losses, the call does. */
static size_t workspace_bytes(const smelt_indexer_loss_args *args) {
    return args->losses.data ? 0 : (size_t)args->tokens * sizeof(float);
}

static smelt_status check_numbers(const smelt_indexer_loss *loss,
                                  const smelt_indexer_loss_args *args) {
    smelt_status status = smelt__check_extent("rows", args->rows, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("width", args->width, 1, loss->topk);
    if (status == SMELT_OK)
        status =
            smelt__check_extent("free_multiprocessors", args->free_multiprocessors, 0, INT32_MAX);
    if (status == SMELT_OK && (!isfinite(args->query_weight) || args->query_weight == 0))
        status = smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                             "query_weight = %g is not legal; legal: finite numbers but 0, for "
                             "example 1, or 1 / tokens for a mean",
                             (double)args->query_weight);
    return status;
}

static smelt_status check_args(const smelt_indexer_loss *loss, smelt_indexer_loss_args *args) {
    const size_t needed = workspace_bytes(args);
    const int64_t extents[SMELT__INDEXER_LOSS_SYMBOLS] = {args->tokens, args->width, 1};
    const struct smelt__memory workspace = {"workspace", args->workspace,
                                            needed ? args->workspace_bytes : 0, 1};
    smelt_status status = check_numbers(loss, args);
    if (status == SMELT_OK)
        status = smelt__check_tensors(&smelt__indexer_loss_tensors, SMELT_PASS_FORWARD, extents,
                                      args, &workspace, 1);
    return status == SMELT_OK
               ? smelt__check_workspace(args->workspace, args->workspace_bytes, needed,
                                        WORKSPACE_ALIGNMENT, "smelt_indexer_loss_forward_workspace")
               : status;
}

smelt_status smelt_indexer_loss_forward_workspace(const smelt_indexer_loss *loss,
                                                  const smelt_indexer_loss_args *given,
                                                  size_t *bytes) {
    smelt_indexer_loss_args args;
    if (!loss || !bytes)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL", loss ? "bytes" : "loss");
    *bytes = 0;
    const smelt_status status = read_args(given, &args);
    if (status == SMELT_OK)
        *bytes = workspace_bytes(&args);
    return status;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Whether rows of a matrix start at multiples of 16 bytes; nothing does. */
static int starts_whole(const void *data, int64_t stride) {
    return (uintptr_t)data % SMELT__ROW_BYTES == 0 && stride % VECTOR == 0;
}

static struct indexer_loss_rows_params rows_params(const smelt_indexer_loss_args *args) {
    return (struct indexer_loss_rows_params){
        .logits = args->logits.data,
        .target = args->target.data,
        .indices = args->indices.data,
        .topk_length = args->topk_length.data,
        .weight = args->weight.data,
        .grad_loss = args->grad_loss.data,
        .losses = args->losses.data ? args->losses.data : args->workspace,
        .grad = args->grad.data,
        .logits_stride = args->logits.strides[0],
        .target_stride = args->target.strides[0],
        .indices_stride = args->indices.strides[0],
        .topk_length_stride = args->topk_length.strides[0],
        .grad_stride = args->grad.data ? args->grad.strides[0] : 0,
        .queries = (int)args->tokens,
        .rows = (int)args->rows,
        .width = (int)args->width,
        .query_weight = args->query_weight,
        .whole = args->width % VECTOR == 0 &&
                 starts_whole(args->logits.data, args->logits.strides[0]) &&
                 starts_whole(args->target.data, args->target.strides[0]) &&
                 starts_whole(args->indices.data, args->indices.strides[0]) &&
                 (!args->grad.data || starts_whole(args->grad.data, args->grad.strides[0])),
    };
}

smelt_status smelt_indexer_loss_forward(const smelt_indexer_loss *loss,
                                        const smelt_indexer_loss_args *given,
                                        struct CUstream_st *stream) {
    smelt_indexer_loss_args args;
    if (!loss)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "loss is NULL");
    smelt_status status = read_args(given, &args);
    if (status == SMELT_OK)
        status = check_args(loss, &args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__kernel *rows = loss->kernels.kernels[ROWS];
    const struct indexer_loss_rows_params queries = rows_params(&args);
    if (args.tokens > 0) {
        const int64_t most = smelt__blocks_beside(rows, args.free_multiprocessors);
        const struct smelt__launch launch = {.blocks = {smelt__blocks_for(rows, args.tokens, most)},
                                             .params = &queries};
        status = smelt__kernel_launch(loss->kernels.context, rows, &launch, stream);
    }
    if (status != SMELT_OK)
        return status;
    const struct indexer_loss_sum_params all = {
        .losses = queries.losses, .loss = args.loss.data, .queries = queries.queries};
    const struct smelt__launch sum = {.blocks = {1}, .pdl = args.tokens > 0, .params = &all};
    return smelt__kernel_launch(loss->kernels.context, loss->kernels.kernels[SUM], &sum, stream);
}
