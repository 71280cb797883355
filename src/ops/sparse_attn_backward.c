/* See sparse_attn_backward.h. */
#include "ops/sparse_attn_backward.h"

#include <inttypes.h>
#include <stdint.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "ops/arguments.h"
#include "ops/sparse_attn_partition.h"
#include "ops/sparse_attn_segments.h"
#include "runtime/abi.h"
#include "runtime/context.h"
#include "runtime/log.h"
#include "runtime/tensor_map.h"

enum {
    KEY_STEP = 64,            /* lists are padded to whole blocks of it */
    CHUNK_ITEMS = 132,        /* a chunk has a multiple of them where it can: whole waves on the
                                 largest Hopper GPUs. No device is asked, since the order of sums
                                 must not depend on it */
    FINISH_COLUMNS = 8,       /* that a thread of the last step makes at a time */
    TENSOR_MAP_COLUMNS = 64,  /* of a box */
    MOST_MAP_STRIDE_BITS = 40 /* bytes that a map's strides stay below */
};

/* What partial rows may take when the caller does not say. */
static const size_t DEFAULT_LIMIT = 1536UL << 20;

/* Rows of KV above which lists are put into ascending order: from there on dkv's sums and kv no
 * longer stay in the L2 cache together, and neighbours in a list come by together. */
static const int64_t ASCENDING_ROWS = 12288;

/* Up to so many of them the thread blocks' waits for each other cost more than they bring when they
 * stand right ahead of the copies (measured at 32768 and 65536: bench/log). */
static const int64_t LOOSE_ROWS = 49152;

/* ---- the operator ---------------------------------------------------------------------------- */

static int constant(const struct smelt__plan *plan, const char *name) {
    int found;
    return smelt__plan_constant(plan, name, &found);
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
    backward->group_queries = constant(&plan, "GROUP_QUERIES");
    backward->query_rows = constant(&plan, "QUERY_ROWS");
    backward->head_blocks = constant(&plan, "HEAD_BLOCKS");
    backward->block_heads = constant(&plan, "BLOCK_HEADS");
    backward->tensor_maps = constant(&plan, "TENSOR_MAPS");
    return SMELT_OK;
}

/* Kernel number `kernel` of enum smelt__sparse_attn_backward_kernel. */
static const struct smelt__kernel *kernel_of(const struct smelt__sparse_attn_backward *backward,
                                             enum smelt__sparse_attn_backward_kernel kernel) {
    int count, place = kernel;
    const int first = smelt__operator_pass(backward->kernels, SMELT_PASS_BACKWARD, &count);
    if (!backward->deterministic)
        place -= kernel > SMELT__BACKWARD_SUM ? 4 : kernel >= SMELT__BACKWARD_MAIN ? 3 : 0;
    return backward->kernels->kernels[first + (backward->shape.buckets ? 2 : 0) + place];
}

/* ---- workspace ------------------------------------------------------------------------------- */

/* Where each array lies in the workspace, bytes from its start, and what follows from the call. */
struct layout {
    size_t partition, members, counts, keys, masks, statistics, dsink_parts, partials;
    size_t progress, sums;                         /* one after the other: zeroed together */
    size_t cursors, starts, entry_list, scan_sums; /* of lists by keys */
    size_t bytes;                                  /* of all */
    int64_t queries, groups, entries, parts;
    int64_t chunk; /* groups of a launch of the main kernel */
    int key_stride;
};

static size_t place(size_t *end, int64_t count, size_t bytes) {
    const size_t offset = *end, size = (size_t)count * bytes;
    *end = offset + (size + SMELT__BACKWARD_ALIGNMENT - 1) / SMELT__BACKWARD_ALIGNMENT *
                        SMELT__BACKWARD_ALIGNMENT;
    return offset;
}

static int64_t up_to(int64_t value, int64_t step) {
    return (value + step - 1) / step * step;
}

/* Groups whose partial rows stay below the limit, one at the least. It depends on nothing of the
 * device, since it says in which order sums are taken. */
static int64_t chunk_groups(const struct smelt__sparse_attn_backward *backward,
                            const struct layout *layout, size_t limit) {
    const size_t group = (size_t)layout->key_stride * (size_t)backward->shape.dqk * 2 *
                         (size_t)backward->head_blocks;
    int64_t groups = (int64_t)((limit ? limit : DEFAULT_LIMIT) / group);
    if (!backward->deterministic)
        return layout->groups;
    if (groups > INT32_MAX / layout->key_stride) /* partial rows are numbered */
        groups = INT32_MAX / layout->key_stride;
    if (groups >= layout->groups)
        return layout->groups;
    const int64_t step = (CHUNK_ITEMS + backward->head_blocks - 1) / backward->head_blocks;
    if (groups > step)
        groups -= groups % step;
    return groups > 0 ? groups : 1;
}

