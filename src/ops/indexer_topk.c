/* The operator indexer_topk: see smelt/indexer_topk.h. */
#include "smelt/indexer_topk.h"

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_topk.h"
#include "codegen/families/topk_select_rows.h"
#include "ops/call.h"
#include "ops/indexer_logits_launch.h"
#include "ops/indexer_topk_chunks.h"
#include "ops/indexer_topk_table.h"
#include "ops/topk_select_rows.h"
#include "runtime/log.h"

struct indexer_topk {
    smelt_operator op;
    struct smelt__indexer_scorer scorer;
    struct smelt__topk_kernels select;
    int order;
};

static void prepare(smelt_operator *op) {
    struct indexer_topk *made = (struct indexer_topk *)op;
    made->order = (int)smelt__spec_get(&op->spec, "order");
    made->select =
        smelt__topk_kernels_from(op->kernels + SMELT__INDEXER_TOPK_SELECT, SMELT__TOPK_PASSES,
                                 (int)smelt__spec_get(&op->spec, "topk"));
    made->scorer = smelt__indexer_scorer_of(op->context, op->kernels[SMELT__INDEXER_TOPK_LOGITS]);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* How the queries are taken; without keys there are no logits, and one chunk has them all. */
static smelt_status find_chunks(const struct indexer_topk *indexer,
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

static smelt_status workspace(const struct smelt__call *call, size_t *bytes) {
    struct smelt__indexer_chunks chunks;
    const smelt_status status =
        find_chunks((const struct indexer_topk *)call->op, call->args, &chunks);
    *bytes = status == SMELT_OK ? chunks.bytes : 0;
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

static smelt_status score(const struct indexer_topk *indexer, const smelt_indexer_topk_args *args,
                          const struct smelt__indexer_chunk *chunk, struct CUstream_st *stream) {
    const size_t element = indexer->scorer.dtype == SMELT__INDEXER_FP8 ? 1 : 2;
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
    const int whole = indexer->order == SMELT__TOPK_BY_INDEX && !args->values.data;
    const struct smelt__indexer_chain chain = {.least = whole ? indexer->select.topk + 1 : 0,
                                               .inner_only = 1,
                                               .pdl = chunk->first > 0,
                                               .launch_dependents = 1};
    return smelt__indexer_scorer_launch(&indexer->scorer, &part, &chain, stream);
}

static smelt_status choose(const struct indexer_topk *indexer, const smelt_indexer_topk_args *args,
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
        .lengths_stride = 1,
        .rows = (int)chunk->count,
        .keys = (int)chunk->columns,
        .width = indexer->select.topk,
        .index_offset = args->index_offset,
        .pdl = args->rows > 0,  /* after the chunk's logits */
        .launch_dependents = 1, /* the next chunk's logits wait for it themselves */
    };
    return smelt__topk_launch(indexer->op.context, &indexer->select, &params, chunk->columns,
                              workspace ? workspace + chunk->logits_bytes : NULL, stream);
}

static smelt_status launch_chunks(const struct indexer_topk *indexer,
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

static smelt_status launch(struct smelt__call *call) {
    const struct indexer_topk *made = (const struct indexer_topk *)call->op;
    const smelt_indexer_topk_args *args = call->args;
    struct smelt__indexer_chunks chunks;
    int pushed;
    smelt_status status = find_chunks(made, args, &chunks);
    if (status != SMELT_OK || args->tokens == 0)
        return status;
    status = smelt__call_check(call, chunks.bytes, NULL, 0);
    if (status == SMELT_OK) /* of the whole call, before the first chunk is launched */
        status = smelt__indexer_scorer_check(
            &made->scorer,
            &(const smelt_indexer_logits_args){
                .tokens = args->tokens, .rows = args->rows, .q = args->q, .k = args->k});
    if (status == SMELT_OK) /* the CUDA context is made current once, not at each launch */
        status = smelt__context_enter(call->op->context, &pushed);
    if (status != SMELT_OK)
        return status;
    status = launch_chunks(made, args, &chunks, call->stream);
    smelt__context_leave(call->op->context, pushed);
    return status;
}

static const struct smelt__pass passes[] = {
    {.pass = SMELT_PASS_FORWARD,
     .call = "smelt_indexer_topk_forward",
     .tables = smelt__indexer_topk_table,
     .table_key = "dtype",
     .workspace = workspace,
     .launch = launch},
};

const struct smelt__operator_type smelt__indexer_topk_type = {
    .family = &smelt__indexer_topk,
    .bytes = sizeof(struct indexer_topk),
    .prepare = prepare,
    .passes = passes,
    .pass_count = 1,
};

SMELT__CALL(indexer_topk, forward, FORWARD, smelt_indexer_topk_args)
SMELT__ASK(indexer_topk, forward, FORWARD, smelt_indexer_topk_args)
