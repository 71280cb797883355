/* See sparse_attn_backward.h. */
#include "ops/sparse_attn_backward.h"

#include <stdint.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "ops/arguments.h"
#include "ops/divide.h"
#include "ops/sparse_attn_grad_args.h"
#include "ops/sparse_attn_partition.h"
#include "runtime/context.h"
#include "runtime/log.h"
#include "runtime/tensor_map.h"

enum {
    LISTS_SHARE = 2,        /* of the device: it is the lists' half, where rows run beside them */
    ZERO_WORDS = 4,         /* that are filled at a time */
    ZERO_STEPS = 4,         /* of a thread, before another block helps */
    TENSOR_MAP_COLUMNS = 64 /* of a box */
};

/* Rows of KV above which lists are put into ascending order: from there on dkv's sums and kv no
 * longer stay in the L2 cache together, and neighbours in a list come by together. */
static const int64_t ASCENDING_ROWS = 12288;

/* Up to so many of them the thread blocks' waits for each other cost more than they bring when they
 * stand right ahead of the copies (measured at 32768 and 65536: bench/log). */
static const int64_t LOOSE_ROWS = 49152;

/* ---- the operator ---------------------------------------------------------------------------- */

/* Kernel number `kernel` of enum smelt__sparse_attn_backward_kernel, of a pass's `kernels`. */
static const struct smelt__kernel *find_kernel(const struct smelt__sparse_attn_backward *backward,
                                               const struct smelt__kernel *const *kernels,
                                               enum smelt__sparse_attn_backward_kernel kernel) {
    int place = (int)kernel + (backward->shape.buckets ? 2 : 0);
    if (!backward->deterministic)
        place -= kernel > SMELT__BACKWARD_SUM ? 4 : kernel >= SMELT__BACKWARD_MAIN ? 3 : 0;
    return kernels[place];
}

smelt_status smelt__sparse_attn_backward_make(smelt_context *context,
                                              const struct smelt__spec *spec,
                                              struct smelt__sparse_attn_backward *backward) {
    struct smelt__expansion expansion;
    struct smelt__message message;
    struct smelt__plan plan;
    int i = 0;
    if (smelt__spec_expand(spec, &expansion, &message))
        return smelt__fail(SMELT_ERROR_UNSUPPORTED, "%s", message.text);
    while (expansion.kernels[i].schema != &smelt__sparse_attn_bwd.schema)
        i++;
    smelt_status status = smelt__kernel_plan(context, &expansion.kernels[i], &plan);
    if (status != SMELT_OK)
        return status;
    backward->deterministic = (int)smelt__spec_get(spec, "deterministic");
    backward->group_queries = smelt__plan_constant(&plan, "GROUP_QUERIES", NULL);
    backward->query_rows = smelt__plan_constant(&plan, "QUERY_ROWS", NULL);
    backward->head_blocks = smelt__plan_constant(&plan, "HEAD_BLOCKS", NULL);
    backward->block_heads = smelt__plan_constant(&plan, "BLOCK_HEADS", NULL);
    backward->tensor_maps = smelt__plan_constant(&plan, "TENSOR_MAPS", NULL);
    backward->sums_beside = smelt__plan_constant(&plan, "SUMS_BESIDE", NULL);
    backward->slice_blocks = smelt__plan_constant(&plan, "SLICE_BLOCKS", NULL);
    const int first = smelt__operator_pass(backward->kernels, SMELT_PASS_BACKWARD, &i);
    backward->main_blocks =
        find_kernel(backward, backward->kernels->kernels + first, SMELT__BACKWARD_MAIN)
            ->resident_blocks;
    return SMELT_OK;
}

/* ---- workspace ------------------------------------------------------------------------------- */

