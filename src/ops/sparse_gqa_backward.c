/*
 * sparse_gqa's backward pass. Kernels compute the rows' statistics, the reverse index of the lists, dq by
 * query, and fp32 sums of dk and dv by key, and convert the sums to the caller's tensors. With large
 * blocks sparse_gqa_bwd_keys is block-stationary. Queries are then processed in chunks, as in the forward
 * pass (sparse_gqa_block.c): each chunk's index, that kernel, and the two that add its partial results.
 */
#include <inttypes.h>
#include <string.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/families/sparse_gqa.h"
#include "ops/cuts.h"
#include "ops/divide.h"
#include "ops/key_grads.h"
#include "ops/sparse_gqa.h"
#include "runtime/log.h"

/* clang-format off */
#include "sparse_gqa_bwd_keys.block.params.h"
#include "sparse_gqa_bwd_keys.few.params.h"
#include "sparse_gqa_sums.params.h"
/* clang-format on */

enum {
    WHOLE_LISTS = 1 << 30, /* a segment that holds any list */
    READS = 1,             /* reads of a head that take as long as an addition to a row */
    READS_BEYOND_L2 = 4,   /* the same if the sums exceed the L2 cache */
    MOST_SLOTS = 1 << 30,  /* with more there may be no reverse index */
    SUM_WARPS = 8,         /* of a thread block of sparse_gqa_sums, pass queries: a unit each */
    PART_KEYS = 64,        /* of a warpgroup of the block-stationary kernel */
    SUM_VECTORS = 4,       /* of a thread block of sparse_gqa_sums, pass keys */
    VECTOR_COLUMNS = 8,
};

/* A call: the spec's numbers, and where its arrays are in the workspace. */
struct backward {
    const struct smelt__call *call;
    const smelt_sparse_gqa_grad_args *args;
    const struct smelt__kernel *const *kernels; /* of the pass */
    int heads, kv_heads, dqk, dv, deterministic;
    int64_t queries; /* entries of the query list */
    int64_t keys;    /* rows of dk */
    size_t statistics, dsink_parts, dk, dv_sums;
    struct smelt__gqa_index index;
    int one_kernel; /* 1: sparse_gqa_bwd sums dk and dv, too */
    int is_few;     /* 1: a launch of sparse_gqa_bwd_keys takes a range */
    int64_t range;  /* chunks of the index in a range of queries */
    int is_block;   /* 1: sparse_gqa_bwd_keys is block-stationary, the index that of a chunk */
    int64_t chunk;  /* with is_block: entries of a chunk */
    int64_t units;  /* with is_block: of an entry and slot */
    int list_heads; /* KV heads that share a list */
    size_t dq_partials, key_partials; /* in the workspace */
    size_t bytes;
};

static const struct smelt__sparse_gqa_block_launch *launch_of(const struct backward *backward) {
    return smelt__sparse_gqa_block_launch(
        &backward->kernels[SMELT__SPARSE_GQA_BACKWARD_KEYS]->plan);
}

/* Whether sparse_gqa_bwd adds to the sums of dk and dv. For each slot it adds to the rows of a block,
 * whereas sparse_gqa_bwd_keys reads the heads of a group. One addition takes as long as `reads` reads. */
static int sums_by_query(const struct backward *backward) {
    const struct smelt__kernel *const by_query =
        backward->kernels[SMELT__SPARSE_GQA_BACKWARD_QUERIES];
    const int64_t slots = backward->queries * backward->index.groups * backward->args->width;
    const int64_t sums = backward->keys * (backward->dqk + backward->dv) * (int64_t)sizeof(float);
    const int reads = sums > SMELT__CUT_SUMS_IN_L2 ? READS_BEYOND_L2 : READS;
    if (backward->deterministic || strcmp(by_query->plan.variant, "sm90") != 0)
        return 0;
    return !backward->is_few || slots > MOST_SLOTS ||
           backward->heads / backward->kv_heads > reads * backward->index.granularity;
}

