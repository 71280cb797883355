/*
 * See sparse_gqa_block_grad.h. As in the forward pass (sparse_gqa_block.c), queries are processed in
 * chunks: for each the reverse index, the kernel that takes blocks of keys, and the two that add its
 * partial results.
 */
#include "ops/sparse_gqa_block_grad.h"

#include "codegen/families/sparse_gqa_block.h"
#include "codegen/families/sparse_gqa_keys.h"
#include "ops/divide.h"
#include "ops/key_grads.h"
#include "ops/sparse_gqa_maps.h"

/* clang-format off */
#include "sparse_gqa_bwd_keys.block.params.h"
#include "sparse_gqa_sums.params.h"
/* clang-format on */

enum {
    UNIT_HEADS = 8,
    ELEMENT = 2,     /* bytes */
    SUM_WARPS = 8,   /* of a thread block: a unit each */
    PART_KEYS = 64,  /* of a warpgroup */
    SUM_VECTORS = 4, /* of a thread block, of 8 columns */
    VECTOR_COLUMNS = 8,
};
#define PARTIAL_BYTES ((int64_t)5 << 29) /* 2.5 GiB */

static int number_of(const struct smelt__gqa_block_grad *grad, const char *key) {
    return (int)smelt__spec_get(grad->spec, key);
}

static const struct smelt__sparse_gqa_block_launch *
launch_of(const struct smelt__gqa_block_grad *grad) {
    return smelt__sparse_gqa_block_launch(&grad->keys->plan);
}

/* Units of an entry and slot. */
static int64_t units_of(const struct smelt__gqa_block_grad *grad) {
    return (int64_t)number_of(grad, "kv_heads") * launch_of(grad)->units;
}

/* KV heads that share a list. */
static int list_heads(const struct smelt__gqa_block_grad *grad) {
    return number_of(grad, "lists") == SMELT__SPARSE_GQA_SHARED ? number_of(grad, "kv_heads") : 1;
}

smelt_status smelt__gqa_block_grad_place(struct smelt__gqa_block_grad *grad, size_t *end) {
    const int64_t columns = number_of(grad, "dqk") + number_of(grad, "dv");
    const size_t unit_bytes = (size_t)(UNIT_HEADS * ELEMENT * number_of(grad, "dqk"));
    const int64_t most = PARTIAL_BYTES / ((int64_t)unit_bytes * units_of(grad) * grad->width);
    const int64_t chunks = smelt__divide_up(grad->queries, most > 0 ? most : 1);
    grad->chunk = chunks > 0 ? smelt__divide_up(grad->queries, chunks) : 0;
    grad->of_chunk = (struct smelt__gqa_index){
        .batches = grad->batches,
        .rows = grad->rows,
        .width = grad->width,
        .entries = grad->chunk,
        .groups = number_of(grad, "kv_heads") / list_heads(grad),
        .granularity = number_of(grad, "granularity"),
        .segment = launch_of(grad)->segment,
        .with_queries = 1,
        .with_pairs = 1,
    };
    const smelt_status status = smelt__gqa_index_place(&grad->of_chunk, end);
    const int64_t slots = grad->chunk * grad->of_chunk.groups * grad->width;
    const int64_t items =
        (grad->of_chunk.lists + slots / grad->of_chunk.segment) * list_heads(grad);
    grad->dq_partials =
        smelt__workspace_place(end, grad->chunk * grad->width * units_of(grad), unit_bytes);
    grad->key_partials = smelt__workspace_place(end, items * launch_of(grad)->warpgroups,
                                                (size_t)(PART_KEYS * columns) * sizeof(float));
    return status;
}

/* ---- launches -------------------------------------------------------------------------------- */

static void *at(const struct smelt__gqa_block_grad_args *args, size_t offset) {
    return (char *)args->workspace + offset;
}

static smelt_status make_maps(const struct smelt__gqa_block_grad *grad,
                              const struct smelt__gqa_block_grad_args *args,
                              struct sparse_gqa_bwd_block_params *params) {
    const int64_t heads = number_of(grad, "heads"), kv_heads = number_of(grad, "kv_heads");
    const int64_t dqk = number_of(grad, "dqk"), dv = number_of(grad, "dv");
    const int64_t tokens = args->work.tokens, batches = args->work.batches;
    const int box_heads = launch_of(grad)->box_heads, rows = grad->of_chunk.granularity;
    const struct smelt__gqa_map_source tiles[] = {
        {"q", args->q, dqk, heads, tokens, batches, box_heads, 1},
        {"grad_out", args->grad_out, dv, heads, tokens, batches, box_heads, 1}};
    const struct smelt__gqa_map_source blocks[] = {
        {"k", args->k, dqk, kv_heads, grad->rows, batches, 1, rows},
        {"v", args->v, dv, kv_heads, grad->rows, batches, 1, rows}};
    smelt_status status = smelt__gqa_map_make(grad->context, &tiles[0], &params->q_map);
    if (status == SMELT_OK)
        status = smelt__gqa_map_make(grad->context, &tiles[1], &params->grad_out_map);
    if (status == SMELT_OK)
        status = smelt__gqa_source_make(grad->context, &blocks[0], &params->k);
    return status == SMELT_OK ? smelt__gqa_source_make(grad->context, &blocks[1], &params->v)
                              : status;
}

