/*
 * The block-stationary forward pass of sparse_gqa (variant sm90 of its kernel), and what its backward
 * pass shares with it. Queries are processed in chunks, so that the partial results of one fit into
 * PARTIAL_BYTES: for each chunk the reverse index of its lists, the kernel that takes blocks of keys,
 * and the one that merges.
 */
#include "codegen/families/sparse_gqa.h"
#include "codegen/families/sparse_gqa_lists.h"
#include "ops/divide.h"
#include "ops/key_grads.h"
#include "ops/sparse_gqa.h"
#include "runtime/tensor_map.h"

/* clang-format off */
#include "sparse_gqa_fwd.block.params.h"
#include "sparse_gqa_merge.params.h"
#include "sparse_gqa_united.params.h"
/* clang-format on */

enum { MERGE_WARPS = 8 /* of a thread block: a unit each */, MAP_COLUMNS = 64 };
#define PARTIAL_BYTES ((int64_t)5 << 29) /* 2.5 GiB */

/* ---- both passes ----------------------------------------------------------------------------- */

int64_t smelt__gqa_chunk_of(int64_t queries, int64_t bytes) {
    const int64_t most = PARTIAL_BYTES / bytes;
    const int64_t chunks = smelt__divide_up(queries, most > 0 ? most : 1);
    return chunks > 0 ? smelt__divide_up(queries, chunks) : 0;
}

smelt_status smelt__gqa_launch_index(const struct smelt__call *call,
                                     const struct smelt__gqa_index *index,
                                     const struct smelt__kernel *const *kernels,
                                     const struct sparse_gqa_lists_params *params) {
    const smelt_context *const context = call->op->context;
    if (index->lists > 0)
        return smelt__gqa_index_launch(context, kernels, params, call->stream);
    const size_t slots = (size_t)(params->entries * (int64_t)params->groups * index->width);
    return smelt__fill_async(context, params->places, UINT32_MAX, slots, call->stream);
}

struct gqa_items_params smelt__gqa_items(const struct smelt__gqa_index *index,
                                         const struct sparse_gqa_lists_params *params) {
    return (struct gqa_items_params){.starts = params->starts,
                                     .items = params->items,
                                     .order = params->order,
                                     .pairs = params->pairs,
                                     .lists = (int)index->lists,
                                     .blocks = (int)index->blocks,
                                     .tokens = params->work.tokens,
                                     .rows = params->work.rows};
}

smelt_status smelt__gqa_map_make(const smelt_context *context,
                                 const struct smelt__gqa_map_source *source,
                                 struct tensor_map *map) {
    const int64_t extents[] = {source->heads, source->rows, source->batches};
    const int boxes[] = {source->box_heads, source->box_rows, 1};
    struct smelt__tensor_box box = {
        .data = source->tensor->data,
        .element = SMELT__MAP_BF16,
        .swizzle = SMELT__MAP_SWIZZLE_128,
        .dimensions = 4,
        .extents = {(uint64_t)source->columns},
        .box = {MAP_COLUMNS},
    };
    for (int i = 0; i < 3; i++) {
        const int number = 2 - i; /* of the stride */
        const int64_t stride = extents[i] > 1 ? source->tensor->strides[number]
                                              : SMELT__ROW_BYTES / SMELT__GQA_ELEMENT;
        const smelt_status status = smelt__check_map_stride(source->name, number, stride,
                                                            SMELT__GQA_ELEMENT, "variant=mma");
        if (status != SMELT_OK)
            return status;
        box.extents[i + 1] = (uint64_t)extents[i];
        box.strides[i + 1] = (uint64_t)(stride * SMELT__GQA_ELEMENT);
        box.box[i + 1] = (uint32_t)boxes[i];
    }
    return smelt__tensor_map_make(context, &box, map);
}

smelt_status smelt__gqa_source_make(const smelt_context *context,
                                    const struct smelt__gqa_map_source *source,
                                    struct gqa_block_source *block) {
    *block = (struct gqa_block_source){
        .data = source->tensor->data,
        .batch_stride = source->tensor->strides[0],
        .row_stride = source->tensor->strides[1],
        .head_stride = source->tensor->strides[2],
    };
    return smelt__gqa_map_make(context, source, &block->map);
}

