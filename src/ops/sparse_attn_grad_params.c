/* See sparse_attn_grad_params.h. */
#include "ops/sparse_attn_grad_params.h"

#include "ops/arguments.h"
#include "ops/cuts.h"
#include "ops/sparse_attn_partition.h"
#include "runtime/tensor_map.h"

enum {
    TENSOR_MAP_COLUMNS = 64, /* of a box */
    ZERO_WORDS = 4           /* that a thread of the lists kernel fills at a time */
};

static void *at(const struct smelt__grad_call *call, size_t offset) {
    return (char *)call->args->workspace + offset;
}

int64_t smelt__grad_zeros(const struct smelt__grad_call *call) {
    const int64_t sums = call->layout.dkv.key_count * call->backward->shape.dqk;
    return sums > 0 ? SMELT__WORKSPACE_ALIGNMENT / (int64_t)sizeof(float) + sums : 0;
}

/* ---- queries and their lists ----------------------------------------------------------------- */

static struct work_params work_of(const struct smelt__grad_call *call) {
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(call->args);
    return smelt__sparse_attn_work(&fields, call->layout.queries);
}

struct sparse_attn_partition_params smelt__grad_partition(const struct smelt__grad_call *call) {
    const struct work_params work = work_of(call);
    void *const memory = call->args->partition ? (void *)(uintptr_t)call->args->partition
                                               : at(call, call->layout.partition);
    return smelt__partition_params(&work, call->backward->bounds, call->backward->shape.buckets,
                                   memory);
}

/* The query list for the kernels after the partition: with buckets the partition's, else the
 * caller's. *last_range: the work range of the last bucket, which is the end of the list. */
static struct work_params find_queries(const struct smelt__grad_call *call,
                                       const int **last_range) {
    const int buckets = call->backward->shape.buckets;
    struct work_params work = work_of(call);
    *last_range = NULL;
    if (buckets) {
        const struct sparse_attn_partition_params partition = smelt__grad_partition(call);
        work.queries = partition.list;
        work.query_count = NULL;
        work.extents = partition.extents;
        *last_range = partition.ranges + 2 * (buckets - 1);
    }
    return work;
}

/* The key lists, and the distance from one to the next. */
static int *lists_of(const struct smelt__grad_call *call) {
    return call->layout.dq_list_stride ? call->args->dq.data : at(call, call->layout.dkv.keys);
}

static int list_stride(const struct smelt__grad_layout *layout) {
    return layout->dq_list_stride ? (int)layout->dq_list_stride : layout->dkv.key_stride;
}

struct sparse_attn_bwd_lists_params smelt__grad_lists(const struct smelt__grad_call *call) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const struct smelt__grad_layout *layout = &call->layout;
    struct sparse_attn_bwd_lists_params params = {
        .members = at(call, layout->members),
        .counts = at(call, layout->dkv.counts),
        .firsts = backward->deterministic ? at(call, layout->dkv.firsts) : NULL,
        .keys = lists_of(call),
        .masks = at(call, layout->masks),
        .zeros = at(call, layout->progress),
        .zero_vectors = smelt__grad_zeros(call) / ZERO_WORDS,
        .groups = (int)layout->dkv.groups,
        .group_queries = backward->main.group_queries,
        .key_stride = list_stride(layout),
        .copies = layout->dq_side_stride ? backward->main.head_blocks : 1,
        .copy_stride = (int)layout->dq_side_stride,
        .topk = backward->shape.topk,
        .ascending = call->args->rows > SMELT__CUT_ASCENDING_ROWS,
    };
    params.work = find_queries(call, &params.last_range);
    return params;
}

struct sparse_attn_bwd_rows_params smelt__grad_rows(const struct smelt__grad_call *call) {
    const smelt_sparse_attn_grad_args *args = call->args;
    const struct smelt__grad_layout *layout = &call->layout;
    struct sparse_attn_bwd_rows_params params = {
        SMELT__TENSOR_BTH(out, args->out),
        SMELT__TENSOR_BTH(grad_out, args->grad_out),
        SMELT__TENSOR_BTH(lse, args->lse),
        .sink = args->sink.data,
        .statistics = at(call, layout->statistics),
        .dsink_parts = args->dsink.data ? at(call, layout->dsink_parts) : NULL,
        .entries = (int)layout->entries,
        .query_rows = call->backward->main.query_rows,
    };
    params.work = find_queries(call, &params.last_range);
    params.work.pdl_wait_at_end = 1; /* it reads no output of the lists kernel */
    return params;
}

/* ---- the main kernel ------------------------------------------------------------------------- */

/* Whether the main kernel's thread blocks keep in step. They do if the KV table is so large that
 * lists are sorted, and the kernel adds to dkv's rows. */
static int step_of(const struct smelt__grad_call *call) {
    if (call->args->rows <= SMELT__CUT_ASCENDING_ROWS || call->backward->deterministic)
        return STEP_NONE;
    return call->args->rows <= SMELT__CUT_LOOSE_ROWS ? STEP_LOOSE : STEP_CLOSE;
}

