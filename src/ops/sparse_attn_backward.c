/* See sparse_attn.h. A call is checked, its workspace is laid out (sparse_attn_grad_layout.h), and
 * its kernels are launched one after another; each params struct is filled where its kernel is launched. */
#include "ops/sparse_attn.h"

#include <inttypes.h>
#include <stdint.h>

#include "ops/arguments.h"
#include "ops/attention_call.h"
#include "ops/divide.h"
#include "ops/key_grads.h"
#include "ops/split_sizes.h"
#include "runtime/log.h"

enum {
    LISTS_SHARE = 2, /* with PDL the lists kernel leaves 1/2 of the device to the rows kernel */
    ZERO_STEPS = 4,  /* zero vectors stored per thread; more zeros use more thread blocks */
    ZERO_WORDS = 4,  /* words of a vector */
};

void smelt__sparse_attn_backward_make(const smelt_operator *op, const int *bounds, int buckets,
                                      struct smelt__sparse_attn_backward *backward) {
    const struct smelt__spec *spec = &op->spec;
    const struct smelt__kernel *const *kernels = smelt__operator_kernels(op, SMELT_PASS_BACKWARD);
    const struct smelt__kernel *main = kernels[SMELT__BACKWARD_MAIN];
    *backward = (struct smelt__sparse_attn_backward){
        .op = op,
        .shape = {.heads = (int)smelt__spec_get(spec, "heads"),
                  .dqk = (int)smelt__spec_get(spec, "dqk"),
                  .dv = (int)smelt__spec_get(spec, "dv"),
                  .topk = (int)smelt__spec_get(spec, "topk"),
                  .sink = (int)smelt__spec_get(spec, "sink"),
                  .buckets = buckets},
        .bounds = bounds,
        .deterministic = (int)smelt__spec_get(spec, "deterministic"),
        .kernels = kernels,
        .main = *smelt__sparse_attn_bwd_launch(&main->plan),
        .sides = main->plan.cluster ? main->plan.cluster : 1,
        .main_blocks = main->resident_blocks,
    };
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* The kernels index the rows of all batches with an int. */
static smelt_status check_rows(const struct smelt__attention_call *fields) {
    return smelt__attention_check_rows(fields, INT32_MAX, "2^31 - 1", "dkv");
}

smelt_status
smelt__sparse_attn_backward_workspace(const struct smelt__sparse_attn_backward *backward,
                                      const struct smelt__call *given, size_t *bytes) {
    const smelt_sparse_attn_grad_args *args = given->args;
    const struct smelt__attention_call fields = SMELT__ATTENTION_CALL(args);
    SMELT__TRY(smelt__attention_check_queries(&fields));
    SMELT__TRY(check_rows(&fields));
    *bytes = smelt__grad_find_layout(backward, args).bytes;
    return SMELT_OK;
}

/* The partition that the forward pass left in its workspace. */
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

/* Checks all arguments, and lays out the workspace. */
static smelt_status check(const struct smelt__sparse_attn_backward *backward,
                          struct smelt__call *given, struct smelt__grad_layout *layout) {
    const smelt_sparse_attn_grad_args *args = given->args;
    const struct smelt__attention_call fields = SMELT__ATTENTION_CALL(args);
    const struct smelt__memory partition = {"partition", args->partition,
                                            args->partition ? args->partition_bytes : 0, 0};
    SMELT__TRY(smelt__attention_check_call(&fields));
    SMELT__TRY(check_rows(&fields));
    *layout = smelt__grad_find_layout(backward, args);
    SMELT__TRY(check_partition(backward, args, layout->queries));
    SMELT__TRY(smelt__call_check(given, layout->bytes, &partition, 1));
    return smelt__operator_check_grid(backward->op, SMELT_PASS_BACKWARD, layout->dkv.groups);
}

/* ---- a checked call -------------------------------------------------------------------------- */

struct call {
    const struct smelt__sparse_attn_backward *backward;
    const smelt_sparse_attn_grad_args *args; /* the library's copy, with every stride filled in */
    struct CUstream_st *stream;
    struct smelt__grad_layout layout; /* of args.workspace */
    struct smelt__dkv_call dkv;
    /* Set only if the call has queries: */
    struct sparse_attn_partition_params partition; /* with buckets */
    struct work_params work; /* the queries: the partition's list or the caller's */
    const int *last_range;   /* the work range of the last bucket, which is the end of the list */
    struct smelt__grad_grid grid;       /* of the main kernel */
    struct sparse_attn_bwd_params main; /* its params */
};

static void *at(const struct call *call, size_t offset) {
    return (char *)call->args->workspace + offset;
}

static const struct smelt__kernel *kernel_of(const struct call *call,
                                             enum smelt__sparse_attn_backward_kernel kernel) {
    return call->backward->kernels[kernel];
}

static smelt_status launch(const struct call *call, enum smelt__sparse_attn_backward_kernel kernel,
                           int64_t blocks, int pdl, const void *params) {
    const struct smelt__launch launch = {
        .blocks = {(uint32_t)blocks}, .pdl = pdl, .params = params};
    return smelt__kernel_launch(call->backward->op->context, kernel_of(call, kernel), &launch,
                                call->stream);
}

/* The number of floats to zero from the workspace's `progress` on: progress and dkv's sums. */
static int64_t zeros_of(const struct call *call) {
    const int64_t sums = call->layout.dkv.key_count * call->backward->shape.dqk;
    return sums > 0 ? SMELT__WORKSPACE_ALIGNMENT / (int64_t)sizeof(float) + sums : 0;
}

/* ---- queries and their lists ----------------------------------------------------------------- */

static smelt_status launch_partition(struct call *call) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const struct smelt__attention_call fields = SMELT__ATTENTION_CALL(call->args);
    const int buckets = backward->shape.buckets;
    call->work = smelt__attention_work(&fields, call->layout.queries);
    if (!buckets)
        return SMELT_OK;
    void *const given = (void *)(uintptr_t)call->args->partition;
    call->partition = smelt__partition_params(&call->work, backward->bounds, buckets,
                                              given ? given : at(call, call->layout.partition));
    smelt__partition_apply(&call->partition, &call->work);
    call->last_range = call->partition.ranges + 2 * (buckets - 1);
    const struct smelt__partition_kernels kernels = {
        kernel_of(call, SMELT__BACKWARD_PARTITION_COUNT),
        kernel_of(call, SMELT__BACKWARD_PARTITION_PLACE)};
    return given ? SMELT_OK
                 : smelt__partition_launch(backward->op->context, &kernels, &call->partition,
                                           call->stream);
}