/* What the deterministic mode has besides. */
static void add_partials(const struct smelt__sparse_attn_backward *backward, int64_t key_count,
                         struct layout *layout) {
    const struct smelt__segments_layout segments =
        smelt__segments_layout(layout->chunk, layout->key_stride, key_count);
    const int64_t rows = layout->chunk * backward->head_blocks * layout->key_stride;
    layout->cursors = place(&layout->bytes, segments.cursors, sizeof(int));
    layout->starts = place(&layout->bytes, segments.starts, sizeof(int));
    layout->entry_list = place(&layout->bytes, segments.entries, sizeof(int));
    layout->scan_sums = place(&layout->bytes, segments.sums, sizeof(int));
    layout->partials = place(&layout->bytes, rows * backward->shape.dqk, sizeof(uint16_t));
}

static struct layout find_layout(const struct smelt__sparse_attn_backward *backward,
                                 const struct smelt__sparse_attn_call *call, size_t limit) {
    const struct smelt__sparse_attn_shape *shape = &backward->shape;
    const int64_t slots = call->width < shape->topk ? call->width : shape->topk;
    const int64_t key_count = call->batches * call->rows;
    struct layout layout = {.queries = smelt__sparse_attn_count_queries(call)};
    layout.groups = (layout.queries + backward->group_queries - 1) / backward->group_queries;
    layout.entries = layout.groups * backward->group_queries;
    layout.parts =
        up_to(layout.entries, SMELT__SPARSE_ATTN_BWD_ENTRIES) / SMELT__SPARSE_ATTN_BWD_ENTRIES;
    layout.key_stride = (int)up_to(slots * backward->group_queries, KEY_STEP);
    layout.chunk = chunk_groups(backward, &layout, limit);
    if (shape->buckets && layout.queries > 0) {
        const size_t bytes = smelt__partition_layout(layout.queries, shape->buckets).bytes;
        layout.partition = place(&layout.bytes, (int64_t)bytes, 1);
    }
    const int64_t keys = layout.groups * layout.key_stride;
    layout.members = place(&layout.bytes, layout.entries, sizeof(int));
    layout.counts = place(&layout.bytes, layout.groups, sizeof(int));
    layout.keys = place(&layout.bytes, keys, sizeof(int));
    layout.masks = place(&layout.bytes, backward->group_queries > 1 ? keys : 0, 1);
    layout.statistics =
        place(&layout.bytes, layout.entries * backward->query_rows, 2 * sizeof(float));
    layout.dsink_parts =
        place(&layout.bytes, shape->sink ? layout.parts * shape->heads : 0, sizeof(float));
    layout.progress = place(&layout.bytes, SMELT__BACKWARD_ALIGNMENT, 1);
    layout.sums = place(&layout.bytes, key_count * shape->dqk, sizeof(float));
    if (backward->deterministic && layout.groups > 0 && key_count > 0)
        add_partials(backward, key_count, &layout);
    return layout;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static smelt_status read_args(const smelt_sparse_attn_grad_args *given,
                              smelt_sparse_attn_grad_args *args) {
    smelt_status status =
        smelt__struct_read(SMELT__STRUCT(smelt_sparse_attn_grad_args, "args",
                                         "SMELT_SPARSE_ATTN_GRAD_ARGS_INIT", workspace_limit),
                           given, args);
    if (status == SMELT_OK && args->batches == 0)
        args->batches = 1;
    return status;
}

static smelt_status check_rows(const struct smelt__sparse_attn_call *call) {
    smelt_status status = smelt__check_extent("rows", call->rows, 0, INT32_MAX);
    if (status != SMELT_OK || call->batches == 0 || call->rows <= INT32_MAX / call->batches)
        return status;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "batches = %" PRId64 " times rows = %" PRId64
                       " exceeds 2^31 - 1, the most rows of dkv; split the call",
                       call->batches, call->rows);
}

/* Exactly one kind of dkv, dsink with a sink alone. */
static smelt_status check_outputs(const struct smelt__sparse_attn_backward *backward,
                                  const smelt_sparse_attn_grad_args *args) {
    const int kinds = !!args->dkv.data + !!args->dkv_fp32.data + !!args->dkv_sum.data;
    if (kinds > 1 || (kinds == 0 && args->rows > 0))
        return smelt__fail(
            SMELT_ERROR_INVALID_ARGUMENT,
            "%s of dkv, dkv_fp32 and dkv_sum %s given; give exactly one: bf16, fp32, "
            "or fp32 to be added to",
            kinds ? "several" : "none", kinds ? "are" : "is");
    if (args->dsink.data && !backward->shape.sink)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "dsink is given but the operator was made with sink=0; make one with "
                           "sink=1, or pass NULL");
    return SMELT_OK;
}

