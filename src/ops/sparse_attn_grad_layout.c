/* See sparse_attn_grad_layout.h. */
#include "ops/sparse_attn_grad_layout.h"

#include <stdint.h>

#include "ops/attention_call.h"
#include "ops/divide.h"
#include "ops/split_sizes.h"

enum {
    KEY_STEP = 64, /* keys per block; key lists are padded to whole blocks */
    /* Least number of key blocks that slicing must save per item. Starting and ending a slice and
     * summing its dq cost about as much. */
    LEAST_SAVED = 2
};

struct smelt__dkv_shape smelt__grad_shape(const struct smelt__sparse_attn_backward *backward) {
    return (struct smelt__dkv_shape){
        .columns = backward->shape.dqk,
        .deterministic = backward->deterministic,
        .group_items = backward->main.head_blocks,
        .key_rows = backward->main.head_blocks / backward->sides,
        .sum_multiprocessors = backward->main.sum_multiprocessors,
    };
}

/* Upper bound of the number of slices with any grid. Grows with the numbers of items and keys. */
static int64_t most_slices(const struct smelt__sparse_attn_backward *backward,
                           const struct smelt__dkv_layout *dkv) {
    const int64_t items = dkv->groups * backward->main.head_blocks, most = backward->main_blocks;
    const int64_t blocks = items * (dkv->key_stride / KEY_STEP);
    if (backward->main.slice_blocks == 0)
        return 0;
    return (items < most ? items : most) + (blocks < most ? blocks : most);
}

struct smelt__grad_grid smelt__grad_find_grid(const struct smelt__sparse_attn_backward *backward,
                                              const struct smelt__grad_layout *layout,
                                              int64_t most) {
    const int64_t items = layout->dkv.groups * backward->main.head_blocks;
    const int64_t sliced = items % most, length = layout->dkv.key_stride / KEY_STEP;
    const int64_t slice_ctas = sliced * length < most ? sliced * length : most;
    struct smelt__grad_grid grid = {.blocks = items < most ? items : most};
    if (backward->main.slice_blocks == 0 || sliced == 0 ||
        length - smelt__divide_up(length * sliced, slice_ctas) < LEAST_SAVED ||
        length * slice_ctas > UINT32_MAX)
        return grid;
    grid.blocks = items < most ? slice_ctas : most;
    grid.sliced = sliced;
    grid.slice_ctas = slice_ctas / backward->main.slice_blocks;
    return grid;
}

/*
 * Whether only its own item reads a key list before dq is complete, so that the list may lie in dq.
 * False if the lists are transposed from CSR to CSC; if there is a query list, since it may name a
 * query twice; if items read the lists of other queries' items; and if an item has rows of several
 * queries. Slicing is no obstacle: a sliced item's dq is written after all slices are done. If a
 * query has several items, each needs a list of its own, which not every main kernel supports.
 */
static int lists_are_their_items(const struct smelt__sparse_attn_backward *backward,
                                 const smelt_sparse_attn_grad_args *args) {
    const int whole =
        backward->main.block_heads * backward->main.head_blocks == backward->shape.heads;
    return !backward->deterministic && !backward->shape.buckets &&
           backward->main.group_queries == 1 && args->query_capacity == 0 &&
           args->rows <= SMELT__SPLIT_LOOSE_ROWS &&
           (backward->main.head_blocks == 1 || (backward->main.tensor_maps && whole));
}

/*
 * The stride between key lists stored in dq, in keys; 0: the lists lie in the workspace. A thread
 * block reads an item's list up to the last key block and only then writes the item's rows of dq.
 * So these rows can hold the list if only this item reads it, group g is query g, and dq's rows are
 * evenly spaced without gaps.
 */