/* The reverse index, and how much of it a launch takes. */
static smelt_status place_index(struct backward *backward, size_t *end) {
    const int64_t group = backward->heads / backward->kv_heads;
    const int64_t entries =
        SMELT__CUT_RANGE_BYTES / (group * (backward->dqk + backward->dv) * SMELT__GQA_ELEMENT);
    const smelt_status status = smelt__gqa_index_place(&backward->index, end);
    if (status != SMELT_OK || !backward->is_few)
        return status;
    const int64_t chunk = backward->index.chunk_entries, rows = chunk * group;
    const int64_t most = backward->args->width > 0 ? INT32_MAX / rows / backward->args->width : 1;
    if (backward->queries > INT32_MAX / group || most < 1 ||
        backward->args->batches * backward->kv_heads * backward->index.blocks > INT32_MAX)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%" PRId64 " queries of %" PRId64 " heads of a KV head, %" PRId64
                           " slots and %" PRId64 " rows are too many for one call",
                           backward->queries, group, backward->args->width, backward->args->rows);
    backward->range = entries / chunk < 1 ? 1 : entries / chunk < most ? entries / chunk : most;
    return SMELT_OK;
}

/* The chunks of queries, the index of one, and the partial results of the block-stationary kernel. */
static smelt_status place_chunks(struct backward *backward, size_t *end) {
    const struct smelt__sparse_gqa_block_launch *const launch = launch_of(backward);
    struct smelt__gqa_index *const index = &backward->index;
    const size_t unit_bytes =
        (size_t)SMELT__GQA_UNIT_HEADS * SMELT__GQA_ELEMENT * (size_t)backward->dqk;
    backward->units = (int64_t)backward->kv_heads * launch->units;
    backward->chunk = smelt__gqa_chunk_of(backward->queries,
                                          (int64_t)unit_bytes * backward->units * index->width);
    backward->list_heads = backward->kv_heads / index->groups;
    index->entries = backward->chunk;
    index->segment = launch->segment;
    index->with_pairs = 1;
    const smelt_status status = smelt__gqa_index_place(index, end);
    const int64_t slots = backward->chunk * index->groups * index->width;
    const int64_t items = (index->lists + slots / index->segment) * backward->list_heads;
    backward->dq_partials =
        smelt__workspace_place(end, backward->chunk * index->width * backward->units, unit_bytes);
    backward->key_partials = smelt__workspace_place(
        end, items * launch->warpgroups,
        (size_t)(PART_KEYS * (backward->dqk + backward->dv)) * sizeof(float));
    return status;
}

static smelt_status place(const struct smelt__call *call, struct backward *backward) {
    const smelt_sparse_gqa_grad_args *args = call->args;
    const struct smelt__spec *spec = &call->op->spec;
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(args);
    const smelt_status status = smelt__sparse_attn_check_queries(&fields);
    int count;
    if (status != SMELT_OK)
        return status;
    *backward = (struct backward){
        .call = call,
        .args = args,
        .kernels = call->op->kernels + smelt__operator_pass(call->op, SMELT_PASS_BACKWARD, &count),
        .heads = (int)smelt__spec_get(spec, "heads"),
        .kv_heads = (int)smelt__spec_get(spec, "kv_heads"),
        .dqk = (int)smelt__spec_get(spec, "dqk"),
        .dv = (int)smelt__spec_get(spec, "dv"),
        .deterministic = (int)smelt__spec_get(spec, "deterministic"),
        .queries = smelt__sparse_attn_count_queries(&fields),
    };
    backward->keys = args->batches * args->rows * backward->kv_heads;
    backward->index = (struct smelt__gqa_index){
        .batches = args->batches,
        .rows = args->rows,
        .width = args->width,
        .entries = backward->queries,
        .groups = smelt__spec_get(spec, "lists") ? backward->kv_heads : 1,
        .granularity = (int)smelt__spec_get(spec, "granularity"),
        .segment = backward->deterministic ? WHOLE_LISTS : SMELT__SPARSE_GQA_SEGMENT,
        .with_queries = 1,
    };
    const struct smelt__plan *by_key = &backward->kernels[SMELT__SPARSE_GQA_BACKWARD_KEYS]->plan;
    const int sm90 = strcmp(by_key->variant, "sm90") == 0;
    backward->is_block = sm90 && backward->index.granularity >= SMELT__SPARSE_GQA_BLOCK;
    backward->is_few = sm90 && !backward->is_block;
    backward->one_kernel = sums_by_query(backward);
    size_t end = 0;
    const int64_t parts = smelt__divide_up(backward->queries, SMELT__SPARSE_ATTN_BWD_ENTRIES);
    backward->statistics =
        smelt__workspace_place(&end, backward->queries * backward->heads, 2 * sizeof(float));
    backward->dsink_parts = smelt__workspace_place(&end, parts * backward->heads, sizeof(float));
    backward->dk = smelt__workspace_place(&end, backward->keys * backward->dqk, sizeof(float));
    backward->dv_sums = smelt__workspace_place(&end, backward->keys * backward->dv, sizeof(float));
    smelt_status placed = SMELT_OK;
    if (backward->is_block && !backward->one_kernel)
        placed = place_chunks(backward, &end);
    else if (!backward->one_kernel && backward->queries > 0 && backward->keys > 0)
        placed = place_index(backward, &end);
    backward->bytes = end;
    return placed;
}

