/* The operator indexer_scores: see smelt/indexer_scores.h. */
#include "smelt/indexer_scores.h"

#include <inttypes.h>

#include "common/work.params.h"
#include "indexer_scores_fwd.params.h"
#include "ops/arguments.h"
#include "ops/indexer_scores_tensors.h"
#include "ops/operator.h"
#include "runtime/log.h"

extern const struct smelt__family smelt__indexer_scores; /* as registry.c declares it */

struct smelt_indexer_scores {
    struct smelt__operator kernels;
    int heads, dim, topk;
};

/* ---- spec ------------------------------------------------------------------------------------ */

_Static_assert(sizeof(smelt_indexer_scores_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");

#define FIELD(key)                                                                                 \
    { #key, offsetof(smelt_indexer_scores_spec, key) }

static const struct smelt__spec_field fields[] = {FIELD(heads), FIELD(dim), FIELD(topk)};

static const struct smelt__struct spec_struct =
    SMELT__STRUCT_VALUE(smelt_indexer_scores_spec, "spec", "SMELT_INDEXER_SCORES_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__indexer_scores,
    .about = &spec_struct,
    .object = "scores",
    .object_bytes = sizeof(smelt_indexer_scores),
    .fields = fields,
    .count = sizeof fields / sizeof *fields,
    .knobs = offsetof(smelt_indexer_scores_spec, knobs),
    .reserved = offsetof(smelt_indexer_scores_spec, reserved),
};

smelt_status smelt_indexer_scores_spec_print(const smelt_indexer_scores_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_indexer_scores_spec_parse(const char *text, smelt_indexer_scores_spec *spec,
                                             char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_indexer_scores_supported(const smelt_context *context,
                                            const smelt_indexer_scores_spec *spec,
                                            const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

smelt_status smelt_indexer_scores_create(smelt_indexer_scores **scores, smelt_context *context,
                                         const smelt_indexer_scores_spec *given) {
    struct smelt__spec spec;
    const smelt_status status = smelt__operator_create(&spec_table, scores, context, given, &spec);
    if (status != SMELT_OK)
        return status;
    (*scores)->heads = (int)smelt__spec_get(&spec, "heads");
    (*scores)->dim = (int)smelt__spec_get(&spec, "dim");
    (*scores)->topk = (int)smelt__spec_get(&spec, "topk");
    return SMELT_OK;
}

void smelt_indexer_scores_destroy(smelt_indexer_scores **scores) {
    smelt__operator_destroy(scores);
}

smelt_status smelt_indexer_scores_get_kernel_info(const smelt_indexer_scores *scores, int index,
                                                  smelt_kernel_info *info) {
    if (!scores)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "scores is NULL");
    return smelt__operator_get_kernel_info(&scores->kernels, SMELT_PASS_FORWARD, index, info);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static smelt_status check_width(const smelt_indexer_scores *scores, int64_t width) {
    if (width >= 1 && width <= scores->topk)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "width = %" PRId64 " is out of range; this operator was made for topk=%d: "
                       "legal are 1..%d, or make one with a larger topk",
                       width, scores->topk, scores->topk);
}

/* Checks a call and fills in packed strides. */
static smelt_status check_args(const smelt_indexer_scores *scores,
                               const smelt_indexer_scores_args *given,
                               smelt_indexer_scores_args *args) {
    smelt_status status = smelt__struct_read(
        SMELT__STRUCT(smelt_indexer_scores_args, "args", "SMELT_INDEXER_SCORES_ARGS_INIT", logits),
        given, args);
    if (status == SMELT_OK)
        status = smelt__check_extent("tokens", args->tokens, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", args->rows, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = check_width(scores, args->width);
    if (status == SMELT_OK)
        status =
            smelt__check_extent("free_multiprocessors", args->free_multiprocessors, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("reserved", args->reserved, 0, 0);
    if (status != SMELT_OK || args->tokens == 0)
        return status; /* of an empty call no tensor is looked at */
    const int64_t extents[SMELT__INDEXER_SCORES_SYMBOLS] = {
        [SMELT__INDEXER_SCORES_T] = args->tokens,    [SMELT__INDEXER_SCORES_S] = args->rows,
        [SMELT__INDEXER_SCORES_H] = scores->heads,   [SMELT__INDEXER_SCORES_D] = scores->dim,
        [SMELT__INDEXER_SCORES_WIDTH] = args->width, [SMELT__INDEXER_SCORES_ONE] = 1,
    };
    return smelt__check_tensors(&smelt__indexer_scores_tensors, SMELT_PASS_FORWARD, extents, args,
                                NULL, 0);
}

/* ---- launching ------------------------------------------------------------------------------- */

static struct indexer_scores_fwd_params pack(const smelt_indexer_scores_args *args) {
    return (struct indexer_scores_fwd_params){
        .work = {.indices = args->indices.data,
                 .topk_length = args->topk_length.data,
                 .indices_token_stride = args->indices.strides[0],
                 .topk_length_token_stride = args->topk_length.strides[0],
                 .batches = 1,
                 .tokens = (int)args->tokens,
                 .rows = (int)args->rows,
                 .width = (int)args->width,
                 .query_capacity = (int)args->tokens},
        .q = args->q.data,
        .k = args->k.data,
        .weights = args->weights.data,
        .logits = args->logits.data,
        .q_token_stride = args->q.strides[0],
        .q_head_stride = args->q.strides[1],
        .weights_token_stride = args->weights.strides[0],
        .logits_token_stride = args->logits.strides[0],
        .k_row_bytes = 2 * (unsigned)args->k.strides[0],
    };
}

smelt_status smelt_indexer_scores_forward(const smelt_indexer_scores *scores,
                                          const smelt_indexer_scores_args *given,
                                          struct CUstream_st *stream) {
    smelt_indexer_scores_args args;
    if (!scores)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "scores is NULL");
    const smelt_status status = check_args(scores, given, &args);
    if (status != SMELT_OK || args.tokens == 0)
        return status;
    const struct indexer_scores_fwd_params params = pack(&args);
    const struct smelt__kernel *const kernel = scores->kernels.kernels[0];
    const int64_t most = smelt__blocks_beside(kernel, args.free_multiprocessors);
    const struct smelt__launch launch = {.blocks = {smelt__blocks_for(kernel, args.tokens, most)},
                                         .params = &params};
    return smelt__kernel_launch(scores->kernels.context, kernel, &launch, stream);
}