/* The key lists, and the distance from one to the next. */
static int *lists_of(const struct call *call) {
    return call->layout.dq_list_stride ? call->args->dq.data : at(call, call->layout.dkv.keys);
}

static int list_stride(const struct call *call) {
    return call->layout.dq_list_stride ? (int)call->layout.dq_list_stride
                                       : call->layout.dkv.key_stride;
}

/* Each group's list of keys, and the zeros. */
static smelt_status launch_lists(const struct call *call) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const struct smelt__grad_layout *layout = &call->layout;
    const struct attention_lists_params params = {
        .work = call->work,
        .last_range = call->last_range,
        .members = at(call, layout->members),
        .counts = at(call, layout->dkv.counts),
        .firsts = backward->deterministic ? at(call, layout->dkv.firsts) : NULL,
        .keys = lists_of(call),
        .masks = at(call, layout->masks),
        .zeros = at(call, layout->progress),
        .zero_vectors = zeros_of(call) / ZERO_WORDS,
        .groups = (int)layout->dkv.groups,
        .group_queries = backward->main.group_queries,
        .key_stride = list_stride(call),
        .copies = layout->dq_side_stride ? backward->main.head_blocks : 1,
        .copy_stride = (int)layout->dq_side_stride,
        .topk = backward->shape.topk,
        .ascending = call->args->rows > SMELT__SPLIT_ASCENDING_ROWS,
    };
    const struct smelt__kernel *kernel = kernel_of(call, SMELT__BACKWARD_GROUP);
    const int64_t filling =
        smelt__divide_up(params.zero_vectors, (int64_t)kernel->threads * ZERO_STEPS);
    const int64_t blocks = params.groups > filling ? params.groups : filling;
    const int share = kernel->pdl ? LISTS_SHARE : 1;
    return launch(call, SMELT__BACKWARD_GROUP,
                  smelt__blocks_for(kernel, blocks, kernel->most_blocks / share), 0, &params);
}