smelt_status smelt__sparse_gqa_backward_workspace(const struct smelt__call *call, size_t *bytes) {
    struct backward backward;
    const smelt_status status = place(call, &backward);
    if (status == SMELT_OK)
        *bytes = backward.bytes;
    return status;
}

/* ---- params ---------------------------------------------------------------------------------- */

static void *at(const struct backward *backward, size_t offset) {
    return (char *)backward->args->workspace + offset;
}

static struct work_params work_of(const struct backward *backward) {
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(backward->args);
    return smelt__sparse_attn_work(&fields, backward->queries);
}

static struct sparse_attn_bwd_rows_params rows_params(const struct backward *backward) {
    const smelt_sparse_gqa_grad_args *args = backward->args;
    return (struct sparse_attn_bwd_rows_params){
        .work = work_of(backward),
        SMELT__TENSOR_BTH(out, args->out),
        SMELT__TENSOR_BTH(grad_out, args->grad_out),
        SMELT__TENSOR_BTH(lse, args->lse),
        .sink = args->sink.data,
        .statistics = at(backward, backward->statistics),
        .dsink_parts = args->dsink.data ? at(backward, backward->dsink_parts) : NULL,
        .entries = (int)backward->queries,
        .query_rows = backward->heads,
    };
}

static struct sparse_gqa_bwd_params main_params(const struct backward *backward) {
    const smelt_sparse_gqa_grad_args *args = backward->args;
    return (struct sparse_gqa_bwd_params){
        .work = work_of(backward),
        .lists = SMELT__SPARSE_GQA_LISTS_PARAMS(args),
        SMELT__TENSOR_BTH(q, args->q),
        SMELT__TENSOR_BSH(k, args->k),
        SMELT__TENSOR_BSH(v, args->v),
        SMELT__TENSOR_BTH(grad_out, args->grad_out),
        .statistics = at(backward, backward->statistics),
        SMELT__TENSOR_BTH(dq, args->dq),
        .dk = at(backward, backward->dk),
        .dv = at(backward, backward->dv_sums),
        .starts = at(backward, backward->index.starts),
        .items = at(backward, backward->index.items),
        .queries = at(backward, backward->index.queries),
        .blocks = (int)backward->index.blocks,
        .index_lists = (int)backward->index.lists,
        .segment = backward->index.segment,
        .scale = args->scale,
    };
}

/* ---- launches -------------------------------------------------------------------------------- */

static smelt_status launch_one(const struct backward *backward, int number, int64_t blocks,
                               const void *params) {
    const struct smelt__launch launch = {.blocks = {(uint32_t)blocks}, .params = params};
    return smelt__kernel_launch(backward->call->op->context, backward->kernels[number], &launch,
                                backward->call->stream);
}

/* The sums start as zeros. */
static smelt_status clear_sums(const struct backward *backward) {
    return smelt__fill_async(backward->call->op->context, at(backward, backward->dk), 0,
                             (backward->dv_sums - backward->dk) / sizeof(float) +
                                 (size_t)(backward->keys * backward->dv),
                             backward->call->stream);
}