smelt_status smelt__sparse_attn_backward_bytes(const struct smelt__sparse_attn_backward *backward,
                                               const smelt_sparse_attn_grad_args *given,
                                               size_t *bytes) {
    smelt_sparse_attn_grad_args args;
    *bytes = 0;
    smelt_status status = smelt__grad_read_args(given, &args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(&args);
    status = smelt__sparse_attn_check_queries(&call);
    if (status == SMELT_OK)
        status = smelt__grad_check_rows(&call);
    if (status == SMELT_OK)
        status = smelt__sparse_attn_check_width(&backward->shape, call.width);
    if (status == SMELT_OK)
        *bytes = smelt__grad_find_layout(backward, &call, args.workspace_limit).bytes;
    return status;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* A checked call. */
struct backward_call {
    const struct smelt__sparse_attn_backward *backward;
    const smelt_sparse_attn_grad_args *args;
    const struct smelt__sparse_attn_call *call;
    struct smelt__grad_layout layout;
    struct CUstream_st *stream;
    const struct smelt__kernel *const *kernels; /* of the pass, the partition's first */
};

static const struct smelt__kernel *kernel_of(const struct backward_call *call,
                                             enum smelt__sparse_attn_backward_kernel kernel) {
    return find_kernel(call->backward, call->kernels, kernel);
}

static void *at(const struct backward_call *call, size_t offset) {
    return (char *)call->args->workspace + offset;
}

static smelt_status launch(const struct backward_call *call,
                           enum smelt__sparse_attn_backward_kernel number, int64_t blocks,
                           const void *params) {
    const struct smelt__launch launch = {
        .blocks = {(uint32_t)blocks}, .entered = 1, .params = params};
    return smelt__kernel_launch(call->backward->kernels->context, kernel_of(call, number), &launch,
                                call->stream);
}

/* Floats from `progress` on that begin as zeros: progress, and dkv's sums. */
static int64_t zero_words(const struct backward_call *call) {
    const int64_t sums = call->layout.dkv.key_count * call->backward->shape.dqk;
    return sums > 0 ? SMELT__BACKWARD_ALIGNMENT / (int64_t)sizeof(float) + sums : 0;
}

/* The queries that are taken; with buckets the partition's list, whose longest are its last: it is
 * made here unless it was handed on, and *last_range is the work range of the last bucket. */
static smelt_status find_work(const struct backward_call *call, struct work_params *work,
                              const int **last_range) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    *work = smelt__sparse_attn_work(call->call, call->layout.queries);
    *last_range = NULL;
    if (!backward->shape.buckets)
        return SMELT_OK;
    const struct smelt__partition_kernels kernels = {call->kernels[0], call->kernels[1]};
    void *const memory = call->args->partition ? (void *)(uintptr_t)call->args->partition
                                               : at(call, call->layout.partition);
    const struct sparse_attn_partition_params partition =
        smelt__partition_params(work, backward->bounds, backward->shape.buckets, memory);
    work->queries = partition.list;
    work->query_count = NULL;
    work->extents = partition.extents;
    *last_range = partition.ranges + 2 * (backward->shape.buckets - 1);
    return call->args->partition ? SMELT_OK
                                 : smelt__partition_launch(backward->kernels->context, &kernels,
                                                           &partition, call->stream);
}

/* Each group's list of keys, and the zeros. */
static smelt_status launch_lists(const struct backward_call *call, const struct work_params *work,
                                 const int *last_range) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const struct smelt__grad_layout *layout = &call->layout;
    const struct smelt__kernel *kernel = kernel_of(call, SMELT__BACKWARD_GROUP);
    const int64_t vectors = zero_words(call) / ZERO_WORDS;
    const int64_t filling = smelt__divide_up(vectors, (int64_t)kernel->threads * ZERO_STEPS);
    const int64_t blocks = layout->dkv.groups > filling ? layout->dkv.groups : filling;
    const int share = backward->kernels->context->arch->dependent_launch ? LISTS_SHARE : 1;
    const struct sparse_attn_bwd_lists_params params = {
        .work = *work,
        .last_range = last_range,
        .members = at(call, layout->members),
        .counts = at(call, layout->dkv.counts),
        .keys = at(call, layout->dkv.keys),
        .masks = at(call, layout->masks),
        .zeros = at(call, layout->progress),
        .zero_vectors = vectors,
        .groups = (int)layout->dkv.groups,
        .group_queries = backward->group_queries,
        .key_stride = layout->dkv.key_stride,
        .topk = backward->shape.topk,
        .ascending = call->args->rows > ASCENDING_ROWS,
    };
    return launch(call, SMELT__BACKWARD_GROUP,
                  smelt__blocks_for(kernel, blocks, kernel->most_blocks / share), &params);
}

