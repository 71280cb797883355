/* See sparse_attn_grad_params.h. */
#include "ops/sparse_attn_grad_params.h"

#include <string.h>

#include "ops/cuts.h"
#include "ops/sparse_attn_partition.h"
#include "runtime/context.h"

enum { TENSOR_MAP_COLUMNS = 64 /* of a box */ };

enum { ZERO_WORDS = 4 /* that are filled at a time */ };

const struct smelt__kernel *smelt__grad_kernel(const struct smelt__sparse_attn_backward *backward,
                                               enum smelt__sparse_attn_backward_kernel kernel) {
    int place = (int)kernel + (backward->shape.buckets ? 2 : 0);
    if (!backward->deterministic)
        place -= kernel > SMELT__BACKWARD_SUM ? 2 : kernel >= SMELT__BACKWARD_MAIN ? 1 : 0;
    return backward->chain[place];
}

/* ---- what follows from extents and strides --------------------------------------------------- */

/* From one group's list of keys to the next one's. */
static int list_stride(const struct smelt__grad_layout *layout) {
    return layout->dq_list_stride ? (int)layout->dq_list_stride : layout->dkv.key_stride;
}

static struct sparse_attn_bwd_lists_params
prepare_lists(const struct smelt__sparse_attn_backward *backward,
              const struct smelt__grad_prepared *prepared,
              const struct smelt__sparse_attn_call *call) {
    const struct smelt__grad_layout *layout = &prepared->layout;
    return (struct sparse_attn_bwd_lists_params){
        .work = smelt__sparse_attn_work(call, layout->queries),
        .zero_vectors = prepared->zeros / ZERO_WORDS,
        .groups = (int)layout->dkv.groups,
        .group_queries = backward->group_queries,
        .key_stride = list_stride(layout),
        .copies = layout->dq_side_stride ? backward->head_blocks : 1,
        .copy_stride = (int)layout->dq_side_stride,
        .topk = backward->shape.topk,
        .ascending = call->rows > SMELT__CUT_ASCENDING_ROWS,
    };
}

static struct sparse_attn_bwd_rows_params
prepare_rows(const struct smelt__sparse_attn_backward *backward,
             const struct smelt__grad_layout *layout, const smelt_sparse_attn_grad_args *args) {
    return (struct sparse_attn_bwd_rows_params){
        .out_batch_stride = args->out.strides[0],
        .out_token_stride = args->out.strides[1],
        .out_head_stride = args->out.strides[2],
        .grad_out_batch_stride = args->grad_out.strides[0],
        .grad_out_token_stride = args->grad_out.strides[1],
        .grad_out_head_stride = args->grad_out.strides[2],
        .lse_batch_stride = args->lse.strides[0],
        .lse_token_stride = args->lse.strides[1],
        .lse_head_stride = args->lse.strides[2],
        .entries = (int)layout->entries,
        .query_rows = backward->query_rows,
    };
}

/* Whether thread blocks of the main kernel are to keep in step: where lists are ascending because
 * the table is large, and its rows are added to. */
static int step_of(const struct smelt__sparse_attn_backward *backward, int64_t rows) {
    if (rows <= SMELT__CUT_ASCENDING_ROWS || backward->deterministic)
        return STEP_NONE;
    return rows <= SMELT__CUT_LOOSE_ROWS ? STEP_LOOSE : STEP_CLOSE;
}

static struct sparse_attn_bwd_params
prepare_main(const struct smelt__sparse_attn_backward *backward,
             const struct smelt__grad_prepared *prepared, const smelt_sparse_attn_grad_args *args) {
    return (struct sparse_attn_bwd_params){
        .q_batch_stride = args->q.strides[0],
        .q_token_stride = args->q.strides[1],
        .q_head_stride = args->q.strides[2],
        .kv_batch_stride = args->kv.strides[0],
        .grad_out_batch_stride = args->grad_out.strides[0],
        .grad_out_token_stride = args->grad_out.strides[1],
        .grad_out_head_stride = args->grad_out.strides[2],
        .dq_batch_stride = args->dq.strides[0],
        .dq_token_stride = args->dq.strides[1],
        .dq_head_stride = args->dq.strides[2],
        .kv_row_bytes = args->rows > 1 ? (unsigned)(args->kv.strides[1] * 2) : 0,
        .even_batches = args->batches == 1 ||
                        (args->rows > 1 && args->kv.strides[0] == args->rows * args->kv.strides[1]),
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
        .sliced = (int)prepared->grid.sliced,
        .takers = (int)prepared->grid.takers,
        .key_stride = list_stride(&prepared->layout),
        .side_stride = (int)prepared->layout.dq_side_stride,
        .step = step_of(backward, args->rows),
        .scale = args->scale,
    };
}