/* Computes each row's statistics, concurrently with the lists kernel, whose results it does not read. */
static smelt_status launch_rows(const struct call *call) {
    const smelt_sparse_attn_grad_args *args = call->args;
    struct attention_bwd_rows_params params = {
        .work = call->work,
        .last_range = call->last_range,
        SMELT__TENSOR_BTH(out, args->out),
        SMELT__TENSOR_BTH(grad_out, args->grad_out),
        SMELT__TENSOR_BTH(lse, args->lse),
        .sink = args->sink.data,
        .statistics = at(call, call->layout.statistics),
        .dsink_parts = args->dsink.data ? at(call, call->layout.dsink_parts) : NULL,
        .entries = (int)call->layout.entries,
        .query_rows = call->backward->main.query_rows,
    };
    params.work.pdl_wait_at_end = 1;
    return launch(call, SMELT__BACKWARD_ROWS, call->layout.parts, 1, &params);
}

/* ---- the main kernel ------------------------------------------------------------------------- */

/* Whether the main kernel's thread blocks keep in step. They do if the KV table is so large that
 * lists are sorted, and the kernel adds to dkv's rows. */
static int step_of(const struct call *call) {
    if (call->args->rows <= SMELT__SPLIT_ASCENDING_ROWS || call->backward->deterministic)
        return STEP_NONE;
    return call->args->rows <= SMELT__SPLIT_LOOSE_ROWS ? STEP_LOOSE : STEP_CLOSE;
}

/* A tensor map of q or grad_out, with boxes of one query. */
static smelt_status make_map(const struct call *call, const char *name,
                             const smelt_const_tensor *tensor, int columns,
                             struct tensor_map *map) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const int64_t extents[] = {call->args->batches, call->args->tokens, backward->shape.heads,
                               columns};
    return smelt__make_map(backward->op->context, name, tensor, 4, extents,
                           backward->main.block_heads / backward->main.group_queries, 1,
                           "bwd.variant=mma", map);
}

/* The main kernel's grid and params, except for the groups of a launch. INVALID_ARGUMENT if TMA does
 * not support a stride; DRIVER. */
static smelt_status fill_main(struct call *call) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const smelt_sparse_attn_grad_args *args = call->args;
    const struct smelt__grad_layout *layout = &call->layout;
    call->grid = smelt__grad_find_grid(
        backward, layout,
        smelt__available_blocks(kernel_of(call, SMELT__BACKWARD_MAIN), args->free_multiprocessors));
    call->main = (struct sparse_attn_bwd_params){
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
        .sliced = (int)call->grid.sliced,
        .slice_ctas = (int)call->grid.slice_ctas,
        .key_stride = list_stride(call),
        .side_stride = (int)layout->dq_side_stride,
        .step = step_of(call),
        .scale = args->scale,
    };
    if (!backward->main.tensor_maps)
        return SMELT_OK;
    SMELT__TRY(make_map(call, "q", &args->q, backward->shape.dqk, &call->main.q_map));
    return make_map(call, "grad_out", &args->grad_out, backward->shape.dv,
                    &call->main.grad_out_map);
}

