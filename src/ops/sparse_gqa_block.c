/*
 * See sparse_gqa_block.h. Queries are processed in chunks, so that the partial results of one fit
 * into PARTIAL_BYTES: for each chunk the reverse index of its lists, the kernel that takes blocks of
 * keys, and the one that merges.
 */
#include "ops/sparse_gqa_block.h"

#include "codegen/families/sparse_gqa.h"
#include "codegen/families/sparse_gqa_block.h"
#include "codegen/families/sparse_gqa_keys.h"
#include "codegen/families/sparse_gqa_lists.h"
#include "ops/divide.h"
#include "ops/key_grads.h"
#include "ops/sparse_gqa_index.h"
#include "ops/sparse_gqa_maps.h"

/* clang-format off */
#include "sparse_gqa_fwd.block.params.h"
#include "sparse_gqa_merge.params.h"
#include "sparse_gqa_united.params.h"
/* clang-format on */

enum {
    UNIT_HEADS = 8,
    ELEMENT = 2,     /* bytes */
    MERGE_WARPS = 8, /* of a thread block: a unit each */
};
#define PARTIAL_BYTES ((int64_t)5 << 29) /* 2.5 GiB */

/* A call. */
struct block_call {
    const smelt_operator *op;
    const smelt_sparse_gqa_args *args;
    const struct sparse_gqa_fwd_params *params;
    struct smelt__gqa_index index;
    size_t partials, partial_lse; /* offsets in the workspace */
    size_t bytes;                 /* of the workspace */
    int64_t queries, chunk;       /* entries of the query list: all, and at once */
    int64_t units;                /* of an entry and slot */
    int kv_heads, heads, dqk, dv;
    char *workspace;
    struct CUstream_st *stream;
    int64_t free_multiprocessors;
};

static const struct smelt__kernel *kernel_of(const smelt_operator *op, int number) {
    return op->kernels[number];
}

static const struct smelt__sparse_gqa_block_launch *launch_of(const smelt_operator *op) {
    return smelt__sparse_gqa_block_launch(&kernel_of(op, SMELT__SPARSE_GQA_FWD)->plan);
}

int smelt__sparse_gqa_is_block(const smelt_operator *op) {
    return launch_of(op)->segment > 0; /* other plans leave it 0 */
}

/* The tiles of lists that may be united; zeros: none are. */
static struct smelt__sparse_gqa_united_launch tiles_of(const smelt_operator *op, int64_t width) {
    const struct smelt__sparse_gqa_united_launch none = {0, 0};
    int count;
    smelt__operator_pass(op, SMELT_PASS_FORWARD, &count);
    if (count <= SMELT__SPARSE_GQA_UNITED)
        return none;
    const struct smelt__sparse_gqa_united_launch *launch =
        smelt__sparse_gqa_united_launch(&kernel_of(op, SMELT__SPARSE_GQA_UNITED)->plan);
    return launch->tile_entries * width <= SMELT__GQA_LISTS_MOST_SLOTS ? *launch : none;
}

/* What the spec and the numbers say. */
static smelt_status place(const struct smelt__call *call, struct block_call *block) {
    const smelt_sparse_gqa_args *args = call->args;
    const struct smelt__spec *spec = &call->op->spec;
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(args);
    const int shared = smelt__spec_get(spec, "lists") == SMELT__SPARSE_GQA_SHARED;
    const struct smelt__sparse_gqa_united_launch tiles = tiles_of(call->op, args->width);
    *block = (struct block_call){
        .op = call->op,
        .args = args,
        .queries = smelt__sparse_attn_count_queries(&fields),
        .kv_heads = (int)smelt__spec_get(spec, "kv_heads"),
        .heads = (int)smelt__spec_get(spec, "heads"),
        .dqk = (int)smelt__spec_get(spec, "dqk"),
        .dv = (int)smelt__spec_get(spec, "dv"),
        .workspace = args->workspace,
        .stream = call->stream,
        .free_multiprocessors = args->free_multiprocessors,
    };
    block->units = (int64_t)block->kv_heads * launch_of(call->op)->units;
    const int64_t unit_bytes = UNIT_HEADS * (block->dv * ELEMENT + (int64_t)sizeof(float));
    const int64_t most = PARTIAL_BYTES / (unit_bytes * block->units * args->width);
    const int64_t chunks = smelt__divide_up(block->queries, most > 0 ? most : 1);
    block->chunk = chunks > 0 ? smelt__divide_up(block->queries, chunks) : 0;
    block->index = (struct smelt__gqa_index){
        .batches = args->batches > 0 ? args->batches : 1,
        .rows = args->rows,
        .width = args->width,
        .entries = block->chunk,
        .groups = shared ? 1 : block->kv_heads,
        .granularity = (int)smelt__spec_get(spec, "granularity"),
        .segment = launch_of(call->op)->segment,
        .with_pairs = 1,
        .tile_entries = tiles.tile_entries,
        .part_entries = tiles.part_entries,
    };
    const int64_t units = block->chunk * args->width * block->units;
    const smelt_status status = smelt__gqa_index_place(&block->index, &block->bytes);
    block->partials =
        smelt__workspace_place(&block->bytes, units, UNIT_HEADS * ELEMENT * (size_t)block->dv);
    block->partial_lse = smelt__workspace_place(&block->bytes, units, UNIT_HEADS * sizeof(float));
    return status;
}