/* Each row's statistics, beside the lists. */
static smelt_status launch_rows(const struct backward_call *call, const struct work_params *work,
                                const int *last_range) {
    const smelt_sparse_attn_grad_args *args = call->args;
    struct sparse_attn_bwd_rows_params params = {
        .work = *work,
        .last_range = last_range,
        .out = args->out.data,
        .grad_out = args->grad_out.data,
        .lse = args->lse.data,
        .sink = args->sink.data,
        .statistics = at(call, call->layout.statistics),
        .dsink_parts = args->dsink.data ? at(call, call->layout.dsink_parts) : NULL,
        .out_batch_stride = args->out.strides[0],
        .out_token_stride = args->out.strides[1],
        .out_head_stride = args->out.strides[2],
        .grad_out_batch_stride = args->grad_out.strides[0],
        .grad_out_token_stride = args->grad_out.strides[1],
        .grad_out_head_stride = args->grad_out.strides[2],
        .lse_batch_stride = args->lse.strides[0],
        .lse_token_stride = args->lse.strides[1],
        .lse_head_stride = args->lse.strides[2],
        .entries = (int)call->layout.entries,
        .query_rows = call->backward->query_rows,
    };
    const struct smelt__launch launch = {
        .blocks = {(uint32_t)call->layout.parts}, .early = 1, .entered = 1, .params = &params};
    params.work.overlaps = 1;
    return smelt__kernel_launch(call->backward->kernels->context,
                                kernel_of(call, SMELT__BACKWARD_ROWS), &launch, call->stream);
}

/* [batches, tokens, HEADS, columns] of q or grad_out, boxes of one query. */
static smelt_status make_map(const struct backward_call *call, const char *name,
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
        .box = {TENSOR_MAP_COLUMNS, (uint32_t)(backward->block_heads / backward->group_queries), 1,
                1},
        .entered = 1,
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
    return smelt__tensor_map_make(backward->kernels->context, &box, map);
}

/* Whether thread blocks of the main kernel are to keep in step: where lists are ascending because
 * the table is large, and its rows are added to. */
static int step_of(const struct backward_call *call) {
    if (call->args->rows <= ASCENDING_ROWS || call->backward->deterministic)
        return STEP_NONE;
    return call->args->rows <= LOOSE_ROWS ? STEP_LOOSE : STEP_CLOSE;
}

static smelt_status fill_main(const struct backward_call *call,
                              struct sparse_attn_bwd_params *params) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const smelt_sparse_attn_grad_args *args = call->args;
    const struct smelt__grad_layout *layout = &call->layout;
    *params = (struct sparse_attn_bwd_params){
        .q = args->q.data,
        .kv = args->kv.data,
        .grad_out = args->grad_out.data,
        .members = at(call, layout->members),
        .counts = at(call, layout->dkv.counts),
        .keys = at(call, layout->dkv.keys),
        .masks = at(call, layout->masks),
        .statistics = at(call, layout->statistics),
        .dq = args->dq.data,
        .dkv = at(call, layout->dkv.sums),
        .slices = at(call, layout->slices),
        .progress = at(call, layout->progress),
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
        .key_stride = layout->dkv.key_stride,
        .step = step_of(call),
        .scale = args->scale,
    };
    if (!backward->tensor_maps)
        return SMELT_OK;
    smelt_status status = make_map(call, "q", &args->q, backward->shape.dqk, &params->q_map);
    return status == SMELT_OK ? make_map(call, "grad_out", &args->grad_out, backward->shape.dv,
                                         &params->grad_out_map)
                              : status;
}