/* A tensor map of q or grad_out, [batches, tokens, HEADS, columns], with boxes of one query. */
static smelt_status make_map(const struct smelt__grad_call *call, const char *name,
                             const smelt_const_tensor *tensor, int columns,
                             struct tensor_map *map) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const int64_t extents[] = {columns, backward->shape.heads, call->args->tokens,
                               call->args->batches};
    struct smelt__tensor_box box = {
        .data = tensor->data,
        .element = SMELT__MAP_BF16,
        .swizzle = SMELT__MAP_SWIZZLE_128,
        .dimensions = 4,
        .box = {TENSOR_MAP_COLUMNS,
                (uint32_t)(backward->main.block_heads / backward->main.group_queries), 1, 1},
    };
    for (int i = 0; i < 4; i++)
        box.extents[i] = (uint64_t)extents[i];
    for (int i = 1; i < 4; i++) {
        const int64_t stride = extents[i] > 1 ? tensor->strides[3 - i] : SMELT__ROW_BYTES / 2;
        const smelt_status status =
            smelt__check_map_stride(name, 3 - i, stride, 2, "bwd.variant=mma");
        if (status != SMELT_OK)
            return status;
        box.strides[i] = (uint64_t)stride * 2;
    }
    return smelt__tensor_map_make(backward->op->context, &box, map);
}

smelt_status smelt__grad_main(const struct smelt__grad_call *call,
                              const struct smelt__grad_grid *grid,
                              struct sparse_attn_bwd_params *params) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const smelt_sparse_attn_grad_args *args = call->args;
    const struct smelt__grad_layout *layout = &call->layout;
    *params = (struct sparse_attn_bwd_params){
        SMELT__TENSOR_BTH(q, args->q),
        .kv = args->kv.data,
        SMELT__TENSOR_BTH(grad_out, args->grad_out),
        .members = at(call, layout->members),
        .counts = at(call, layout->dkv.counts),
        .keys = lists_of(call),
        .masks = at(call, layout->masks),
        .statistics = at(call, layout->statistics),
        SMELT__TENSOR_BTH(dq, args->dq),
        .dkv = at(call, layout->dkv.sums),
        .slices = at(call, layout->slices),
        .progress = at(call, layout->progress),
        .kv_batch_stride = args->kv.strides[0],
        .kv_row_bytes = args->rows > 1 ? (unsigned)(args->kv.strides[1] * 2) : 0,
        .even_batches = args->batches == 1 ||
                        (args->rows > 1 && args->kv.strides[0] == args->rows * args->kv.strides[1]),
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
        .sliced = (int)grid->sliced,
        .slice_ctas = (int)grid->slice_ctas,
        .key_stride = list_stride(layout),
        .side_stride = (int)layout->dq_side_stride,
        .step = step_of(call),
        .scale = args->scale,
    };
    if (!backward->main.tensor_maps)
        return SMELT_OK;
    smelt_status status = make_map(call, "q", &args->q, backward->shape.dqk, &params->q_map);
    return status == SMELT_OK ? make_map(call, "grad_out", &args->grad_out, backward->shape.dv,
                                         &params->grad_out_map)
                              : status;
}

/* ---- the last kernel ------------------------------------------------------------------------- */

/* The rows of dq that are computed in slices. */
static struct dq_slices slices_of(const struct smelt__grad_call *call,
                                  const struct smelt__grad_grid *grid) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const smelt_sparse_attn_grad_args *args = call->args;
    return (struct dq_slices){
        .slices = at(call, call->layout.slices),
        .members = at(call, call->layout.members),
        .counts = at(call, call->layout.dkv.counts),
        SMELT__TENSOR_BTH(dq, args->dq),
        .items = (int)(grid->sliced / backward->main.slice_blocks),
        .slice_ctas = (int)grid->slice_ctas,
        .sides = backward->main.slice_blocks,
        .group_queries = backward->main.group_queries,
        .head_blocks = backward->main.head_blocks,
        .member_rows = backward->main.block_heads / backward->main.group_queries,
        .heads = backward->shape.heads,
        .tokens = (int)args->tokens,
    };
}

struct key_grads_finish_params smelt__grad_finish(const struct smelt__grad_call *call,
                                                  const struct smelt__grad_grid *grid) {
    const smelt_sparse_attn_grad_args *args = call->args;
    const smelt_tensor *dkv = args->dkv.data        ? &args->dkv
                              : args->dkv_fp32.data ? &args->dkv_fp32
                                                    : &args->dkv_sum;
    struct key_grads_finish_params params = {
        .dkv = dkv->data,
        .dkv_batch_stride = dkv->strides[0],
        .dkv_row_stride = dkv->strides[1],
        .mode = args->dkv.data        ? FINISH_BF16
                : args->dkv_fp32.data ? FINISH_FP32
                                      : FINISH_ADD,
        .dsink_parts = at(call, call->layout.dsink_parts),
        .dsink = args->dsink.data,
        .batches = (int)args->batches,
        .rows = (int)args->rows,
        .heads = call->backward->shape.heads,
        .parts = (int)call->layout.parts,
    };
    if (grid && grid->sliced > 0)
        params.dq = slices_of(call, grid);
    return params;
}