/* What of dq is computed in slices. */
static struct dq_slices prepare_slices(const struct smelt__sparse_attn_backward *backward,
                                       const struct smelt__grad_grid *grid,
                                       const smelt_sparse_attn_grad_args *args) {
    return (struct dq_slices){
        .dq_batch_stride = args->dq.strides[0],
        .dq_token_stride = args->dq.strides[1],
        .dq_head_stride = args->dq.strides[2],
        .items = (int)(grid->sliced / backward->slice_blocks),
        .takers = (int)grid->takers,
        .sides = backward->slice_blocks,
        .group_queries = backward->group_queries,
        .head_blocks = backward->head_blocks,
        .member_rows = backward->block_heads / backward->group_queries,
        .heads = backward->shape.heads,
        .tokens = (int)args->tokens,
    };
}

/* The kind of dkv that is wanted. */
static const smelt_tensor *dkv_of(const smelt_sparse_attn_grad_args *args) {
    return args->dkv.data ? &args->dkv : args->dkv_fp32.data ? &args->dkv_fp32 : &args->dkv_sum;
}

static struct sparse_attn_bwd_finish_params
prepare_finish(const struct smelt__sparse_attn_backward *backward,
               const struct smelt__grad_prepared *prepared,
               const smelt_sparse_attn_grad_args *args) {
    const smelt_tensor *tensor = dkv_of(args);
    struct sparse_attn_bwd_finish_params params = {
        .dkv_batch_stride = tensor->strides[0],
        .dkv_row_stride = tensor->strides[1],
        .mode = args->dkv.data        ? FINISH_BF16
                : args->dkv_fp32.data ? FINISH_FP32
                                      : FINISH_ADD,
        .batches = (int)args->batches,
        .rows = (int)args->rows,
        .heads = backward->shape.heads,
        .parts = (int)prepared->layout.parts,
    };
    if (backward->slice_blocks && prepared->layout.queries > 0)
        params.dq = prepare_slices(backward, &prepared->grid, args);
    return params;
}

static struct smelt__key_grads_call prepare_dkv(const struct smelt__sparse_attn_backward *backward,
                                                const struct smelt__grad_prepared *prepared) {
    struct smelt__key_grads_call dkv = {
        .context = backward->kernels->context,
        .shape = smelt__grad_shape(backward),
        .layout = &prepared->layout.dkv,
        .finish = smelt__grad_kernel(backward, SMELT__BACKWARD_FINISH),
    };
    if (backward->deterministic) {
        dkv.turn = smelt__grad_kernel(backward, SMELT__BACKWARD_TURN);
        dkv.sum = smelt__grad_kernel(backward, SMELT__BACKWARD_SUM);
    }
    return dkv;
}

/* [batches, tokens, HEADS, columns] of q or grad_out, boxes of one query. */
static smelt_status prepare_box(const struct smelt__sparse_attn_backward *backward,
                                const smelt_sparse_attn_grad_args *args, const char *name,
                                const smelt_const_tensor *tensor, int columns,
                                struct smelt__tensor_box *box) {
    const int64_t extents[] = {columns, backward->shape.heads, args->tokens, args->batches};
    *box = (struct smelt__tensor_box){
        .element = SMELT__MAP_BF16,
        .swizzle = SMELT__MAP_SWIZZLE_128,
        .dimensions = 4,
        .box = {TENSOR_MAP_COLUMNS, (uint32_t)(backward->block_heads / backward->group_queries), 1,
                1},
        .entered = 1,
    };
    for (int i = 0; i < 4; i++)
        box->extents[i] = (uint64_t)extents[i];
    for (int i = 1; i < 4; i++) {
        const int64_t stride = extents[i] > 1 ? tensor->strides[3 - i] : SMELT__ROW_BYTES / 2;
        const smelt_status status =
            smelt__check_map_stride(name, 3 - i, stride, 2, "bwd.variant=mma");
        if (status != SMELT_OK)
            return status;
        box->strides[i] = (uint64_t)stride * 2;
    }
    return SMELT_OK;
}