/* smelt__dkv_call's launch_groups: the main kernel over one chunk. */
static smelt_status launch_groups(void *user, const struct smelt__dkv_chunk *chunk) {
    struct call *const call = user;
    const struct smelt__kernel *kernel = kernel_of(call, SMELT__BACKWARD_MAIN);
    const int64_t left = (int64_t)call->args->free_multiprocessors + chunk->free_multiprocessors;
    call->main.first_group = (int)chunk->first;
    call->main.groups = (int)chunk->groups;
    call->main.partials = chunk->partials;
    return launch(
        call, SMELT__BACKWARD_MAIN,
        call->backward->main.slice_blocks
            ? call->grid.blocks
            : smelt__blocks_for(kernel, chunk->groups, smelt__available_blocks(kernel, left)),
        0, &call->main);
}

/* ---- the last kernel ------------------------------------------------------------------------- */

/* Describes the rows of dq that are computed in slices. */
static struct dq_slices slices_of(const struct call *call) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    return (struct dq_slices){
        .slices = at(call, call->layout.slices),
        .members = at(call, call->layout.members),
        .counts = at(call, call->layout.dkv.counts),
        SMELT__TENSOR_BTH(dq, call->args->dq),
        .items = (int)(call->grid.sliced / backward->main.slice_blocks),
        .slice_ctas = (int)call->grid.slice_ctas,
        .sides = backward->main.slice_blocks,
        .group_queries = backward->main.group_queries,
        .head_blocks = backward->main.head_blocks,
        .member_rows = backward->main.block_heads / backward->main.group_queries,
        .heads = backward->shape.heads,
        .tokens = (int)call->args->tokens,
    };
}

static smelt_status launch_finish(const struct call *call) {
    const smelt_sparse_attn_grad_args *args = call->args;
    struct key_grads_finish_params params =
        smelt__key_grads_params(&args->dkv, &args->dkv_fp32, &args->dkv_sum);
    params.sums = at(call, call->layout.dkv.sums);
    params.dsink_parts = at(call, call->layout.dsink_parts);
    params.dsink = args->dsink.data;
    params.batches = (int)args->batches;
    params.rows = (int)args->rows;
    params.heads = call->backward->shape.heads;
    params.parts = (int)call->layout.parts;
    if (call->grid.sliced > 0)
        params.dq = slices_of(call);
    return smelt__key_grads_launch(call->backward->op->context,
                                   kernel_of(call, SMELT__BACKWARD_FINISH), call->stream,
                                   call->backward->shape.dqk, call->layout.dkv.groups > 0, &params);
}

/* ---- all launches ---------------------------------------------------------------------------- */

/* For a call with queries. Filling the main kernel's params may fail, so it comes before any launch. */
static smelt_status launch_queries(struct call *call) {
    SMELT__TRY(fill_main(call));
    SMELT__TRY(launch_partition(call));
    SMELT__TRY(launch_lists(call));
    SMELT__TRY(launch_rows(call));
    return smelt__dkv_launch(&call->dkv);
}

/* For a call without queries: the gradients of keys and sinks are zeros; if they are added, nothing is. */
static smelt_status fill_zeros(const struct call *call) {
    const int64_t zeros = zeros_of(call);
    return zeros == 0
               ? SMELT_OK
               : smelt__fill_async(call->backward->op->context, at(call, call->layout.progress), 0,
                                   (size_t)zeros, call->stream);
}

smelt_status smelt__sparse_attn_backward_launch(const struct smelt__sparse_attn_backward *backward,
                                                struct smelt__call *given) {
    struct call call = {.backward = backward, .args = given->args, .stream = given->stream};
    SMELT__TRY(check(backward, given, &call.layout));
    call.dkv = (struct smelt__dkv_call){
        .context = backward->op->context,
        .shape = smelt__grad_shape(backward),
        .layout = &call.layout.dkv,
        .transpose = kernel_of(&call, SMELT__BACKWARD_TRANSPOSE),
        .sum = kernel_of(&call, SMELT__BACKWARD_SUM),
        .workspace = call.args->workspace,
        .launch_groups = launch_groups,
        .user = &call,
        .stream = call.stream,
    };
    SMELT__TRY(call.layout.queries > 0 ? launch_queries(&call) : fill_zeros(&call));
    return zeros_of(&call) > 0 || call.args->dsink.data ? launch_finish(&call) : SMELT_OK;
}
