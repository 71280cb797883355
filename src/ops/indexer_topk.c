/* The operator indexer_topk: see smelt/indexer_topk.h. */
#include "smelt/indexer_topk.h"

#include "codegen/families/indexer_topk.h"
#include "codegen/families/topk_select_rows.h"
#include "ops/arguments.h"
#include "ops/indexer_logits_launch.h"
#include "ops/indexer_topk_chunks.h"
#include "ops/indexer_topk_tensors.h"
#include "ops/operator.h"
#include "ops/topk_select_rows.h"
#include "runtime/log.h"

enum { MOST_ROWS = 1 << 20 };

_Static_assert((int)SMELT_TOPK_BY_SCORE == (int)SMELT__TOPK_BY_SCORE, "the key's values");
_Static_assert((int)SMELT__TOPK_ALIGNMENT <= (int)SMELT__CHUNK_ALIGNMENT, "of its workspace");
_Static_assert(sizeof(smelt_indexer_topk_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");

struct smelt_indexer_topk {
    struct smelt__operator kernels;
    struct smelt__indexer_scorer scorer;
    struct smelt__topk_kernels select;
    int order; /* of enum smelt_topk_order */
};

/* ---- the spec -------------------------------------------------------------------------------- */

#define FIELD(key)                                                                                 \
    { #key, offsetof(smelt_indexer_topk_spec, key) }

static const struct smelt__spec_field fields[] = {FIELD(heads), FIELD(dim), FIELD(dtype),
                                                  FIELD(topk), FIELD(order)};

static const struct smelt__struct spec_struct =
    SMELT__STRUCT_VALUE(smelt_indexer_topk_spec, "spec", "SMELT_INDEXER_TOPK_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__indexer_topk,
    .about = &spec_struct,
    .object = "indexer",
    .object_bytes = sizeof(smelt_indexer_topk),
    .fields = fields,
    .count = sizeof fields / sizeof *fields,
    .knobs = offsetof(smelt_indexer_topk_spec, knobs),
    .reserved = offsetof(smelt_indexer_topk_spec, reserved),
};

smelt_status smelt_indexer_topk_spec_print(const smelt_indexer_topk_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_indexer_topk_spec_parse(const char *text, smelt_indexer_topk_spec *spec,
                                           char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_indexer_topk_supported(const smelt_context *context,
                                          const smelt_indexer_topk_spec *spec, const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

/* What is kept besides the kernels. */
static void keep_kernels(smelt_indexer_topk *made, const struct smelt__spec *spec) {
    const struct smelt__kernel *const *kernels = made->kernels.kernels;
    made->order = (int)smelt__spec_get(spec, "order");
    made->select = smelt__topk_kernels_from(kernels + SMELT__INDEXER_TOPK_SELECT,
                                            (int)smelt__spec_get(spec, "topk"));
    made->scorer =
        smelt__indexer_scorer_of(made->kernels.context, kernels[SMELT__INDEXER_TOPK_LOGITS]);
}

smelt_status smelt_indexer_topk_create(smelt_indexer_topk **indexer, smelt_context *context,
                                       const smelt_indexer_topk_spec *given) {
    struct smelt__spec spec;
    const smelt_status status = smelt__operator_create(&spec_table, indexer, context, given, &spec);
    if (status == SMELT_OK)
        keep_kernels(*indexer, &spec);
    return status;
}

void smelt_indexer_topk_destroy(smelt_indexer_topk **indexer) {
    smelt__operator_destroy(indexer);
}

smelt_status smelt_indexer_topk_get_kernel_info(const smelt_indexer_topk *indexer, int index,
                                                smelt_kernel_info *info) {
    if (!indexer)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "indexer is NULL");
    return smelt__operator_get_kernel_info(&indexer->kernels, SMELT_PASS_FORWARD, index, info);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* This library's copy of the arguments, whose extents are legal. */
static smelt_status read_args(const smelt_indexer_topk_args *given, smelt_indexer_topk_args *args) {
    smelt_status status =
        smelt__struct_read(SMELT__STRUCT(smelt_indexer_topk_args, "args",
                                         "SMELT_INDEXER_TOPK_ARGS_INIT", causal_limit),
                           given, args);
    if (status == SMELT_OK)
        status = smelt__check_extent("tokens", args->tokens, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", args->rows, 0, MOST_ROWS);
    if (status == SMELT_OK)
        status = smelt__check_extent("causal_limit", args->causal_limit, 0, INT32_MAX);
    return status;
}

/* How the queries are taken; without keys there are no logits, and one chunk has them all. */
static smelt_status find_chunks(const smelt_indexer_topk *indexer,
                                const smelt_indexer_topk_args *args,
                                struct smelt__indexer_chunks *chunks) {
    const size_t limit =
        args->workspace_limit ? args->workspace_limit : SMELT_INDEXER_TOPK_WORKSPACE;
    const struct smelt__indexer_extent extent = {.tokens = args->tokens,
                                                 .rows = args->rows,
                                                 .causal_limit = args->causal_limit,
                                                 .block_queries =
                                                     indexer->scorer.launch.block_queries,
                                                 .select = &indexer->select,
                                                 .limit = limit};
    *chunks = (struct smelt__indexer_chunks){
        .extent = {.tokens = args->tokens}, .even = args->tokens, .count = args->tokens > 0};
    if (args->tokens == 0 || args->rows == 0 || smelt__indexer_chunks_make(&extent, chunks) == 0)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "workspace_limit = %zu is too small: one query's logits of rows = %lld keys "
                       "and the selection from them need %zu bytes",
                       limit, (long long)args->rows, chunks->bytes);
}

static smelt_status check_args(const smelt_indexer_topk *indexer, smelt_indexer_topk_args *args,
                               size_t needed) {
    const struct smelt__indexer_scorer *scorer = &indexer->scorer;
    const int64_t extents[SMELT__INDEXER_TOPK_SYMBOLS] = {
        [SMELT__INDEXER_TOPK_T] = args->tokens,         [SMELT__INDEXER_TOPK_S] = args->rows,
        [SMELT__INDEXER_TOPK_H] = scorer->heads,        [SMELT__INDEXER_TOPK_D] = scorer->dim,
        [SMELT__INDEXER_TOPK_K] = indexer->select.topk,
    };
    const struct smelt__memory workspace = {"workspace", args->workspace,
                                            needed ? args->workspace_bytes : 0, 1};
    smelt_status status =
        smelt__check_extent("free_multiprocessors", args->free_multiprocessors, 0, INT32_MAX);
    if (status == SMELT_OK && (args->rows > 0 || args->k_scale.data))
        status = smelt__indexer_check_scale(scorer->dtype, args->k_scale.data);
    if (status == SMELT_OK)
        status = smelt__check_tensors(&smelt__indexer_topk_tensors[scorer->dtype],
                                      SMELT_PASS_FORWARD, extents, args, &workspace, 1);
    return status == SMELT_OK ? smelt__check_workspace(args->workspace, args->workspace_bytes,
                                                       needed, SMELT__CHUNK_ALIGNMENT,
                                                       "smelt_indexer_topk_forward_workspace")
                              : status;
}

smelt_status smelt_indexer_topk_forward_workspace(const smelt_indexer_topk *indexer,
                                                  const smelt_indexer_topk_args *given,
                                                  size_t *bytes) {
    smelt_indexer_topk_args args;
    struct smelt__indexer_chunks chunks;
    if (!indexer || !bytes)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL",
                           indexer ? "bytes" : "indexer");
    *bytes = 0;
    smelt_status status = read_args(given, &args);
    if (status == SMELT_OK)
        status = find_chunks(indexer, &args, &chunks);
    if (status == SMELT_OK)
        *bytes = chunks.bytes;
    return status;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Of a tensor's only row the stride is any number. */
static const void *const_row(const smelt_const_tensor *tensor, int64_t row, size_t element) {
    const int64_t step = row > 0 ? row * tensor->strides[0] * (int64_t)element : 0;
    return tensor->data ? (const char *)tensor->data + step : NULL;
}

static const int *numbers_at(const smelt_const_tensor *tensor, int64_t first) {
    return tensor->data ? (const int *)tensor->data + first : NULL;
}

static smelt_status score(const smelt_indexer_topk *indexer, const smelt_indexer_topk_args *args,
                          const struct smelt__indexer_chunk *chunk, struct CUstream_st *stream) {
    const size_t element = indexer->scorer.dtype == SMELT_INDEXER_FP8 ? 1 : 2;
    smelt_indexer_logits_args part = {
        .tokens = chunk->count,
        .rows = chunk->columns,
        .free_multiprocessors = args->free_multiprocessors,
        .q = args->q,
        .k = args->k,
        .weights = args->weights,
        .k_scale = args->k_scale,
        .window_begin = {numbers_at(&args->window_begin, chunk->first), {0}},
        .window_end = {numbers_at(&args->window_end, chunk->first), {0}},
        .logits = {args->workspace, {chunk->stride}},
    };
    part.q.data = const_row(&args->q, chunk->first, element);
    part.weights.data = const_row(&args->weights, chunk->first, sizeof(float));
    /* Windows that are chosen whole are not scored, unless the scores are wanted. */
    const int whole = indexer->order == SMELT_TOPK_BY_INDEX && !args->values.data;
    const struct smelt__indexer_chain chain = {.least = whole ? indexer->select.topk + 1 : 0,
                                               .inner_only = 1,
                                               .pdl = chunk->first > 0,
                                               .launch_dependents = 1};
    return smelt__indexer_scorer_launch(&indexer->scorer, &part, &chain, stream);
}

static smelt_status choose(const smelt_indexer_topk *indexer, const smelt_indexer_topk_args *args,
                           const struct smelt__indexer_chunk *chunk, struct CUstream_st *stream) {
    char *const workspace = args->workspace;
    int *const indices = args->indices.data, *const lengths = args->lengths.data;
    float *const values = args->values.data;
    const struct topk_select_rows_params params = {
        .logits = args->workspace,
        .window_begin = numbers_at(&args->window_begin, chunk->first),
        .window_end = numbers_at(&args->window_end, chunk->first),
        .offset = numbers_at(&args->offset, chunk->first),
        .indices = indices + chunk->first * args->indices.strides[0],
        .values = values ? values + chunk->first * args->values.strides[0] : NULL,
        .lengths = lengths ? lengths + chunk->first : NULL,
        .logits_stride = chunk->stride,
        .indices_stride = args->indices.strides[0],
        .values_stride = args->values.strides[0],
        .rows = (int)chunk->count,
        .columns = (int)chunk->columns,
        .index_offset = args->index_offset,
        .pdl = args->rows > 0,  /* after the chunk's logits */
        .launch_dependents = 1, /* the next chunk's logits wait for it themselves */
    };
    return smelt__topk_launch(indexer->kernels.context, &indexer->select, &params,
                              workspace ? workspace + chunk->logits_bytes : NULL, stream);
}

static smelt_status launch_chunks(const smelt_indexer_topk *indexer,
                                  const smelt_indexer_topk_args *args,
                                  const struct smelt__indexer_chunks *chunks,
                                  struct CUstream_st *stream) {
    smelt_status status = SMELT_OK;
    for (int64_t first = 0; first < args->tokens && status == SMELT_OK;) {
        const struct smelt__indexer_chunk chunk = smelt__indexer_chunk_at(chunks, first);
        if (args->rows > 0)
            status = score(indexer, args, &chunk, stream);
        if (status == SMELT_OK)
            status = choose(indexer, args, &chunk, stream);
        first += chunk.count;
    }
    return status;
}

smelt_status smelt_indexer_topk_forward(const smelt_indexer_topk *indexer,
                                        const smelt_indexer_topk_args *given,
                                        struct CUstream_st *stream) {
    smelt_indexer_topk_args args;
    struct smelt__indexer_chunks chunks;
    int pushed;
    if (!indexer)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "indexer is NULL");
    smelt_status status = read_args(given, &args);
    if (status == SMELT_OK)
        status = find_chunks(indexer, &args, &chunks);
    if (status != SMELT_OK || args.tokens == 0)
        return status;
    status = check_args(indexer, &args, chunks.bytes);
    if (status == SMELT_OK) /* the CUDA context is made current once, not at each launch */
        status = smelt__context_enter(indexer->kernels.context, &pushed);
    if (status != SMELT_OK)
        return status;
    status = launch_chunks(indexer, &args, &chunks, stream);
    smelt__context_leave(indexer->kernels.context, pushed);
    return status;
}