static smelt_status prepare_queries(const struct smelt__sparse_attn_backward *backward,
                                    const struct smelt__sparse_attn_call *call,
                                    const smelt_sparse_attn_grad_args *args,
                                    struct smelt__grad_prepared *prepared) {
    const struct smelt__kernel *kernel = smelt__grad_kernel(backward, SMELT__BACKWARD_MAIN);
    prepared->grid = smelt__grad_find_grid(
        backward, &prepared->layout, smelt__blocks_beside(kernel, args->free_multiprocessors));
    prepared->lists = prepare_lists(backward, prepared, call);
    prepared->rows = prepare_rows(backward, &prepared->layout, args);
    prepared->main = prepare_main(backward, prepared, args);
    if (!backward->tensor_maps)
        return SMELT_OK;
    smelt_status status =
        prepare_box(backward, args, "q", &args->q, backward->shape.dqk, &prepared->q_box);
    return status == SMELT_OK ? prepare_box(backward, args, "grad_out", &args->grad_out,
                                            backward->shape.dv, &prepared->grad_out_box)
                              : status;
}

static int64_t count_zeros(const struct smelt__sparse_attn_backward *backward,
                           const struct smelt__grad_layout *layout) {
    const int64_t sums = layout->dkv.key_count * backward->shape.dqk;
    return sums > 0 ? SMELT__BACKWARD_ALIGNMENT / (int64_t)sizeof(float) + sums : 0;
}