/* The forward's workspace, whose partition is used again. */
static smelt_status check_partition(const struct smelt__sparse_attn_backward *backward,
                                    const smelt_sparse_attn_grad_args *args, int64_t queries) {
    if (!args->partition)
        return SMELT_OK;
    if (!backward->shape.buckets)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "partition is given but the operator has no buckets; pass NULL");
    const size_t needed = smelt__partition_layout(queries, backward->shape.buckets).bytes;
    if ((uintptr_t)args->partition % SMELT__PARTITION_ALIGNMENT)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "partition = %p is not aligned; a forward call's workspace starts at a "
                           "multiple of %d bytes",
                           args->partition, SMELT__PARTITION_ALIGNMENT);
    if (args->partition_bytes < needed)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "partition_bytes = %zu is too small: a forward call with these queries "
                           "leaves %zu in its workspace",
                           args->partition_bytes, needed);
    return SMELT_OK;
}

/* Everything of a call but an empty one's tensors. */
static smelt_status check_args(const struct smelt__sparse_attn_backward *backward,
                               const struct smelt__sparse_attn_call *call,
                               const struct layout *layout, smelt_sparse_attn_grad_args *args) {
    int64_t extents[SMELT__SPARSE_ATTN_SYMBOLS];
    const struct smelt__memory others[] = {
        {"workspace", args->workspace, args->workspace_bytes, 1},
        {"partition", args->partition, args->partition ? args->partition_bytes : 0, 0},
    };
    smelt_status status = check_outputs(backward, args);
    if (status == SMELT_OK)
        status = check_partition(backward, args, layout->queries);
    smelt__sparse_attn_extents(&backward->shape, call, extents);
    if (status == SMELT_OK)
        status = smelt__check_tensors(&smelt__sparse_attn_grad_tensors, SMELT_PASS_BACKWARD,
                                      extents, args, others, 2);
    return status == SMELT_OK ? smelt__check_workspace(args->workspace, args->workspace_bytes,
                                                       layout->bytes, SMELT__BACKWARD_ALIGNMENT,
                                                       "smelt_sparse_attn_backward_workspace")
                              : status;
}

