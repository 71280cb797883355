/* See indexer_logits_launch.h. */
#include "ops/indexer_logits_launch.h"

#include <math.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_scores_fwd.h"
#include "common/tensor_map.h"
#include "common/work.params.h"
#include "indexer_logits_fwd.params.h"
#include "indexer_scores_fwd.params.h"
#include "ops/args_table.h"
#include "ops/arguments.h"
#include "ops/call.h"
#include "ops/divide.h"
#include "runtime/log.h"
#include "runtime/tensor_map.h"

enum {
    MAP_ROW_BYTES = 128, /* of a box at most: the widest swizzle */
    LEAST_ROW_BYTES = 64 /* of a row in shared memory */
};

/* ---- the kernel ------------------------------------------------------------------------------ */

struct smelt__indexer_scorer smelt__indexer_scorer_of(const smelt_operator *op,
                                                      const struct smelt__kernel *kernel) {
    const struct smelt__plan *plan = &kernel->plan;
    const int listed = plan->spec.schema == &smelt__indexer_scores_fwd.schema;
    return (struct smelt__indexer_scorer){
        .context = op->context,
        .kernel = kernel,
        .heads = (int)smelt__spec_get(&plan->spec, "heads"),
        .dim = (int)smelt__spec_get(&plan->spec, "dim"),
        .dtype = (int)smelt__spec_get(&plan->spec, "dtype"),
        .weights = (int)smelt__spec_get(&plan->spec, "weights"),
        .groups = (int)smelt__spec_get(&plan->spec, "groups"),
        .block_max = (int)smelt__spec_get(&plan->spec, "block_max"),
        .weights_bf16 = smelt__spec_get(&op->spec, "weights_dtype") == SMELT__INDEXER_WEIGHTS_BF16,
        .candidate_block = listed ? (int)smelt__spec_get(&plan->spec, "granularity") : 0,
        .launch = listed ? (struct smelt__indexer_logits_launch){.block_queries = 1}
                         : *smelt__indexer_logits_launch(plan),
        .q_name = "q",
        .k_name = "k",
    };
}

/* ---- arguments ------------------------------------------------------------------------------- */

int64_t smelt__indexer_scorer_columns(const struct smelt__indexer_scorer *scorer, int64_t rows,
                                      int64_t candidates) {
    const int64_t keys = scorer->candidate_block ? candidates * scorer->candidate_block : rows;
    return smelt__divide_up(keys, scorer->block_max);
}

static smelt_status check_scale(const struct smelt__indexer_scorer *scorer, float scale) {
    if (scale == 0 || scale == 1 || (!scorer->weights && isfinite(scale)))
        return SMELT_OK;
    if (scorer->weights)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "scale = %g is given but the operator was made with weights=1; make one "
                           "with weights=0, or pass 1",
                           (double)scale);
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "scale = %g is not legal; it must be finite, and 0 stands for 1",
                       (double)scale);
}

smelt_status smelt__indexer_scorer_check(const struct smelt__indexer_scorer *scorer,
                                         const smelt_indexer_logits_args *args) {
    const size_t element = scorer->dtype == SMELT__INDEXER_FP8 ? 1 : 2;
    /* Of a map in pairs of heads one step is map_heads strides. */
    const int heads = scorer->heads;
    const size_t step = scorer->launch.map_pairs > 0 && heads > scorer->launch.map_heads
                            ? (size_t)scorer->launch.map_heads
                            : 1;
    const char *const knob = "variant=mma";
    SMELT__TRY(check_scale(scorer, args->scale));
    if (scorer->candidate_block && args->candidate_count > INT32_MAX / scorer->candidate_block)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "candidate_count = %lld blocks of %d keys exceed 2^31 - 1 logits of a "
                           "query; pass fewer",
                           (long long)args->candidate_count, scorer->candidate_block);
    if (!scorer->launch.tensor_maps)
        return SMELT_OK;
    if (args->tokens > 1)
        SMELT__TRY(smelt__check_map_stride(scorer->q_name, 0, args->q.strides[0], element, knob));
    if (heads > 1)
        SMELT__TRY(
            smelt__check_map_stride(scorer->q_name, 1, args->q.strides[1], element * step, knob));
    return args->rows > 1
               ? smelt__check_map_stride(scorer->k_name, 0, args->k.strides[0], element, knob)
               : SMELT_OK;
}

/* What the tensor maps of all tensors with DIM columns have in common. */
static struct smelt__tensor_box box_of(const struct smelt__indexer_scorer *scorer, const void *data,
                                       int dimensions) {
    const int element = scorer->dtype == SMELT__INDEXER_FP8 ? 1 : 2;
    /* A narrower row ends with zeros, which are outside the tensor. */
    const int wide = scorer->dim * element >= MAP_ROW_BYTES;
    return (struct smelt__tensor_box){
        .data = data,
        .element = element == 1 ? SMELT__MAP_UINT8 : SMELT__MAP_BF16,
        .swizzle = wide ? SMELT__MAP_SWIZZLE_128 : SMELT__MAP_SWIZZLE_64,
        .dimensions = dimensions,
        .extents = {scorer->dim},
        .box = {(wide ? MAP_ROW_BYTES : LEAST_ROW_BYTES) / element},
    };
}