/* The main kernel's grid, of a launch that takes all groups. */
static struct smelt__grad_grid find_grid(const struct backward_call *call) {
    const struct smelt__kernel *kernel = kernel_of(call, SMELT__BACKWARD_MAIN);
    return smelt__grad_find_grid(call->backward, &call->layout,
                                 smelt__blocks_beside(kernel, call->args->free_multiprocessors));
}

/* A chunk's launch of the main kernel: all but what is the chunk's in `params`. */
struct main_launch {
    const struct backward_call *call;
    struct sparse_attn_bwd_params params;
};

/* As smelt__key_grads_call has it. */
static smelt_status launch_groups(void *user, const struct smelt__key_grads_chunk *chunk) {
    struct main_launch *const main = user;
    const struct backward_call *call = main->call;
    const struct smelt__kernel *kernel = kernel_of(call, SMELT__BACKWARD_MAIN);
    const int left = call->args->free_multiprocessors + chunk->beside;
    int64_t blocks = smelt__blocks_for(kernel, chunk->groups, smelt__blocks_beside(kernel, left));
    main->params.first_group = (int)chunk->first;
    main->params.groups = (int)chunk->groups;
    main->params.partials = chunk->partials;
    if (call->backward->slice_blocks) {
        const struct smelt__grad_grid grid = find_grid(call);
        blocks = grid.blocks;
        main->params.sliced = (int)grid.sliced;
        main->params.takers = (int)grid.takers;
    }
    return launch(call, SMELT__BACKWARD_MAIN, blocks, &main->params);
}

static struct smelt__key_grads_call dkv_of(const struct backward_call *call) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    struct smelt__key_grads_call dkv = {
        .context = backward->kernels->context,
        .shape = smelt__grad_shape(backward),
        .layout = &call->layout.dkv,
        .finish = kernel_of(call, SMELT__BACKWARD_FINISH),
        .workspace = call->args->workspace,
        .united = backward->group_queries > 1,
        .launch_groups = launch_groups,
        .stream = call->stream,
    };
    if (backward->deterministic) {
        dkv.count = kernel_of(call, SMELT__BACKWARD_COUNT);
        dkv.scan = kernel_of(call, SMELT__BACKWARD_SCAN);
        dkv.place = kernel_of(call, SMELT__BACKWARD_PLACE);
        dkv.sum = kernel_of(call, SMELT__BACKWARD_SUM);
    }
    return dkv;
}

/* dq, and what is added to the sums of dkv. */
static smelt_status launch_queries(const struct backward_call *call, struct main_launch *main,
                                   struct smelt__key_grads_call *dkv) {
    struct work_params work;
    const int *last_range;
    smelt_status status = find_work(call, &work, &last_range);
    if (status == SMELT_OK)
        status = launch_lists(call, &work, last_range);
    if (status == SMELT_OK)
        status = launch_rows(call, &work, last_range);
    dkv->user = main;
    return status == SMELT_OK ? smelt__key_grads_launch(dkv) : status;
}

/* What of dq was computed in slices. */
static struct dq_slices slices_of(const struct backward_call *call) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const struct smelt__grad_layout *layout = &call->layout;
    const struct smelt__grad_grid grid = find_grid(call);
    return (struct dq_slices){
        .slices = at(call, layout->slices),
        .members = at(call, layout->members),
        .counts = at(call, layout->dkv.counts),
        .dq = call->args->dq.data,
        .dq_batch_stride = call->args->dq.strides[0],
        .dq_token_stride = call->args->dq.strides[1],
        .dq_head_stride = call->args->dq.strides[2],
        .items = (int)(grid.sliced / backward->slice_blocks),
        .takers = (int)grid.takers,
        .sides = backward->slice_blocks,
        .group_queries = backward->group_queries,
        .head_blocks = backward->head_blocks,
        .member_rows = backward->block_heads / backward->group_queries,
        .heads = backward->shape.heads,
        .tokens = (int)call->args->tokens,
    };
}