static smelt_status fill_main(const struct smelt__gqa_block_grad *grad,
                              const struct smelt__gqa_block_grad_args *args,
                              struct sparse_gqa_bwd_block_params *params) {
    const struct sparse_gqa_lists_params index = smelt__gqa_index_params(
        &grad->of_chunk, &args->work, &args->lists, 0, grad->chunk, args->workspace);
    *params = (struct sparse_gqa_bwd_block_params){
        .items = {.starts = index.starts,
                  .items = index.items,
                  .order = index.order,
                  .pairs = index.pairs,
                  .lists = (int)grad->of_chunk.lists,
                  .blocks = (int)grad->of_chunk.blocks,
                  .tokens = args->work.tokens,
                  .rows = (int)grad->rows},
        .queries = index.queries,
        .statistics = args->statistics,
        .dq_partials = at(args, grad->dq_partials),
        .key_partials = at(args, grad->key_partials),
        .scale = args->scale,
    };
    return make_maps(grad, args, params);
}

static struct sparse_gqa_sums_params sums_params(const struct smelt__gqa_block_grad *grad,
                                                 const struct smelt__gqa_block_grad_args *args,
                                                 const struct sparse_gqa_lists_params *index) {
    return (struct sparse_gqa_sums_params){
        .work = args->work,
        .places = index->places,
        .dq_partials = at(args, grad->dq_partials),
        .dq = args->dq->data,
        .dq_batch_stride = args->dq->strides[0],
        .dq_token_stride = args->dq->strides[1],
        .dq_head_stride = args->dq->strides[2],
        .first = index->first,
        .entries = index->entries,
        .items = index->items,
        .key_partials = at(args, grad->key_partials),
        .dk_sums = args->dk_sums,
        .dv_sums = args->dv_sums,
        .blocks = index->blocks,
        .rows = (int)grad->rows,
        .adds = index->first > 0,
        .lists = (int)grad->of_chunk.lists,
    };
}

static smelt_status launch_one(const struct smelt__gqa_block_grad *grad,
                               const struct smelt__gqa_block_grad_args *args,
                               const struct smelt__kernel *kernel, int64_t blocks, int all,
                               const void *params) {
    const int64_t most = all ? blocks : smelt__available_blocks(kernel, args->free_multiprocessors);
    const struct smelt__launch launch = {.blocks = {(uint32_t)(blocks < most ? blocks : most)},
                                         .params = params};
    return smelt__kernel_launch(grad->context, kernel, &launch, args->stream);
}

/* The sums of dq, and of dk and dv if there are lists. */
static smelt_status launch_sums(const struct smelt__gqa_block_grad *grad,
                                const struct smelt__gqa_block_grad_args *args,
                                const struct sparse_gqa_lists_params *index) {
    const struct sparse_gqa_sums_params params = sums_params(grad, args, index);
    const int64_t columns = number_of(grad, "dqk") + number_of(grad, "dv");
    const int64_t blocks = grad->of_chunk.lists * list_heads(grad) *
                           (grad->of_chunk.granularity / PART_KEYS) *
                           (columns / VECTOR_COLUMNS / SUM_VECTORS);
    const smelt_status status =
        launch_one(grad, args, grad->query_sums,
                   smelt__divide_up(index->entries * units_of(grad), SUM_WARPS), 0, &params);
    return status == SMELT_OK && blocks > 0
               ? launch_one(grad, args, grad->key_sums, blocks < INT32_MAX ? blocks : INT32_MAX, 1,
                            &params)
               : status;
}

static smelt_status launch_chunk(const struct smelt__gqa_block_grad *grad,
                                 const struct smelt__gqa_block_grad_args *args,
                                 const struct sparse_gqa_bwd_block_params *main, int64_t first) {
    const int64_t left = grad->queries - first, entries = left < grad->chunk ? left : grad->chunk;
    const struct sparse_gqa_lists_params index = smelt__gqa_index_params(
        &grad->of_chunk, &args->work, &args->lists, first, entries, args->workspace);
    smelt_status status;
    if (grad->of_chunk.lists == 0) /* every slot is masked */
        status = smelt__fill_async(grad->context, index.places, UINT32_MAX,
                                   (size_t)(entries * index.groups * grad->width), 0, args->stream);
    else
        status = smelt__gqa_index_launch(grad->context, grad->index, &index, args->stream);
    if (status == SMELT_OK && grad->of_chunk.lists > 0)
        status = launch_one(grad, args, grad->keys, INT32_MAX, 0, main);
    return status == SMELT_OK ? launch_sums(grad, args, &index) : status;
}

smelt_status smelt__gqa_block_grad_check(const struct smelt__gqa_block_grad *grad,
                                         const struct smelt__gqa_block_grad_args *args) {
    struct sparse_gqa_bwd_block_params main;
    return grad->of_chunk.lists > 0 && grad->queries > 0 ? fill_main(grad, args, &main) : SMELT_OK;
}

smelt_status smelt__gqa_block_grad_launch(const struct smelt__gqa_block_grad *grad,
                                          const struct smelt__gqa_block_grad_args *args) {
    struct sparse_gqa_bwd_block_params main;
    smelt_status status = SMELT_OK;
    if (grad->of_chunk.lists > 0 && grad->queries > 0)
        status = fill_main(grad, args, &main);
    for (int64_t first = 0; first < grad->queries && status == SMELT_OK; first += grad->chunk)
        status = launch_chunk(grad, args, &main, first);
    return status;
}