/* Adds a dimension with this extent and stride, in elements. */
static void add_dimension(struct smelt__tensor_box *box, int number, int64_t extent, int64_t stride,
                          int boxes) {
    box->extents[number] = extent;
    box->strides[number] = stride;
    box->box[number] = boxes;
}

static smelt_status make_maps(const struct smelt__indexer_scorer *scorer,
                              const smelt_indexer_logits_args *args,
                              struct indexer_logits_fwd_params *params) {
    const struct smelt__indexer_logits_launch *const launch = &scorer->launch;
    const int pairs = launch->map_pairs > 0;
    const int64_t head = args->q.strides[1];
    struct smelt__tensor_box q = box_of(scorer, args->q.data, pairs ? 4 : 3);
    struct smelt__tensor_box k = box_of(scorer, args->k.data, 2);
    add_dimension(&q, 1, pairs ? launch->map_heads : scorer->heads, head, launch->map_heads);
    add_dimension(&q, 2, args->tokens, args->q.strides[0], launch->map_queries);
    add_dimension(&q, 3, scorer->heads / launch->map_heads, head * launch->map_heads,
                  launch->map_pairs);
    add_dimension(&k, 1, args->rows, args->k.strides[0], launch->map_keys);
    SMELT__TRY(smelt__tensor_map_make(scorer->context, &q, &params->q_map));
    return smelt__tensor_map_make(scorer->context, &k, &params->k_map);
}

static smelt_status fill(const struct smelt__indexer_scorer *scorer,
                         const smelt_indexer_logits_args *args,
                         struct indexer_logits_fwd_params *params) {
    *params = (struct indexer_logits_fwd_params){
        SMELT__TENSOR_TH(q, args->q),
        SMELT__TENSOR_S(k, args->k),
        SMELT__TENSOR_T(weights, args->weights),
        .k_scale = args->k_scale.data,
        .window_begin = args->window_begin.data,
        .window_end = args->window_end.data,
        SMELT__TENSOR_T(logits, args->logits),
        .logits_group_stride = scorer->groups > 1 ? args->logits.strides[1] : 0,
        .weights_bf16 = scorer->weights_bf16,
        .scale = args->scale == 0 ? 1 : args->scale,
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
    };
    return scorer->launch.tensor_maps ? make_maps(scorer, args, params) : SMELT_OK;
}

/* ---- launching ------------------------------------------------------------------------------- */

static smelt_status launch_listed(const struct smelt__indexer_scorer *scorer,
                                  const smelt_indexer_logits_args *args,
                                  struct CUstream_st *stream) {
    const int64_t slots = args->candidate_count * scorer->candidate_block;
    const struct indexer_scores_fwd_params params = {
        .work = {.indices = args->candidates.data,
                 .indices_token_stride = args->candidates.strides[0],
                 .batches = 1,
                 .tokens = (int)args->tokens,
                 .rows = (int)args->rows,
                 .width = (int)slots,
                 .query_capacity = (int)args->tokens},
        SMELT__TENSOR_TH(q, args->q),
        .k = args->k.data,
        SMELT__TENSOR_T(weights, args->weights),
        SMELT__TENSOR_T(logits, args->logits),
        .k_row_bytes = (scorer->dtype == SMELT__INDEXER_FP8 ? 1 : 2) * (unsigned)args->k.strides[0],
        .scale = args->scale == 0 ? 1 : args->scale,
        .k_scale = args->k_scale.data,
        .window_begin = args->window_begin.data,
        .window_end = args->window_end.data,
        .logits_group_stride = scorer->groups > 1 ? args->logits.strides[1] : 0,
        .weights_bf16 = scorer->weights_bf16,
    };
    const int64_t most = smelt__available_blocks(scorer->kernel, args->free_multiprocessors);
    const struct smelt__launch launch = {
        .blocks = {smelt__blocks_for(scorer->kernel, args->tokens, most)}, .params = &params};
    return smelt__kernel_launch(scorer->context, scorer->kernel, &launch, stream);
}

smelt_status smelt__indexer_scorer_launch(const struct smelt__indexer_scorer *scorer,
                                          const smelt_indexer_logits_args *args,
                                          const struct smelt__indexer_chain *chain,
                                          struct CUstream_st *stream) {
    struct indexer_logits_fwd_params params;
    if (scorer->candidate_block)
        return launch_listed(scorer, args, stream);
    SMELT__TRY(fill(scorer, args, &params));
    params.least = chain->least;
    params.fills = !chain->inner_only;
    params.pdl = chain->pdl;
    params.launch_dependents = chain->launch_dependents;
    const int64_t items = smelt__divide_up(args->tokens, scorer->launch.block_queries) *
                          smelt__divide_up(args->rows, scorer->launch.block_keys);
    const int64_t most = smelt__available_blocks(scorer->kernel, args->free_multiprocessors);
    const struct smelt__launch launch = {.blocks = {smelt__blocks_for(scorer->kernel, items, most)},
                                         .pdl = chain->pdl,
                                         .params = &params};
    return smelt__kernel_launch(scorer->context, scorer->kernel, &launch, stream);
}