static smelt_status launch_rows(const struct backward *backward) {
    const struct sparse_attn_bwd_rows_params rows = rows_params(backward);
    return launch_one(backward, SMELT__SPARSE_GQA_BACKWARD_ROWS,
                      smelt__divide_up(backward->queries, SMELT__SPARSE_ATTN_BWD_ENTRIES), &rows);
}

/* ---- block-stationary ------------------------------------------------------------------------ */

static smelt_status fill_blocks(const struct backward *backward,
                                const struct sparse_gqa_lists_params *index,
                                struct sparse_gqa_bwd_block_params *params) {
    const smelt_sparse_gqa_grad_args *args = backward->args;
    const smelt_context *const context = backward->call->op->context;
    const int64_t tokens = args->tokens, batches = args->batches, dqk = backward->dqk;
    const int64_t heads = backward->heads, kv_heads = backward->kv_heads, dv = backward->dv;
    const int box_heads = launch_of(backward)->box_heads, block = backward->index.granularity;
    const struct smelt__gqa_map_source tiles[] = {
        {"q", &args->q, dqk, heads, tokens, batches, box_heads, 1},
        {"grad_out", &args->grad_out, dv, heads, tokens, batches, box_heads, 1}};
    const struct smelt__gqa_map_source blocks[] = {
        {"k", &args->k, dqk, kv_heads, args->rows, batches, 1, block},
        {"v", &args->v, dv, kv_heads, args->rows, batches, 1, block}};
    *params = (struct sparse_gqa_bwd_block_params){
        .items = smelt__gqa_items(&backward->index, index),
        .queries = index->queries,
        .statistics = at(backward, backward->statistics),
        .dq_partials = at(backward, backward->dq_partials),
        .key_partials = at(backward, backward->key_partials),
        .scale = args->scale,
    };
    smelt_status status = smelt__gqa_map_make(context, &tiles[0], &params->q_map);
    if (status == SMELT_OK)
        status = smelt__gqa_map_make(context, &tiles[1], &params->grad_out_map);
    if (status == SMELT_OK)
        status = smelt__gqa_source_make(context, &blocks[0], &params->k);
    return status == SMELT_OK ? smelt__gqa_source_make(context, &blocks[1], &params->v) : status;
}

/* The sums of dq, and of dk and dv if there are lists. */
static smelt_status launch_sums(const struct backward *backward,
                                const struct sparse_gqa_lists_params *index) {
    const smelt_sparse_gqa_grad_args *const args = backward->args;
    const struct sparse_gqa_sums_params params = {
        .work = index->work,
        .places = index->places,
        .dq_partials = at(backward, backward->dq_partials),
        SMELT__TENSOR_BTH(dq, args->dq),
        .first = index->first,
        .entries = index->entries,
        .items = index->items,
        .key_partials = at(backward, backward->key_partials),
        .dk_sums = at(backward, backward->dk),
        .dv_sums = at(backward, backward->dv_sums),
        .blocks = index->blocks,
        .rows = (int)args->rows,
        .adds = index->first > 0,
        .lists = (int)backward->index.lists,
    };
    const int64_t blocks = backward->index.lists * backward->list_heads *
                           (backward->index.granularity / PART_KEYS) *
                           ((backward->dqk + backward->dv) / VECTOR_COLUMNS / SUM_VECTORS);
    const smelt_status status =
        smelt__gqa_launch(backward->call, backward->kernels[SMELT__SPARSE_GQA_BACKWARD_QUERY_SUMS],
                          smelt__divide_up(index->entries * backward->units, SUM_WARPS),
                          args->free_multiprocessors, &params);
    return status == SMELT_OK && blocks > 0
               ? launch_one(backward, SMELT__SPARSE_GQA_BACKWARD_KEY_SUMS,
                            blocks < INT32_MAX ? blocks : INT32_MAX, &params)
               : status;
}

