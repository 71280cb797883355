/* The operator indexer_topk: see smelt/indexer_topk.h. */
#include "smelt/indexer_topk.h"

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_topk.h"
#include "codegen/families/topk_select_rows.h"
#include "ops/call.h"
#include "ops/divide.h"
#include "ops/indexer_logits_launch.h"
#include "ops/indexer_topk_chunks.h"
#include "ops/indexer_topk_table.h"
#include "ops/topk_select_rows.h"
#include "runtime/log.h"

struct indexer_topk {
    smelt_operator op;
    struct smelt__indexer_scorer scorer;
    struct smelt__topk_kernels select, publish; /* publish: of topk 0 if nothing is published */
    struct smelt__topk_lists lists;
    int order, block_max, publish_block, candidate_block, logit_bytes;
};

static void prepare(smelt_operator *op) {
    struct indexer_topk *made = (struct indexer_topk *)op;
    const struct smelt__spec *spec = &op->spec;
    const int selections = smelt__indexer_topk_selections(spec);
    const int publish = (int)smelt__spec_get(spec, "publish");
    made->order = (int)smelt__spec_get(spec, "order");
    made->block_max = (int)smelt__spec_get(spec, "block_max");
    made->publish_block = (int)smelt__spec_get(spec, "publish_block");
    made->logit_bytes = smelt__spec_get(spec, "logits") ? 2 : 4; /* bf16, fp32 */
    made->candidate_block = (int)smelt__spec_get(spec, "candidate_block");
    made->lists = smelt__topk_lists_of(spec);
    made->select = smelt__topk_kernels_from(op->kernels + SMELT__INDEXER_TOPK_SELECT, selections,
                                            made->lists.topk);
    if (publish > 0)
        made->publish = smelt__topk_kernels_from(
            op->kernels + SMELT__INDEXER_TOPK_SELECT + selections, SMELT__TOPK_WARPS, publish);
    made->scorer = smelt__indexer_scorer_of(op, op->kernels[SMELT__INDEXER_TOPK_LOGITS]);
}

/* ---- arguments ------------------------------------------------------------------------------- */

enum { MOST_COLUMNS = 1 << 28 /* logits of a query's candidates */ };

/* Whether there is anything to select from. */
static int has_logits(const struct indexer_topk *indexer, const smelt_indexer_topk_args *args) {
    return args->rows > 0 && (indexer->candidate_block == 0 || args->candidate_count > 0);
}

/* How the queries are taken; without keys there are no logits, and one chunk has them all. */
static smelt_status find_chunks(const struct indexer_topk *indexer,
                                const smelt_indexer_topk_args *args,
                                struct smelt__indexer_chunks *chunks) {
    const size_t limit =
        args->workspace_limit ? args->workspace_limit : SMELT_INDEXER_TOPK_WORKSPACE;
    const struct smelt__indexer_extent extent = {
        .tokens = args->tokens,
        .rows = args->rows,
        .causal_limit = args->causal_limit,
        .block_queries = indexer->scorer.launch.block_queries,
        .groups = indexer->lists.groups,
        .block_max = indexer->block_max,
        .logit_bytes = indexer->logit_bytes,
        .columns = args->candidate_count * indexer->candidate_block / indexer->block_max,
        .select = &indexer->select,
        .publish = indexer->publish.topk > 0 ? &indexer->publish : NULL,
        .publish_block = indexer->publish_block,
        .limit = limit};
    *chunks = (struct smelt__indexer_chunks){
        .extent = {.tokens = args->tokens, .groups = 1, .block_max = 1, .logit_bytes = 1},
        .even = args->tokens,
        .count = args->tokens > 0};
    if (args->candidate_count > MOST_COLUMNS / (indexer->candidate_block + 1))
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "candidate_count = %lld blocks of candidate_block=%d keys are too many; "
                           "legal: up to %lld",
                           (long long)args->candidate_count, indexer->candidate_block,
                           (long long)(MOST_COLUMNS / (indexer->candidate_block + 1)));
    if (args->tokens == 0 || !has_logits(indexer, args) ||
        smelt__indexer_chunks_make(&extent, chunks) == 0)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "workspace_limit = %zu is too small: one query's logits of rows = %lld keys "
                       "and the selection from them need %zu bytes",
                       limit, (long long)args->rows, chunks->bytes);
}