/* The caller's dkv, and dsink; dq out of its slices. */
static smelt_status launch_finish(const struct backward_call *call,
                                  const struct smelt__key_grads_call *dkv) {
    const smelt_sparse_attn_grad_args *args = call->args;
    const smelt_tensor *tensor = args->dkv.data        ? &args->dkv
                                 : args->dkv_fp32.data ? &args->dkv_fp32
                                                       : &args->dkv_sum;
    struct sparse_attn_bwd_finish_params params = {
        .dkv = tensor->data,
        .dsink_parts = at(call, call->layout.dsink_parts),
        .dsink = args->dsink.data,
        .dkv_batch_stride = tensor->strides[0],
        .dkv_row_stride = tensor->strides[1],
        .mode = args->dkv.data        ? FINISH_BF16
                : args->dkv_fp32.data ? FINISH_FP32
                                      : FINISH_ADD,
        .batches = (int)args->batches,
        .rows = (int)args->rows,
        .heads = call->backward->shape.heads,
        .parts = (int)call->layout.parts,
    };
    if (call->backward->slice_blocks && call->layout.queries > 0)
        params.dq = slices_of(call);
    return smelt__key_grads_finish(dkv, params);
}

static smelt_status launch_chain(const struct backward_call *call) {
    const int64_t zeros = zero_words(call);
    const int queries = call->layout.queries > 0;
    struct smelt__key_grads_call dkv = dkv_of(call);
    struct main_launch main = {.call = call};
    /* What the main kernel's arguments refuse is refused before anything is launched. */
    smelt_status status = queries ? fill_main(call, &main.params) : SMELT_OK;
    if (status == SMELT_OK && queries)
        status = launch_queries(call, &main, &dkv);
    else if (status == SMELT_OK && zeros > 0)
        status =
            smelt__fill_async(call->backward->kernels->context, at(call, call->layout.progress), 0,
                              (size_t)zeros, 1, call->stream);
    return status == SMELT_OK && (zeros > 0 || call->args->dsink.data) ? launch_finish(call, &dkv)
                                                                       : status;
}

/* The CUDA context is made current once for all launches. */
static smelt_status launch_in_context(const struct backward_call *call) {
    const smelt_context *const context = call->backward->kernels->context;
    int pushed;
    smelt_status status = smelt__context_enter(context, &pushed);
    if (status != SMELT_OK)
        return status;
    status = launch_chain(call);
    smelt__context_leave(context, pushed);
    return status;
}

smelt_status smelt__sparse_attn_backward_launch(const struct smelt__sparse_attn_backward *backward,
                                                const smelt_sparse_attn_grad_args *given,
                                                struct CUstream_st *stream) {
    smelt_sparse_attn_grad_args args;
    smelt_status status = smelt__grad_read_args(given, &args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(&args);
    status = smelt__sparse_attn_check_call(&backward->shape, &call);
    if (status == SMELT_OK)
        status = smelt__grad_check_rows(&call);
    if (status != SMELT_OK)
        return status;
    int count;
    const int first = smelt__operator_pass(backward->kernels, SMELT_PASS_BACKWARD, &count);
    const struct backward_call all = {
        backward, &args,
        &call,    smelt__grad_find_layout(backward, &call, args.workspace_limit),
        stream,   backward->kernels->kernels + first,
    };
    status = smelt__grad_check_memory(backward, &call, &all.layout, &args);
    if (status == SMELT_OK)
        status = smelt__operator_check_grid(backward->kernels, SMELT_PASS_BACKWARD,
                                            all.layout.dkv.groups);
    return status == SMELT_OK ? launch_in_context(&all) : status;
}