static smelt_status launch_chunk(const struct backward *backward,
                                 const struct sparse_gqa_lists_params *index,
                                 const struct sparse_gqa_bwd_block_params *main) {
    smelt_status status =
        smelt__gqa_launch_index(backward->call, &backward->index,
                                backward->kernels + SMELT__SPARSE_GQA_BACKWARD_COUNT, index);
    if (status == SMELT_OK && backward->index.lists > 0)
        status =
            smelt__gqa_launch(backward->call, backward->kernels[SMELT__SPARSE_GQA_BACKWARD_KEYS],
                              INT32_MAX, backward->args->free_multiprocessors, main);
    return status == SMELT_OK ? launch_sums(backward, index) : status;
}

/* dq, and the sums of dk and dv. What may be refused comes before the first launch. */
static smelt_status launch_blocks(const struct backward *backward) {
    const smelt_sparse_gqa_grad_args *args = backward->args;
    const struct work_params work = work_of(backward);
    const struct gqa_lists_params lists = SMELT__SPARSE_GQA_LISTS_PARAMS(args);
    struct sparse_gqa_bwd_block_params main;
    smelt_status status = SMELT_OK;
    for (int64_t first = 0; first < backward->queries && status == SMELT_OK;
         first += backward->chunk) {
        const int64_t left = backward->queries - first;
        const struct sparse_gqa_lists_params index = smelt__gqa_index_params(
            &backward->index, &work, &lists, first, left < backward->chunk ? left : backward->chunk,
            args->workspace);
        if (first == 0 && backward->index.lists > 0)
            status = fill_blocks(backward, &index, &main);
        if (status == SMELT_OK && first == 0)
            status = launch_rows(backward);
        if (status == SMELT_OK)
            status = launch_chunk(backward, &index, &main);
    }
    return status;
}

/* ---- other kernels --------------------------------------------------------------------------- */

/* dk and dv by key, range by range of the index. */
static smelt_status launch_ranges(const struct backward *backward,
                                  const struct sparse_gqa_bwd_params *pass,
                                  const struct sparse_gqa_lists_params *index) {
    const struct smelt__kernel *const kernel = backward->kernels[SMELT__SPARSE_GQA_BACKWARD_KEYS];
    const int64_t blocks = backward->index.blocks;
    const int items = (int)(backward->args->batches * backward->kv_heads * blocks);
    struct sparse_gqa_bwd_few_params params = {
        .work = {.batches = 1, .tokens = items, .query_capacity = items}, .pass = *pass};
    smelt_status status = SMELT_OK;
    for (int64_t chunk = 0; chunk < index->chunks && status == SMELT_OK; chunk += backward->range) {
        const int64_t end = chunk + backward->range;
        params.begin = index->counts + chunk * backward->index.lists;
        params.end = end < index->chunks ? index->counts + end * backward->index.lists : NULL;
        status = launch_one(backward, SMELT__SPARSE_GQA_BACKWARD_KEYS,
                            smelt__blocks_for(kernel, items,
                                              smelt__available_blocks(
                                                  kernel, backward->args->free_multiprocessors)),
                            &params);
    }
    return status;
}

/* dq by query, and with it or by key the sums of dk and dv. */
static smelt_status launch_queries(const struct backward *backward) {
    const smelt_sparse_gqa_grad_args *args = backward->args;
    const struct sparse_gqa_bwd_params params = main_params(backward);
    struct sparse_gqa_bwd_params query_params = params;
    const struct smelt__kernel *const by_query =
        backward->kernels[SMELT__SPARSE_GQA_BACKWARD_QUERIES];
    const struct smelt__kernel *const by_key = backward->kernels[SMELT__SPARSE_GQA_BACKWARD_KEYS];
    const int64_t free_multiprocessors = args->free_multiprocessors;
    if (!backward->one_kernel)
        query_params.dk = query_params.dv = NULL;
    smelt_status status = launch_rows(backward);
    if (status == SMELT_OK)
        status =
            launch_one(backward, SMELT__SPARSE_GQA_BACKWARD_QUERIES,
                       smelt__blocks_for(by_query, backward->queries,
                                         smelt__available_blocks(by_query, free_multiprocessors)),
                       &query_params);
    if (status != SMELT_OK || backward->keys == 0 || backward->one_kernel)
        return status;
    const struct sparse_gqa_lists_params index = smelt__gqa_index_params(
        &backward->index, &params.work, &params.lists, 0, backward->queries, args->workspace);
    status = smelt__gqa_index_launch(backward->call->op->context,
                                     backward->kernels + SMELT__SPARSE_GQA_BACKWARD_COUNT, &index,
                                     backward->call->stream);
    if (status != SMELT_OK)
        return status;
    return backward->is_few
               ? launch_ranges(backward, &params, &index)
               : launch_one(backward, SMELT__SPARSE_GQA_BACKWARD_KEYS,
                            smelt__available_blocks(by_key, free_multiprocessors), &params);
}