smelt_status smelt__gqa_launch(const struct smelt__call *call, const struct smelt__kernel *kernel,
                               int64_t blocks, int64_t free_multiprocessors, const void *params) {
    const int64_t most = smelt__available_blocks(kernel, free_multiprocessors);
    const struct smelt__launch launch = {.blocks = {(uint32_t)(blocks < most ? blocks : most)},
                                         .params = params};
    return smelt__kernel_launch(call->op->context, kernel, &launch, call->stream);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* A call. */
struct forward {
    const struct smelt__call *call;
    const smelt_sparse_gqa_args *args;
    const struct smelt__kernel *const *kernels;
    const struct smelt__sparse_gqa_block_launch *launch;
    const struct sparse_gqa_fwd_params *params;
    struct smelt__gqa_index index;
    size_t partials, partial_lse; /* offsets in the workspace */
    size_t bytes;                 /* of the workspace */
    int64_t queries, chunk;       /* entries of the query list: all, and at once */
    int64_t units;                /* of an entry and slot */
    int kv_heads, heads, dqk, dv;
};

static const struct smelt__sparse_gqa_block_launch *launch_of(const smelt_operator *op) {
    return smelt__sparse_gqa_block_launch(&op->kernels[SMELT__SPARSE_GQA_FWD]->plan);
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
        smelt__sparse_gqa_united_launch(&op->kernels[SMELT__SPARSE_GQA_UNITED]->plan);
    return launch->tile_entries * width <= SMELT__GQA_LISTS_MOST_SLOTS ? *launch : none;
}

/* What the spec and the numbers say. */
static smelt_status place(const struct smelt__call *call, struct forward *forward) {
    const smelt_sparse_gqa_args *args = call->args;
    const struct smelt__spec *spec = &call->op->spec;
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(args);
    const struct smelt__sparse_gqa_united_launch tiles = tiles_of(call->op, args->width);
    *forward = (struct forward){
        .call = call,
        .args = args,
        .kernels = call->op->kernels,
        .launch = launch_of(call->op),
        .queries = smelt__sparse_attn_count_queries(&fields),
        .kv_heads = (int)smelt__spec_get(spec, "kv_heads"),
        .heads = (int)smelt__spec_get(spec, "heads"),
        .dqk = (int)smelt__spec_get(spec, "dqk"),
        .dv = (int)smelt__spec_get(spec, "dv"),
    };
    const int64_t value_bytes = (int64_t)SMELT__GQA_UNIT_HEADS * forward->dv * SMELT__GQA_ELEMENT;
    const int64_t lse_bytes = SMELT__GQA_UNIT_HEADS * (int64_t)sizeof(float);
    forward->units = (int64_t)forward->kv_heads * forward->launch->units;
    forward->chunk = smelt__gqa_chunk_of(forward->queries,
                                         (value_bytes + lse_bytes) * forward->units * args->width);
    forward->index = (struct smelt__gqa_index){
        .batches = args->batches > 0 ? args->batches : 1,
        .rows = args->rows,
        .width = args->width,
        .entries = forward->chunk,
        .groups = smelt__spec_get(spec, "lists") ? forward->kv_heads : 1,
        .granularity = (int)smelt__spec_get(spec, "granularity"),
        .segment = forward->launch->segment,
        .with_pairs = 1,
        .tile_entries = tiles.tile_entries,
        .part_entries = tiles.part_entries,
    };
    const int64_t units = forward->chunk * args->width * forward->units;
    const smelt_status status = smelt__gqa_index_place(&forward->index, &forward->bytes);
    forward->partials = smelt__workspace_place(&forward->bytes, units, (size_t)value_bytes);
    forward->partial_lse = smelt__workspace_place(&forward->bytes, units, (size_t)lse_bytes);
    return status;
}

smelt_status smelt__sparse_gqa_block_workspace(const struct smelt__call *call, size_t *bytes) {
    struct forward forward;
    const smelt_status status = place(call, &forward);
    *bytes = forward.bytes;
    return status;
}

static void *at(const struct forward *forward, size_t offset) {
    return (char *)forward->args->workspace + offset;
}

/* The params of the main kernel, the same for all chunks. */
static smelt_status fill_main(const struct forward *forward,
                              const struct sparse_gqa_lists_params *index,
                              struct sparse_gqa_block_params *params) {
    const smelt_sparse_gqa_args *args = forward->args;
    const smelt_context *context = forward->call->op->context;
    const int64_t batches = index->work.batches, tokens = index->work.tokens;
    const int64_t rows = index->work.rows, kv_heads = forward->kv_heads;
    const int block = forward->index.granularity, box_heads = forward->launch->box_heads;
    const struct smelt__gqa_map_source q = {"q",    &args->q, forward->dqk, forward->heads,
                                            tokens, batches,  box_heads,    1};
    const struct smelt__gqa_map_source k = {"k",     &args->k, forward->dqk, kv_heads, rows,
                                            batches, 1,        block};
    const struct smelt__gqa_map_source v = {"v",  &args->v, forward->dv, kv_heads,
                                            rows, batches,  1,           block};
    *params = (struct sparse_gqa_block_params){
        .items = smelt__gqa_items(&forward->index, index),
        .partials = at(forward, forward->partials),
        .partial_lse = at(forward, forward->partial_lse),
        .scale = args->scale,
    };
    smelt_status status = smelt__gqa_map_make(context, &q, &params->q_map);
    if (status == SMELT_OK)
        status = smelt__gqa_source_make(context, &k, &params->k);
    return status == SMELT_OK ? smelt__gqa_source_make(context, &v, &params->v) : status;
}

/* Fields of the params of the kernels that write out and lse. */
#define OUTPUTS(from, index)                                                                       \
    .work = (from)->work, .sink = (from)->sink, .out = (from)->out, .lse = (from)->lse,            \
    .out_batch_stride = (from)->out_batch_stride, .out_token_stride = (from)->out_token_stride,    \
    .out_head_stride = (from)->out_head_stride, .lse_batch_stride = (from)->lse_batch_stride,      \
    .lse_token_stride = (from)->lse_token_stride, .lse_head_stride = (from)->lse_head_stride,      \
    .tiles = (index)->tiles, .first = (index)->first, .entries = (index)->entries

static smelt_status launch_merge(const struct forward *forward,
                                 const struct sparse_gqa_lists_params *index) {
    const struct sparse_gqa_merge_params params = {
        OUTPUTS(forward->params, index),
        .places = index->places,
        .partials = at(forward, forward->partials),
        .partial_lse = at(forward, forward->partial_lse),
        .tile_entries = index->tile_entries,
    };
    return smelt__gqa_launch(forward->call, forward->kernels[SMELT__SPARSE_GQA_MERGE],
                             smelt__divide_up(index->entries * forward->units, MERGE_WARPS),
                             forward->args->free_multiprocessors, &params);
}

/* Unites lists where that pays. */
static smelt_status launch_unite(const struct forward *forward,
                                 const struct sparse_gqa_lists_params *index) {
    const int64_t tiles = smelt__gqa_index_tiles(&forward->index, index->entries) * index->groups;
    const struct smelt__launch launch = {
        .blocks = {(uint32_t)smelt__divide_up(tiles, SMELT__GQA_LISTS_UNITE_TILES)},
        .params = index};
    return smelt__kernel_launch(forward->call->op->context,
                                forward->kernels[SMELT__SPARSE_GQA_UNITE], &launch,
                                forward->call->stream);
}

static smelt_status launch_united(const struct forward *forward,
                                  const struct sparse_gqa_block_params *main,
                                  const struct sparse_gqa_lists_params *index) {
    const struct sparse_gqa_united_params params = {
        OUTPUTS(forward->params, index),
        .q_map = main->q_map,
        .k = main->k,
        .v = main->v,
        .lists = forward->params->lists,
        .items = main->items,
        .united = index->united,
        .scale = forward->params->scale,
    };
    return smelt__gqa_launch(forward->call, forward->kernels[SMELT__SPARSE_GQA_UNITED],
                             smelt__gqa_index_tiles(&forward->index, index->entries) *
                                 forward->kv_heads,
                             forward->args->free_multiprocessors, &params);
}

static smelt_status launch_chunk(const struct forward *forward,
                                 const struct sparse_gqa_block_params *main,
                                 const struct sparse_gqa_lists_params *index) {
    const int keys = forward->index.lists > 0, tiles = index->tiles != NULL;
    smelt_status status = tiles ? launch_unite(forward, index) : SMELT_OK;
    if (status == SMELT_OK)
        status = smelt__gqa_launch_index(forward->call, &forward->index,
                                         forward->kernels + SMELT__SPARSE_GQA_COUNT, index);
    if (status == SMELT_OK && tiles)
        status = launch_united(forward, main, index);
    if (status == SMELT_OK && keys)
        status = smelt__gqa_launch(forward->call, forward->kernels[SMELT__SPARSE_GQA_FWD],
                                   INT32_MAX, forward->args->free_multiprocessors, main);
    return status == SMELT_OK ? launch_merge(forward, index) : status;
}

smelt_status smelt__sparse_gqa_block_forward(const struct smelt__call *call,
                                             const struct sparse_gqa_fwd_params *params) {
    struct forward forward;
    struct sparse_gqa_block_params main;
    smelt_status status = place(call, &forward);
    forward.params = params;
    for (int64_t first = 0; first < forward.queries && status == SMELT_OK; first += forward.chunk) {
        const int64_t left = forward.queries - first;
        const struct sparse_gqa_lists_params index = smelt__gqa_index_params(
            &forward.index, &params->work, &params->lists, first,
            left < forward.chunk ? left : forward.chunk, forward.args->workspace);
        if (first == 0 && forward.index.lists > 0)
            status = fill_main(&forward, &index, &main);
        if (status == SMELT_OK)
            status = launch_chunk(&forward, &main, &index);
    }
    return status;
}