smelt_status smelt__sparse_attn_backward_bytes(const struct smelt__sparse_attn_backward *backward,
                                               const smelt_sparse_attn_grad_args *given,
                                               size_t *bytes) {
    smelt_sparse_attn_grad_args args;
    *bytes = 0;
    smelt_status status = read_args(given, &args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(&args);
    status = smelt__sparse_attn_check_queries(&call);
    if (status == SMELT_OK)
        status = check_rows(&call);
    if (status == SMELT_OK)
        status = smelt__sparse_attn_check_width(&backward->shape, call.width);
    if (status == SMELT_OK)
        *bytes = find_layout(backward, &call, args.workspace_limit).bytes;
    return status;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* A checked call. */
struct backward_call {
    const struct smelt__sparse_attn_backward *backward;
    const smelt_sparse_attn_grad_args *args;
    const struct smelt__sparse_attn_call *call;
    struct layout layout;
    struct CUstream_st *stream;
};

static void *at(const struct backward_call *call, size_t offset) {
    return (char *)call->args->workspace + offset;
}

static smelt_status launch(const struct backward_call *call,
                           enum smelt__sparse_attn_backward_kernel number, int64_t blocks,
                           const void *params) {
    const struct smelt__launch launch = {.blocks = {(uint32_t)blocks}, .params = params};
    return smelt__kernel_launch(call->backward->kernels->context, kernel_of(call->backward, number),
                                &launch, call->stream);
}

/* Each group's list of keys; with buckets after the partition, longest lists first. */
static smelt_status launch_lists(const struct backward_call *call) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const struct layout *layout = &call->layout;
    const struct smelt__operator *operator= backward->kernels;
    struct sparse_attn_bwd_lists_params params = {
        .work = smelt__sparse_attn_work(call->call, layout->queries),
        .members = at(call, layout->members),
        .counts = at(call, layout->counts),
        .keys = at(call, layout->keys),
        .masks = at(call, layout->masks),
        .groups = (int)layout->groups,
        .group_queries = backward->group_queries,
        .key_stride = layout->key_stride,
        .topk = backward->shape.topk,
        .ascending = call->args->rows > ASCENDING_ROWS,
    };
    smelt_status status = SMELT_OK;
    if (backward->shape.buckets) {
        int count;
        const int first = smelt__operator_pass(operator, SMELT_PASS_BACKWARD, &count);
        const struct smelt__partition_kernels kernels =
            {operator->kernels[first], operator->kernels[first + 1] };
        void *const memory = call->args->partition ? (void *)(uintptr_t)call->args->partition
                                                   : at(call, layout->partition);
        const struct sparse_attn_partition_params partition = smelt__partition_params(
            &params.work, backward->bounds, backward->shape.buckets, memory);
        if (!call->args->partition)
            status = smelt__partition_launch(operator->context, &kernels, &partition, call->stream);
        params.work.queries = partition.list;
        params.work.query_count = NULL;
        params.work.extents = partition.extents;
        params.last_range = partition.ranges + 2 * (backward->shape.buckets - 1);
    }
    const struct smelt__kernel *kernel = kernel_of(backward, SMELT__BACKWARD_GROUP);
    return status == SMELT_OK
               ? launch(call, SMELT__BACKWARD_GROUP,
                        smelt__blocks_for(kernel, layout->groups, kernel->most_blocks), &params)
               : status;
}

static smelt_status launch_rows(const struct backward_call *call) {
    const smelt_sparse_attn_grad_args *args = call->args;
    const struct sparse_attn_bwd_rows_params params = {
        .out = args->out.data,
        .grad_out = args->grad_out.data,
        .lse = args->lse.data,
        .sink = args->sink.data,
        .members = at(call, call->layout.members),
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
        .tokens = (int)args->tokens,
        .entries = (int)call->layout.entries,
        .query_rows = call->backward->query_rows,
    };
    return launch(call, SMELT__BACKWARD_ROWS, call->layout.parts, &params);
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
    };
    for (int i = 0; i < 4; i++)
        box.extents[i] = (uint64_t)extents[i];
    for (int i = 1; i < 4; i++) {
        const int64_t stride = extents[i] > 1 ? tensor->strides[3 - i] * 2 : SMELT__ROW_BYTES;
        if (stride >> MOST_MAP_STRIDE_BITS)
            return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                               "%s.strides[%d] = %" PRId64 " is too large for this kernel: strides "
                               "must stay below 2^%d elements; make the operator with variant=mma",
                               name, 3 - i, tensor->strides[3 - i], MOST_MAP_STRIDE_BITS - 1);
        box.strides[i] = (uint64_t)stride;
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
    const struct layout *layout = &call->layout;
    *params = (struct sparse_attn_bwd_params){
        .q = args->q.data,
        .kv = args->kv.data,
        .grad_out = args->grad_out.data,
        .members = at(call, layout->members),
        .counts = at(call, layout->counts),
        .keys = at(call, layout->keys),
        .masks = at(call, layout->masks),
        .statistics = at(call, layout->statistics),
        .dq = args->dq.data,
        .dkv = at(call, layout->sums),
        .partials = at(call, layout->partials),
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
        .key_stride = layout->key_stride,
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

/* The lists of a chunk's groups turned around: each key's partial rows. */
static smelt_status launch_segments(const struct backward_call *call, int first, int groups) {
    const struct layout *layout = &call->layout;
    const struct smelt__segments_kernels kernels = {
        kernel_of(call->backward, SMELT__BACKWARD_COUNT),
        kernel_of(call->backward, SMELT__BACKWARD_SCAN),
        kernel_of(call->backward, SMELT__BACKWARD_PLACE),
    };
    struct sparse_attn_bwd_segments_params params = {
        .counts = at(call, layout->counts),
        .keys = at(call, layout->keys),
        .cursors = at(call, layout->cursors),
        .starts = at(call, layout->starts),
        .entries = at(call, layout->entry_list),
        .sums = at(call, layout->scan_sums),
        .first_group = first,
        .groups = groups,
        .key_stride = layout->key_stride,
        .key_count = (int)(call->args->batches * call->args->rows),
        .united = call->backward->group_queries > 1,
    };
    smelt__segments_cut(&params);
    return smelt__segments_launch(call->backward->kernels->context, &kernels, &params,
                                  call->stream);
}

/* A chunk's partial rows, added to the sums. */
static smelt_status launch_sum(const struct backward_call *call) {
    const struct smelt__kernel *kernel = kernel_of(call->backward, SMELT__BACKWARD_SUM);
    const int64_t key_count = call->args->batches * call->args->rows;
    const struct sparse_attn_bwd_sum_params params = {
        .partials = at(call, call->layout.partials),
        .starts = at(call, call->layout.starts),
        .entries = at(call, call->layout.entry_list),
        .sums = at(call, call->layout.sums),
        .key_count = (int)key_count,
        .key_stride = call->layout.key_stride,
        .head_blocks = call->backward->head_blocks,
    };
    return launch(call, SMELT__BACKWARD_SUM,
                  smelt__blocks_for(kernel, key_count, kernel->most_blocks), &params);
}

/* dq, and the sums of dkv: of all groups at once, or chunk by chunk with partial rows between. */
static smelt_status launch_main(const struct backward_call *call) {
    const struct layout *layout = &call->layout;
    const struct smelt__kernel *kernel = kernel_of(call->backward, SMELT__BACKWARD_MAIN);
    const int64_t most = smelt__blocks_beside(kernel, call->args->free_multiprocessors);
    const int partial = call->backward->deterministic && call->args->rows > 0;
    struct sparse_attn_bwd_params params;
    smelt_status status = fill_main(call, &params);
    for (int64_t first = 0; first < layout->groups && status == SMELT_OK; first += layout->chunk) {
        const int64_t left = layout->groups - first;
        params.first_group = (int)first;
        params.groups = (int)(left < layout->chunk ? left : layout->chunk);
        if (partial)
            status = launch_segments(call, params.first_group, params.groups);
        if (status == SMELT_OK)
            status = launch(call, SMELT__BACKWARD_MAIN,
                            smelt__blocks_for(kernel, params.groups, most), &params);
        if (status == SMELT_OK && partial)
            status = launch_sum(call);
    }
    return status;
}

/* The caller's dkv, and dsink. */
static smelt_status launch_finish(const struct backward_call *call) {
    const smelt_sparse_attn_grad_args *args = call->args;
    const smelt_tensor *dkv = args->dkv.data        ? &args->dkv
                              : args->dkv_fp32.data ? &args->dkv_fp32
                                                    : &args->dkv_sum;
    const struct sparse_attn_bwd_finish_params params = {
        .sums = at(call, call->layout.sums),
        .dkv = dkv->data,
        .dsink_parts = at(call, call->layout.dsink_parts),
        .dsink = args->dsink.data,
        .dkv_batch_stride = dkv->strides[0],
        .dkv_row_stride = dkv->strides[1],
        .mode = args->dkv.data        ? FINISH_BF16
                : args->dkv_fp32.data ? FINISH_FP32
                                      : FINISH_ADD,
        .batches = (int)args->batches,
        .rows = (int)args->rows,
        .heads = call->backward->shape.heads,
        .parts = (int)call->layout.parts,
    };
    const struct smelt__kernel *kernel = kernel_of(call->backward, SMELT__BACKWARD_FINISH);
    const int64_t threads =
        args->batches * args->rows * (call->backward->shape.dqk / FINISH_COLUMNS);
    const int64_t blocks = (threads + kernel->threads - 1) / kernel->threads;
    const int64_t most = kernel->resident_blocks;
    return launch(call, SMELT__BACKWARD_FINISH,
                  blocks < 1      ? 1
                  : blocks < most ? blocks
                                  : most,
                  &params);
}

static smelt_status launch_chain(const struct backward_call *call) {
    const smelt_sparse_attn_grad_args *args = call->args;
    const size_t sums =
        (size_t)args->batches * (size_t)args->rows * (size_t)call->backward->shape.dqk;
    smelt_status status = SMELT_OK;
    if (sums > 0)
        status =
            smelt__fill_async(call->backward->kernels->context, at(call, call->layout.progress), 0,
                              SMELT__BACKWARD_ALIGNMENT / sizeof(float) + sums, call->stream);
    if (call->layout.queries > 0) {
        if (status == SMELT_OK)
            status = launch_lists(call);
        if (status == SMELT_OK)
            status = launch_rows(call);
        if (status == SMELT_OK)
            status = launch_main(call);
    }
    return status == SMELT_OK && (sums > 0 || args->dsink.data) ? launch_finish(call) : status;
}

/* The CUDA context is made current once, not at each launch. */
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
    smelt_status status = read_args(given, &args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(&args);
    status = smelt__sparse_attn_check_call(&backward->shape, &call);
    if (status == SMELT_OK)
        status = check_rows(&call);
    if (status != SMELT_OK)
        return status;
    const struct backward_call all = {backward, &args, &call,
                                      find_layout(backward, &call, args.workspace_limit), stream};
    status = check_args(backward, &call, &all.layout, &args);
    if (status == SMELT_OK)
        status =
            smelt__operator_check_grid(backward->kernels, SMELT_PASS_BACKWARD, all.layout.groups);
    return status == SMELT_OK ? launch_in_context(&all) : status;
}