/* The caller's dk or dv, and with the first dsink. */
static smelt_status launch_finish(const struct backward *backward, int number, int columns,
                                  size_t sums, const smelt_tensor *tensors, int with_dsink) {
    const smelt_sparse_gqa_grad_args *args = backward->args;
    const smelt_tensor *const tensor = tensors[0].data   ? &tensors[0]
                                       : tensors[1].data ? &tensors[1]
                                                         : &tensors[2];
    const struct smelt__key_grads_layout layout = {.key_count = backward->keys, .sums = sums};
    const struct smelt__key_grads_call call = {
        .context = backward->call->op->context,
        .shape = {.columns = columns},
        .layout = &layout,
        .finish = backward->kernels[number],
        .workspace = args->workspace,
        .stream = backward->call->stream,
    };
    const int64_t parts = smelt__divide_up(backward->queries, SMELT__SPARSE_ATTN_BWD_ENTRIES);
    const struct key_grads_finish_params params = {
        .dkv = tensor->data,
        .dsink_parts = with_dsink ? at(backward, backward->dsink_parts) : NULL,
        .dsink = with_dsink ? args->dsink.data : NULL,
        .dkv_batch_stride = tensor->strides[0],
        .dkv_row_stride = tensor->strides[1],
        .dkv_head_stride = tensor->strides[2],
        .mode = tensors[0].data   ? FINISH_BF16
                : tensors[1].data ? FINISH_FP32
                                  : FINISH_ADD,
        .batches = (int)args->batches,
        .rows = (int)args->rows,
        .key_heads = backward->kv_heads,
        .heads = backward->heads,
        .parts = (int)parts,
    };
    return smelt__key_grads_launch_finish(&call, params);
}

static smelt_status launch_all(const struct backward *backward) {
    const smelt_sparse_gqa_grad_args *args = backward->args;
    const int block = backward->is_block && backward->queries > 0;
    smelt_status status = backward->keys > 0 && !block ? clear_sums(backward) : SMELT_OK;
    if (status == SMELT_OK && backward->queries > 0)
        status = block ? launch_blocks(backward) : launch_queries(backward);
    if (status == SMELT_OK && (backward->keys > 0 || args->dsink.data))
        status = launch_finish(backward, SMELT__SPARSE_GQA_BACKWARD_FINISH_DK, backward->dqk,
                               backward->dk, &args->dk, args->dsink.data != NULL);
    if (status == SMELT_OK && backward->keys > 0)
        status = launch_finish(backward, SMELT__SPARSE_GQA_BACKWARD_FINISH_DV, backward->dv,
                               backward->dv_sums, &args->dv, 0);
    return status;
}

smelt_status smelt__sparse_gqa_backward_launch(struct smelt__call *call) {
    const smelt_sparse_gqa_grad_args *args = call->args;
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(args);
    struct backward backward;
    smelt_status status = smelt__sparse_attn_check_call(&fields);
    if (status == SMELT_OK)
        status = place(call, &backward);
    if (status == SMELT_OK)
        status = smelt__call_check(call, backward.bytes, NULL, 0);
    if (status == SMELT_OK)
        status = smelt__operator_check_grid(call->op, SMELT_PASS_BACKWARD, backward.queries);
    return status == SMELT_OK ? launch_all(&backward) : status;
}
