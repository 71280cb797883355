/* The operator sparse_scores: see smelt/sparse_scores.h. */
#include "smelt/sparse_scores.h"

#include "ops/operator.h"
#include "ops/sparse_scores_args.h"
#include "runtime/log.h"

extern const struct smelt__family smelt__sparse_scores; /* as registry.c declares it */

struct smelt_sparse_scores {
    struct smelt__operator kernels;
    struct smelt__sparse_attn_shape shape;
};

/* ---- spec ------------------------------------------------------------------------------------ */

_Static_assert(sizeof(smelt_sparse_scores_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");

#define FIELD(key)                                                                                 \
    { #key, offsetof(smelt_sparse_scores_spec, key) }

static const struct smelt__spec_field fields[] = {FIELD(heads), FIELD(dqk), FIELD(dv), FIELD(topk),
                                                  FIELD(sink)};

static const struct smelt__struct spec_struct =
    SMELT__STRUCT_VALUE(smelt_sparse_scores_spec, "spec", "SMELT_SPARSE_SCORES_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__sparse_scores,
    .about = &spec_struct,
    .object = "scores",
    .object_bytes = sizeof(smelt_sparse_scores),
    .fields = fields,
    .count = sizeof fields / sizeof *fields,
    .knobs = offsetof(smelt_sparse_scores_spec, knobs),
    .reserved = offsetof(smelt_sparse_scores_spec, reserved),
};

smelt_status smelt_sparse_scores_spec_print(const smelt_sparse_scores_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_sparse_scores_spec_parse(const char *text, smelt_sparse_scores_spec *spec,
                                            char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_sparse_scores_supported(const smelt_context *context,
                                           const smelt_sparse_scores_spec *spec, const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

smelt_status smelt_sparse_scores_create(smelt_sparse_scores **scores, smelt_context *context,
                                        const smelt_sparse_scores_spec *given) {
    struct smelt__spec spec;
    smelt_status status = smelt__operator_create(&spec_table, scores, context, given, &spec);
    if (status == SMELT_OK)
        (*scores)->shape = (struct smelt__sparse_attn_shape){
            .heads = (int)smelt__spec_get(&spec, "heads"),
            .dqk = (int)smelt__spec_get(&spec, "dqk"),
            .dv = (int)smelt__spec_get(&spec, "dv"),
            .topk = (int)smelt__spec_get(&spec, "topk"),
            .sink = (int)smelt__spec_get(&spec, "sink"),
        };
    return status;
}

void smelt_sparse_scores_destroy(smelt_sparse_scores **scores) {
    smelt__operator_destroy(scores);
}

smelt_status smelt_sparse_scores_get_kernel_info(const smelt_sparse_scores *scores, int index,
                                                 smelt_kernel_info *info) {
    if (!scores)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "scores is NULL");
    return smelt__operator_get_kernel_info(&scores->kernels, SMELT_PASS_FORWARD, index, info);
}

/* ---- launching ------------------------------------------------------------------------------- */

smelt_status smelt_sparse_scores_forward(const smelt_sparse_scores *scores,
                                         const smelt_sparse_scores_args *args,
                                         struct CUstream_st *stream) {
    if (!scores)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "scores is NULL");
    struct smelt__sparse_scores_packed call;
    smelt_status status = smelt__sparse_scores_pack(&scores->shape, args, &call);
    if (status == SMELT_OK)
        status = smelt__operator_check_grid(&scores->kernels, SMELT_PASS_FORWARD, call.queries);
    if (status != SMELT_OK || call.queries == 0)
        return status;
    const struct smelt__kernel *kernel = scores->kernels.kernels[0];
    const int64_t most = smelt__blocks_beside(kernel, call.free_multiprocessors);
    const struct smelt__launch launch = {.blocks = {smelt__blocks_for(kernel, call.queries, most)},
                                         .params = &call.params};
    return smelt__kernel_launch(scores->kernels.context, kernel, &launch, stream);
}
