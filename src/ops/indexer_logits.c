/* The operator indexer_logits: see smelt/indexer_logits.h. */
#include "smelt/indexer_logits.h"

#include "ops/arguments.h"
#include "ops/indexer_logits_launch.h"
#include "ops/indexer_logits_tensors.h"
#include "ops/operator.h"
#include "runtime/log.h"

extern const struct smelt__family smelt__indexer_logits; /* as registry.c declares it */

struct smelt_indexer_logits {
    struct smelt__operator kernels;
    struct smelt__indexer_scorer scorer;
};

/* ---- spec ------------------------------------------------------------------------------------ */

_Static_assert(sizeof(smelt_indexer_logits_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");

#define FIELD(key)                                                                                 \
    { #key, offsetof(smelt_indexer_logits_spec, key) }

static const struct smelt__spec_field fields[] = {FIELD(heads), FIELD(dim), FIELD(dtype)};

static const struct smelt__struct spec_struct =
    SMELT__STRUCT_VALUE(smelt_indexer_logits_spec, "spec", "SMELT_INDEXER_LOGITS_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__indexer_logits,
    .about = &spec_struct,
    .object = "indexer",
    .object_bytes = sizeof(smelt_indexer_logits),
    .fields = fields,
    .count = sizeof fields / sizeof *fields,
    .knobs = offsetof(smelt_indexer_logits_spec, knobs),
    .reserved = offsetof(smelt_indexer_logits_spec, reserved),
};

smelt_status smelt_indexer_logits_spec_print(const smelt_indexer_logits_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_indexer_logits_spec_parse(const char *text, smelt_indexer_logits_spec *spec,
                                             char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_indexer_logits_supported(const smelt_context *context,
                                            const smelt_indexer_logits_spec *spec,
                                            const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

smelt_status smelt_indexer_logits_create(smelt_indexer_logits **indexer, smelt_context *context,
                                         const smelt_indexer_logits_spec *given) {
    const smelt_status status = smelt__operator_create(&spec_table, indexer, context, given, NULL);
    if (status == SMELT_OK)
        (*indexer)->scorer =
            smelt__indexer_scorer_of((*indexer)->kernels.context, (*indexer)->kernels.kernels[0]);
    return status;
}

void smelt_indexer_logits_destroy(smelt_indexer_logits **indexer) {
    smelt__operator_destroy(indexer);
}

smelt_status smelt_indexer_logits_get_kernel_info(const smelt_indexer_logits *indexer, int index,
                                                  smelt_kernel_info *info) {
    if (!indexer)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "indexer is NULL");
    return smelt__operator_get_kernel_info(&indexer->kernels, SMELT_PASS_FORWARD, index, info);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* Checks a call and fills in packed strides. */
static smelt_status check_args(const smelt_indexer_logits *indexer,
                               const smelt_indexer_logits_args *given,
                               smelt_indexer_logits_args *args) {
    smelt_status status = smelt__struct_read(
        SMELT__STRUCT(smelt_indexer_logits_args, "args", "SMELT_INDEXER_LOGITS_ARGS_INIT", logits),
        given, args);
    if (status == SMELT_OK)
        status = smelt__check_extent("tokens", args->tokens, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", args->rows, 0, INT32_MAX);
    if (status == SMELT_OK)
        status =
            smelt__check_extent("free_multiprocessors", args->free_multiprocessors, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("reserved", args->reserved, 0, 0);
    if (status != SMELT_OK || args->tokens == 0 || args->rows == 0)
        return status; /* of an empty call no tensor is looked at */
    const int64_t extents[SMELT__INDEXER_LOGITS_SYMBOLS] = {
        [SMELT__INDEXER_LOGITS_T] = args->tokens,
        [SMELT__INDEXER_LOGITS_S] = args->rows,
        [SMELT__INDEXER_LOGITS_H] = indexer->scorer.heads,
        [SMELT__INDEXER_LOGITS_D] = indexer->scorer.dim,
    };
    const int dtype = indexer->scorer.dtype;
    status = smelt__indexer_check_scale(dtype, args->k_scale.data);
    return status == SMELT_OK ? smelt__check_tensors(&smelt__indexer_logits_tensors[dtype],
                                                     SMELT_PASS_FORWARD, extents, args, NULL, 0)
                              : status;
}

/* ---- launching ------------------------------------------------------------------------------- */

smelt_status smelt_indexer_logits_forward(const smelt_indexer_logits *indexer,
                                          const smelt_indexer_logits_args *given,
                                          struct CUstream_st *stream) {
    smelt_indexer_logits_args args;
    if (!indexer)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "indexer is NULL");
    smelt_status status = check_args(indexer, given, &args);
    if (status != SMELT_OK || args.tokens == 0 || args.rows == 0)
        return status;
    return smelt__indexer_scorer_launch(&indexer->scorer, &args,
                                        &(const struct smelt__indexer_chain){0}, stream);
}