static int64_t dq_list_stride(const struct smelt__sparse_attn_backward *backward,
                              const smelt_sparse_attn_grad_args *args, int key_stride) {
    const int64_t row = backward->shape.dqk, query = row * backward->shape.heads;
    const int64_t item = backward->main.head_blocks > 1 ? row * backward->main.block_heads : query;
    const int64_t *const strides = args->dq.strides;
    const int packed = !(strides[0] | strides[1] | strides[2] | strides[3]);
    const int64_t stride = packed ? query : args->tokens > 1 ? strides[1] : strides[0];
    if (!args->dq.data || !lists_are_their_items(backward, args))
        return 0;
    if (key_stride * (int64_t)sizeof(int) > item * (int64_t)sizeof(uint16_t) || stride < query ||
        stride > INT32_MAX || stride % (SMELT__ROW_BYTES / (int64_t)sizeof(uint16_t)) != 0)
        return 0;
    if (!packed && backward->shape.heads > 1 && strides[2] != row)
        return 0;
    if (!packed && args->tokens > 1 && args->batches > 1 && strides[0] != args->tokens * stride)
        return 0;
    return stride * (int64_t)sizeof(uint16_t) / (int64_t)sizeof(int);
}

struct smelt__grad_layout
smelt__grad_find_layout(const struct smelt__sparse_attn_backward *backward,
                        const smelt_sparse_attn_grad_args *args) {
    const struct smelt__attention_call fields = SMELT__ATTENTION_CALL(args);
    const struct smelt__sparse_attn_shape *shape = &backward->shape;
    const int64_t slots = args->width < shape->topk ? args->width : shape->topk;
    const int64_t key_count = args->batches * args->rows;
    const struct smelt__dkv_shape dkv = smelt__grad_shape(backward);
    struct smelt__grad_layout layout = {.queries = smelt__attention_count_queries(&fields)};
    const int64_t groups = smelt__divide_up(layout.queries, backward->main.group_queries);
    layout.entries = groups * backward->main.group_queries;
    layout.parts = smelt__divide_up(layout.entries, SMELT__ATTENTION_BWD_ROWS_ENTRIES);
    layout.dkv.groups = groups;
    layout.dkv.key_count = key_count;
    layout.dkv.key_stride =
        (int)(smelt__divide_up(slots * backward->main.group_queries, SMELT__SPLIT_LIST_STEP) *
              SMELT__SPLIT_LIST_STEP);
    if (shape->buckets && layout.queries > 0) {
        const size_t bytes = smelt__partition_layout(layout.queries, shape->buckets).bytes;
        layout.partition = smelt__workspace_place(&layout.bytes, (int64_t)bytes, 1);
    }
    const int64_t keys = groups * layout.dkv.key_stride;
    layout.members = smelt__workspace_place(&layout.bytes, layout.entries, sizeof(int));
    layout.dkv.counts = smelt__workspace_place(&layout.bytes, groups, sizeof(int));
    layout.dkv.firsts =
        smelt__workspace_place(&layout.bytes, backward->deterministic ? groups : 0, sizeof(int));
    layout.dq_list_stride = dq_list_stride(backward, args, layout.dkv.key_stride);
    if (layout.dq_list_stride && backward->main.head_blocks > 1)
        layout.dq_side_stride = (int64_t)backward->main.block_heads * shape->dqk *
                                (int64_t)sizeof(uint16_t) / (int64_t)sizeof(int);
    layout.dkv.keys =
        smelt__workspace_place(&layout.bytes, layout.dq_list_stride ? 0 : keys, sizeof(int));
    layout.masks =
        smelt__workspace_place(&layout.bytes, backward->main.group_queries > 1 ? keys : 0, 1);
    layout.statistics = smelt__workspace_place(
        &layout.bytes, layout.entries * backward->main.query_rows, 2 * sizeof(float));
    layout.dsink_parts = smelt__workspace_place(
        &layout.bytes, shape->sink ? layout.parts * shape->heads : 0, sizeof(float));
    layout.slices = smelt__workspace_place(&layout.bytes, most_slices(backward, &layout.dkv),
                                           (size_t)(backward->main.block_heads * shape->dqk) *
                                               sizeof(uint16_t));
    layout.progress =
        smelt__workspace_place(&layout.bytes, key_count > 0, SMELT__WORKSPACE_ALIGNMENT);
    smelt__dkv_place(&dkv, args->workspace_limit, &layout.bytes, &layout.dkv);
    return layout;
}