static smelt_status workspace(const struct smelt__call *call, size_t *bytes) {
    struct smelt__indexer_chunks chunks;
    SMELT__TRY(find_chunks((const struct indexer_topk *)call->op, call->args, &chunks));
    *bytes = chunks.bytes;
    return SMELT_OK;
}

/* The rows that lists may name: those of whole entries, and of an incomplete one. Entries of
 * block_max keys include the incomplete one. */
static int64_t list_rows(const struct indexer_topk *indexer, int64_t keys) {
    return smelt__divide_up(keys * indexer->lists.expand, indexer->block_max);
}

static int64_t incomplete_rows(const struct indexer_topk *indexer) {
    return indexer->block_max > 1 ? 0 : indexer->lists.expand - 1;
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

/* The same of an output, whose elements all have 4 bytes. */
static void *row_at(const smelt_tensor *tensor, int64_t row, int64_t stride) {
    return tensor->data && row > 0 ? (int *)tensor->data + row * stride : tensor->data;
}

/* Keys of a window from which on a selection of `topk` blocks of `block` keys reads its logits:
 * fewer make at most topk blocks, wherever the window begins. */
static int64_t least_keys(int64_t topk, int64_t block) {
    return (topk - 1) * block + 2;
}

/* The same for all selections: shorter windows are not scored. */
static int64_t least_scored(const struct indexer_topk *indexer,
                            const smelt_indexer_topk_args *args) {
    if (indexer->order != SMELT__TOPK_BY_INDEX || args->values.data)
        return 0;
    if (indexer->candidate_block > 0)
        return 0;
    const int64_t own = least_keys(indexer->lists.topk, indexer->block_max);
    const int64_t published = least_keys(indexer->publish.topk, indexer->publish_block);
    return indexer->publish.topk > 0 && published < own ? published : own;
}

static smelt_status score(const struct indexer_topk *indexer, const smelt_indexer_topk_args *args,
                          const struct smelt__indexer_chunk *chunk, struct CUstream_st *stream) {
    const size_t element = indexer->scorer.dtype == SMELT__INDEXER_FP8 ? 1 : 2;
    smelt_indexer_logits_args part = {
        .tokens = chunk->count,
        .rows = chunk->keys,
        .candidate_count = args->candidate_count,
        .free_multiprocessors = args->free_multiprocessors,
        .scale = args->scale,
        .q = args->q,
        .k = args->k,
        .weights = args->weights,
        .k_scale = args->k_scale,
        .window_begin = {numbers_at(&args->window_begin, chunk->first), {0}},
        .window_end = {numbers_at(&args->window_end, chunk->first), {0}},
        .logits = {args->workspace, {indexer->lists.groups * chunk->stride, chunk->stride}},
    };
    part.candidates = args->candidates;
    part.candidates.data = const_row(&args->candidates, chunk->first, sizeof(int));
    part.q.data = const_row(&args->q, chunk->first, element);
    part.weights.data =
        const_row(&args->weights, chunk->first, indexer->scorer.weights_bf16 ? 2 : sizeof(float));
    const struct smelt__indexer_chain chain = {.least = (int)least_scored(indexer, args),
                                               .inner_only = 1,
                                               .pdl = chunk->first > 0,
                                               .launch_dependents = 1};
    return smelt__indexer_scorer_launch(&indexer->scorer, &part, &chain, stream);
}

/* The parameters of both selections from a chunk's logits. The windows bound the lists' tails even without candidates. */
static struct topk_select_rows_params chunk_params(const struct indexer_topk *indexer,
                                                   const smelt_indexer_topk_args *args,
                                                   const struct smelt__indexer_chunk *chunk) {
    return (struct topk_select_rows_params){
        .logits = args->workspace,
        .window_begin = numbers_at(&args->window_begin, chunk->first),
        .window_end = numbers_at(&args->window_end, chunk->first),
        .logits_stride = indexer->lists.groups * chunk->stride,
        .logits_group = chunk->stride,
        .rows = (int)chunk->count * indexer->lists.groups,
        .keys = (int)(has_logits(indexer, args) ? chunk->keys : args->rows),
        .pdl = has_logits(indexer, args), /* after the chunk's logits */
        .launch_dependents = 1,           /* the next chunk's logits wait for it themselves */
    };
}

static void *selection_workspace(const smelt_indexer_topk_args *args,
                                 const struct smelt__indexer_chunk *chunk) {
    return args->workspace ? (char *)args->workspace + chunk->logits_bytes : NULL;
}

static smelt_status choose(const struct indexer_topk *indexer, const smelt_indexer_topk_args *args,
                           const struct smelt__indexer_chunk *chunk, struct CUstream_st *stream) {
    const int64_t first = chunk->first;
    const int64_t lengths_stride = indexer->lists.groups > 1 ? args->lengths.strides[0] : 1;
    struct topk_select_rows_params params = chunk_params(indexer, args, chunk);
    params.offset = numbers_at(&args->offset, first);
    params.limit = numbers_at(&args->limit, first);
    params.indices = row_at(&args->indices, first, args->indices.strides[0]);
    params.indices_stride = args->indices.strides[0];
    params.indices_group = args->indices.strides[1];
    params.values = row_at(&args->values, first, args->values.strides[0]);
    params.values_stride = args->values.strides[0];
    params.values_group = args->values.strides[1];
    params.lengths = row_at(&args->lengths, first, lengths_stride);
    params.lengths_stride = lengths_stride;
    params.width = (int)args->width;
    params.all_rows = (int)list_rows(indexer, args->rows);
    params.most_rows = (int)(list_rows(indexer, args->rows) + incomplete_rows(indexer));
    params.index_offset = args->index_offset;
    params.candidates = const_row(&args->candidates, first, sizeof(int));
    params.candidates_stride = args->candidates.strides[0];
    params.candidate_count = (int)args->candidate_count;
    return smelt__topk_launch(indexer->op.context, &indexer->select, &params, chunk->columns,
                              selection_workspace(args, chunk), stream);
}

/* The blocks for other layers, as block numbers. */
static smelt_status publish(const struct indexer_topk *indexer, const smelt_indexer_topk_args *args,
                            const struct smelt__indexer_chunk *chunk, struct CUstream_st *stream) {
    struct topk_select_rows_params params = chunk_params(indexer, args, chunk);
    params.indices = row_at(&args->published, chunk->first, args->published.strides[0]);
    params.indices_stride = args->published.strides[0];
    params.indices_group = args->published.strides[1];
    return smelt__topk_launch(indexer->op.context, &indexer->publish, &params,
                              smelt__divide_up(chunk->keys, indexer->publish_block),
                              selection_workspace(args, chunk), stream);
}

static smelt_status launch_chunks(const struct indexer_topk *indexer,
                                  const smelt_indexer_topk_args *args,
                                  const struct smelt__indexer_chunks *chunks,
                                  struct CUstream_st *stream) {
    for (int64_t first = 0; first < args->tokens;) {
        const struct smelt__indexer_chunk chunk = smelt__indexer_chunk_at(chunks, first);
        if (has_logits(indexer, args))
            SMELT__TRY(score(indexer, args, &chunk, stream));
        SMELT__TRY(choose(indexer, args, &chunk, stream));
        if (indexer->publish.topk > 0)
            SMELT__TRY(publish(indexer, args, &chunk, stream));
        first += chunk.count;
    }
    return SMELT_OK;
}

static smelt_status launch(struct smelt__call *call) {
    const struct indexer_topk *made = (const struct indexer_topk *)call->op;
    const smelt_indexer_topk_args *args = call->args;
    struct smelt__indexer_chunks chunks;
    SMELT__TRY(find_chunks(made, args, &chunks));
    if (args->tokens == 0)
        return SMELT_OK;
    SMELT__TRY(smelt__topk_check_lists(&made->lists, args->tokens,
                                       smelt__divide_up(args->rows, made->block_max), args->width,
                                       args->limit.data != NULL));
    SMELT__TRY(smelt__call_check(call, chunks.bytes, NULL, 0));
    const smelt_indexer_logits_args logits = {.tokens = args->tokens,
                                              .rows = args->rows,
                                              .candidate_count = args->candidate_count,
                                              .scale = args->scale,
                                              .q = args->q,
                                              .k = args->k};
    /* Checks the whole call before the first chunk is launched, with the strides that smelt__call_check filled in. */
    SMELT__TRY(smelt__indexer_scorer_check(&made->scorer, &logits));
    return launch_chunks(made, args, &chunks, call->stream);
}

SMELT__OPERATOR(indexer_topk, forward, FORWARD, struct indexer_topk, prepare,
                .tables = smelt__indexer_topk_table, .workspace = workspace, .launch = launch)
SMELT__ASK(indexer_topk, forward, FORWARD, smelt_indexer_topk_args)