smelt_status smelt__grad_prepare(const struct smelt__sparse_attn_backward *backward,
                                 const smelt_sparse_attn_grad_args *given,
                                 struct smelt__grad_prepared *prepared) {
    smelt_sparse_attn_grad_args args;
    struct smelt__grad_layout *const layout = &prepared->layout;
    prepared->args.size = 0;
    smelt_status status = smelt__grad_read_args(given, &args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(&args);
    status = smelt__sparse_attn_check_call(&backward->shape, &call);
    if (status == SMELT_OK)
        status = smelt__grad_check_rows(&call);
    if (status != SMELT_OK)
        return status;
    smelt_sparse_attn_grad_args as_given = args;
    as_given.batches = given->batches; /* where 0 counts as 1 */
    *layout = smelt__grad_find_layout(backward, &call, &args.dq, args.workspace_limit);
    status = smelt__grad_check_memory(backward, &call, layout, &args, &prepared->checked);
    if (status == SMELT_OK)
        status =
            smelt__operator_check_grid(backward->kernels, SMELT_PASS_BACKWARD, layout->dkv.groups);
    if (status != SMELT_OK)
        return status;
    prepared->zeros = count_zeros(backward, layout);
    if (layout->queries > 0)
        status = prepare_queries(backward, &call, &args, prepared);
    prepared->finish = prepare_finish(backward, prepared, &args);
    prepared->dkv = prepare_dkv(backward, prepared);
    prepared->args = as_given;
    if (status != SMELT_OK)
        prepared->args.size = 0;
    return status;
}

int smelt__grad_is_prepared(const struct smelt__grad_prepared *prepared,
                            const smelt_sparse_attn_grad_args *given) {
    return prepared->args.size != 0 && given && given->size == sizeof *given &&
           smelt__grad_check_again(&prepared->args, &prepared->checked, given);
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* The partition, which the forward's workspace or the call's own holds; the queries are its list
 * then, whose longest are its last: lists.last_range is the work range of the last bucket. */
static void point_partition(const struct smelt__sparse_attn_backward *backward,
                            const smelt_sparse_attn_grad_args *args,
                            struct smelt__grad_prepared *prepared) {
    struct work_params *const work = &prepared->lists.work;
    const int buckets = backward->shape.buckets;
    void *const memory = args->partition ? (void *)(uintptr_t)args->partition
                                         : (char *)args->workspace + prepared->layout.partition;
    prepared->partition = smelt__partition_params(work, backward->bounds, buckets, memory);
    work->queries = prepared->partition.list;
    work->query_count = NULL;
    work->extents = prepared->partition.extents;
    prepared->lists.last_range = prepared->partition.ranges + 2 * (buckets - 1);
}

static void point_lists(const struct smelt__sparse_attn_backward *backward,
                        const smelt_sparse_attn_grad_args *args,
                        struct smelt__grad_prepared *prepared) {
    struct sparse_attn_bwd_lists_params *const lists = &prepared->lists;
    const struct smelt__grad_layout *layout = &prepared->layout;
    char *const workspace = args->workspace;
    lists->work.indices = args->indices.data;
    lists->work.topk_length = args->topk_length.data;
    lists->work.queries = args->queries.data;
    lists->work.query_count = args->query_count.data;
    lists->members = (int *)(void *)(workspace + layout->members);
    lists->counts = (int *)(void *)(workspace + layout->dkv.counts);
    lists->firsts =
        backward->deterministic ? (int *)(void *)(workspace + layout->dkv.firsts) : NULL;
    lists->keys =
        layout->dq_list_stride ? args->dq.data : (int *)(void *)(workspace + layout->dkv.keys);
    lists->masks = (unsigned char *)workspace + layout->masks;
    lists->zeros = (float *)(void *)(workspace + layout->progress);
    if (backward->shape.buckets)
        point_partition(backward, args, prepared);
}

/* Behind the lists' own. */
static void point_rows(const smelt_sparse_attn_grad_args *args,
                       struct smelt__grad_prepared *prepared) {
    struct sparse_attn_bwd_rows_params *const rows = &prepared->rows;
    char *const workspace = args->workspace;
    rows->work = prepared->lists.work;
    rows->work.overlaps = 1;
    rows->last_range = prepared->lists.last_range;
    rows->out = args->out.data;
    rows->grad_out = args->grad_out.data;
    rows->lse = args->lse.data;
    rows->sink = args->sink.data;
    rows->statistics = (float *)(void *)(workspace + prepared->layout.statistics);
    rows->dsink_parts =
        args->dsink.data ? (float *)(void *)(workspace + prepared->layout.dsink_parts) : NULL;
}

static smelt_status point_main(const struct smelt__sparse_attn_backward *backward,
                               const smelt_sparse_attn_grad_args *args,
                               struct smelt__grad_prepared *prepared) {
    struct sparse_attn_bwd_params *const main = &prepared->main;
    const struct sparse_attn_bwd_lists_params *const lists = &prepared->lists;
    const smelt_context *const context = backward->kernels->context;
    char *const workspace = args->workspace;
    main->q = args->q.data;
    main->kv = args->kv.data;
    main->grad_out = args->grad_out.data;
    main->members = lists->members;
    main->counts = lists->counts;
    main->keys = lists->keys;
    main->masks = lists->masks;
    main->statistics = prepared->rows.statistics;
    main->dq = args->dq.data;
    main->dkv = (float *)(void *)(workspace + prepared->layout.dkv.sums);
    main->slices = workspace + prepared->layout.slices;
    main->progress = (unsigned *)(void *)(workspace + prepared->layout.progress);
    if (!backward->tensor_maps)
        return SMELT_OK;
    prepared->q_box.data = args->q.data;
    prepared->grad_out_box.data = args->grad_out.data;
    const smelt_status status = smelt__tensor_map_make(context, &prepared->q_box, &main->q_map);
    return status == SMELT_OK
               ? smelt__tensor_map_make(context, &prepared->grad_out_box, &main->grad_out_map)
               : status;
}

static void point_finish(const smelt_sparse_attn_grad_args *args,
                         struct smelt__grad_prepared *prepared) {
    struct sparse_attn_bwd_finish_params *const finish = &prepared->finish;
    char *const workspace = args->workspace;
    finish->dkv = dkv_of(args)->data;
    finish->dsink_parts = (const float *)(const void *)(workspace + prepared->layout.dsink_parts);
    finish->dsink = args->dsink.data;
    if (finish->dq.items == 0)
        return;
    finish->dq.slices = prepared->main.slices;
    finish->dq.members = prepared->main.members;
    finish->dq.counts = prepared->main.counts;
    finish->dq.dq = args->dq.data;
}

smelt_status smelt__grad_point(const struct smelt__sparse_attn_backward *backward,
                               const smelt_sparse_attn_grad_args *args,
                               struct smelt__grad_prepared *prepared) {
    smelt_status status = SMELT_OK;
    if (prepared->layout.queries > 0) {
        point_lists(backward, args, prepared);
        point_rows(args, prepared);
        status = point_main(backward, args, prepared);
    }
    point_finish(args, prepared);
    prepared->dkv.workspace = args->workspace;
    return status;
}