smelt_status smelt__sparse_gqa_block_workspace(const struct smelt__call *call, size_t *bytes) {
    struct block_call block;
    const smelt_status status = place(call, &block);
    *bytes = block.bytes;
    return status;
}

/* ---- tensor maps ----------------------------------------------------------------------------- */

static smelt_status make_maps(const struct block_call *block,
                              struct sparse_gqa_block_params *params) {
    const smelt_sparse_gqa_args *args = block->args;
    const smelt_context *context = block->op->context;
    const struct work_params *work = &block->params->work;
    const int rows = block->index.granularity, box_heads = launch_of(block->op)->box_heads;
    const struct smelt__gqa_map_source q = {"q",          &args->q,      block->dqk, block->heads,
                                            work->tokens, work->batches, box_heads,  1};
    const struct smelt__gqa_map_source k = {"k",        &args->k,      block->dqk, block->kv_heads,
                                            work->rows, work->batches, 1,          rows};
    const struct smelt__gqa_map_source v = {"v",        &args->v,      block->dv, block->kv_heads,
                                            work->rows, work->batches, 1,         rows};
    smelt_status status = smelt__gqa_map_make(context, &q, &params->q_map);
    if (status == SMELT_OK)
        status = smelt__gqa_source_make(context, &k, &params->k);
    return status == SMELT_OK ? smelt__gqa_source_make(context, &v, &params->v) : status;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* The params of the main kernel, the same for all chunks. */
static smelt_status fill_main(const struct block_call *block,
                              const struct sparse_gqa_lists_params *index,
                              struct sparse_gqa_block_params *params) {
    const struct sparse_gqa_fwd_params *from = block->params;
    *params = (struct sparse_gqa_block_params){
        .items = {.starts = index->starts,
                  .items = index->items,
                  .order = index->order,
                  .pairs = index->pairs,
                  .lists = (int)block->index.lists,
                  .blocks = (int)block->index.blocks,
                  .tokens = from->work.tokens,
                  .rows = from->work.rows},
        .partials = block->workspace + block->partials,
        .partial_lse = (float *)(void *)(block->workspace + block->partial_lse),
        .scale = from->scale,
    };
    return make_maps(block, params);
}

static struct sparse_gqa_merge_params merge_params(const struct block_call *block,
                                                   const struct sparse_gqa_lists_params *index) {
    const struct sparse_gqa_fwd_params *from = block->params;
    return (struct sparse_gqa_merge_params){
        .work = from->work,
        .places = index->places,
        .partials = block->workspace + block->partials,
        .partial_lse = (const float *)(const void *)(block->workspace + block->partial_lse),
        .sink = from->sink,
        .out = from->out,
        .lse = from->lse,
        .out_batch_stride = from->out_batch_stride,
        .out_token_stride = from->out_token_stride,
        .out_head_stride = from->out_head_stride,
        .lse_batch_stride = from->lse_batch_stride,
        .lse_token_stride = from->lse_token_stride,
        .lse_head_stride = from->lse_head_stride,
        .tiles = index->tiles,
        .first = index->first,
        .entries = index->entries,
        .tile_entries = index->tile_entries,
    };
}

static struct sparse_gqa_united_params united_params(const struct block_call *block,
                                                     const struct sparse_gqa_block_params *main,
                                                     const struct sparse_gqa_lists_params *index) {
    const struct sparse_gqa_fwd_params *from = block->params;
    return (struct sparse_gqa_united_params){
        .q_map = main->q_map,
        .k = main->k,
        .v = main->v,
        .work = from->work,
        .lists = from->lists,
        .items = main->items,
        .tiles = index->tiles,
        .united = index->united,
        .sink = from->sink,
        .out = from->out,
        .lse = from->lse,
        .out_batch_stride = from->out_batch_stride,
        .out_token_stride = from->out_token_stride,
        .out_head_stride = from->out_head_stride,
        .lse_batch_stride = from->lse_batch_stride,
        .lse_token_stride = from->lse_token_stride,
        .lse_head_stride = from->lse_head_stride,
        .first = index->first,
        .entries = index->entries,
        .scale = from->scale,
    };
}

static smelt_status launch_main(const struct block_call *block,
                                const struct sparse_gqa_block_params *params) {
    const struct smelt__kernel *kernel = kernel_of(block->op, SMELT__SPARSE_GQA_FWD);
    const int64_t blocks = smelt__available_blocks(kernel, block->free_multiprocessors);
    const struct smelt__launch launch = {.blocks = {(uint32_t)blocks}, .params = params};
    return smelt__kernel_launch(block->op->context, kernel, &launch, block->stream);
}

static smelt_status launch_merge(const struct block_call *block,
                                 const struct sparse_gqa_lists_params *index) {
    const struct smelt__kernel *kernel = kernel_of(block->op, SMELT__SPARSE_GQA_MERGE);
    const struct sparse_gqa_merge_params params = merge_params(block, index);
    const int64_t needed = smelt__divide_up(index->entries * block->units, MERGE_WARPS);
    const int64_t most = smelt__available_blocks(kernel, block->free_multiprocessors);
    const struct smelt__launch launch = {.blocks = {(uint32_t)(needed < most ? needed : most)},
                                         .params = &params};
    return smelt__kernel_launch(block->op->context, kernel, &launch, block->stream);
}

/* Unites lists where that pays. */
static smelt_status launch_unite(const struct block_call *block,
                                 const struct sparse_gqa_lists_params *index) {
    const int64_t tiles = smelt__gqa_index_tiles(&block->index, index->entries) * index->groups;
    const struct smelt__launch launch = {
        .blocks = {(uint32_t)smelt__divide_up(tiles, SMELT__GQA_LISTS_UNITE_TILES)},
        .params = index};
    return smelt__kernel_launch(block->op->context, kernel_of(block->op, SMELT__SPARSE_GQA_UNITE),
                                &launch, block->stream);
}

static smelt_status launch_united(const struct block_call *block,
                                  const struct sparse_gqa_block_params *main,
                                  const struct sparse_gqa_lists_params *index) {
    const struct smelt__kernel *kernel = kernel_of(block->op, SMELT__SPARSE_GQA_UNITED);
    const struct sparse_gqa_united_params params = united_params(block, main, index);
    const int64_t items = smelt__gqa_index_tiles(&block->index, index->entries) * block->kv_heads;
    const int64_t most = smelt__available_blocks(kernel, block->free_multiprocessors);
    const struct smelt__launch launch = {.blocks = {(uint32_t)(items < most ? items : most)},
                                         .params = &params};
    return smelt__kernel_launch(block->op->context, kernel, &launch, block->stream);
}

/* Without keys every slot is masked. */
static smelt_status mask_places(const struct block_call *block,
                                const struct sparse_gqa_lists_params *index) {
    const size_t slots = (size_t)(index->entries * (int64_t)index->groups * block->index.width);
    return smelt__fill_async(block->op->context, index->places, UINT32_MAX, slots, 0,
                             block->stream);
}

static smelt_status launch_chunk(const struct block_call *block,
                                 const struct sparse_gqa_block_params *main, int64_t first) {
    const int64_t left = block->queries - first;
    const struct sparse_gqa_lists_params index =
        smelt__gqa_index_params(&block->index, &block->params->work, &block->params->lists, first,
                                left < block->chunk ? left : block->chunk, block->workspace);
    smelt_status status;
    if (block->index.lists == 0) {
        status = mask_places(block, &index);
    } else {
        status = index.tiles ? launch_unite(block, &index) : SMELT_OK;
        if (status == SMELT_OK)
            status = smelt__gqa_index_launch(block->op->context,
                                             &block->op->kernels[SMELT__SPARSE_GQA_COUNT], &index,
                                             block->stream);
        if (status == SMELT_OK && index.tiles)
            status = launch_united(block, main, &index);
        if (status == SMELT_OK)
            status = launch_main(block, main);
    }
    return status == SMELT_OK ? launch_merge(block, &index) : status;
}

smelt_status smelt__sparse_gqa_block_forward(const struct smelt__call *call,
                                             const struct sparse_gqa_fwd_params *params) {
    struct block_call block;
    struct sparse_gqa_block_params main;
    smelt_status status = place(call, &block);
    if (status != SMELT_OK)
        return status;
    block.params = params;
    const struct sparse_gqa_lists_params index = smelt__gqa_index_params(
        &block.index, &params->work, &params->lists, 0, block.chunk, block.workspace);
    if (block.index.lists > 0)
        status = fill_main(&block, &index, &main);
    for (int64_t first = 0; first < block.queries && status == SMELT_OK; first += block.chunk)
        status = launch_chunk(&block, &main, first);
    return status;
}
