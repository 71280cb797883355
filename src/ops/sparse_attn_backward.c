/* See sparse_attn_backward.h. */
#include "ops/sparse_attn_backward.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "ops/divide.h"
#include "ops/sparse_attn_grad_params.h"
#include "ops/sparse_attn_partition.h"
#include "runtime/context.h"
#include "runtime/log.h"

enum {
    LISTS_SHARE = 2, /* of the device: it is the lists' half, where rows run beside them */
    ZERO_STEPS = 4   /* vectors of zeros of a thread, before another block helps */
};

struct smelt__grad_kept {
    atomic_flag taken; /* by a call: another one meanwhile does without it */
    struct smelt__grad_prepared prepared;
};

/* ---- the operator ---------------------------------------------------------------------------- */

static void keep_constants(const struct smelt__spec *spec,
                           struct smelt__sparse_attn_backward *backward) {
    int count;
    backward->deterministic = (int)smelt__spec_get(spec, "deterministic");
    backward->chain = backward->kernels->kernels +
                      smelt__operator_pass(backward->kernels, SMELT_PASS_BACKWARD, &count);
    const struct smelt__kernel *main = smelt__grad_kernel(backward, SMELT__BACKWARD_MAIN);
    const struct smelt__plan *plan = &main->plan;
    backward->group_queries = smelt__plan_constant(plan, "GROUP_QUERIES", NULL);
    backward->query_rows = smelt__plan_constant(plan, "QUERY_ROWS", NULL);
    backward->head_blocks = smelt__plan_constant(plan, "HEAD_BLOCKS", NULL);
    backward->block_heads = smelt__plan_constant(plan, "BLOCK_HEADS", NULL);
    backward->tensor_maps = smelt__plan_constant(plan, "TENSOR_MAPS", NULL);
    backward->sums_beside = smelt__plan_constant(plan, "SUMS_BESIDE", NULL);
    backward->slice_blocks = smelt__plan_constant(plan, "SLICE_BLOCKS", NULL);
    backward->sides = plan->cluster ? plan->cluster : 1;
    backward->main_blocks = main->resident_blocks;
}

smelt_status smelt__sparse_attn_backward_keep(struct smelt__sparse_attn_backward *backward) {
    backward->kept = calloc(1, sizeof *backward->kept);
    if (!backward->kept)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    atomic_flag_clear(&backward->kept->taken);
    return SMELT_OK;
}

smelt_status smelt__sparse_attn_backward_make(const struct smelt__spec *spec,
                                              struct smelt__sparse_attn_backward *backward) {
    keep_constants(spec, backward);
    return smelt__sparse_attn_backward_keep(backward);
}

void smelt__sparse_attn_backward_free(struct smelt__sparse_attn_backward *backward) {
    free(backward->kept);
    backward->kept = NULL;
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
        *bytes = smelt__grad_find_layout(backward, &call, &args.dq, args.workspace_limit).bytes;
    return status;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* A call whose kernels' arguments are complete. */
struct backward_call {
    const struct smelt__sparse_attn_backward *backward;
    struct smelt__grad_prepared *prepared;
    struct CUstream_st *stream;
};

static smelt_status launch(const struct backward_call *call,
                           enum smelt__sparse_attn_backward_kernel number, int64_t blocks,
                           int early, const void *params) {
    const struct smelt__launch launch = {
        .blocks = {(uint32_t)blocks}, .early = early, .entered = 1, .params = params};
    return smelt__kernel_launch(call->backward->kernels->context,
                                smelt__grad_kernel(call->backward, number), &launch, call->stream);
}

/* Each group's list of keys, and the zeros. */
static smelt_status launch_lists(const struct backward_call *call) {
    const struct smelt__kernel *kernel = smelt__grad_kernel(call->backward, SMELT__BACKWARD_GROUP);
    const struct sparse_attn_bwd_lists_params *params = &call->prepared->lists;
    const int64_t filling =
        smelt__divide_up(params->zero_vectors, (int64_t)kernel->threads * ZERO_STEPS);
    const int64_t blocks = params->groups > filling ? params->groups : filling;
    const int share = kernel->may_be_early ? LISTS_SHARE : 1;
    return launch(call, SMELT__BACKWARD_GROUP,
                  smelt__blocks_for(kernel, blocks, kernel->most_blocks / share), 0, params);
}

/* As smelt__key_grads_call has it: a chunk's launch of the main kernel. */
static smelt_status launch_groups(void *user, const struct smelt__key_grads_chunk *chunk) {
    const struct backward_call *call = user;
    struct smelt__grad_prepared *const prepared = call->prepared;
    const struct smelt__kernel *kernel = smelt__grad_kernel(call->backward, SMELT__BACKWARD_MAIN);
    const int64_t left = (int64_t)prepared->args.free_multiprocessors + chunk->beside;
    prepared->main.first_group = (int)chunk->first;
    prepared->main.groups = (int)chunk->groups;
    prepared->main.partials = chunk->partials;
    return launch(
        call, SMELT__BACKWARD_MAIN,
        call->backward->slice_blocks
            ? prepared->grid.blocks
            : smelt__blocks_for(kernel, chunk->groups, smelt__blocks_beside(kernel, left)),
        0, &prepared->main);
}

/* dq, and what is added to the sums of dkv. Each row's statistics are made beside the lists. */
static smelt_status launch_queries(const struct backward_call *call) {
    struct smelt__grad_prepared *const prepared = call->prepared;
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const struct smelt__partition_kernels partition = {backward->chain[0], backward->chain[1]};
    smelt_status status = SMELT_OK;
    if (backward->shape.buckets && !prepared->args.partition)
        status = smelt__partition_launch(backward->kernels->context, &partition,
                                         &prepared->partition, call->stream);
    if (status == SMELT_OK)
        status = launch_lists(call);
    if (status == SMELT_OK)
        status = launch(call, SMELT__BACKWARD_ROWS, prepared->layout.parts, 1, &prepared->rows);
    return status == SMELT_OK ? smelt__key_grads_launch(&prepared->dkv) : status;
}

/* What the main kernel's arguments refuse is refused before anything is launched. */
static smelt_status launch_chain(struct backward_call *call,
                                 const smelt_sparse_attn_grad_args *args) {
    struct smelt__grad_prepared *const prepared = call->prepared;
    const int64_t zeros = prepared->zeros;
    smelt_status status = smelt__grad_point(call->backward, args, prepared);
    prepared->dkv.user = call;
    prepared->dkv.launch_groups = launch_groups;
    prepared->dkv.stream = call->stream;
    if (status == SMELT_OK && prepared->layout.queries > 0)
        status = launch_queries(call);
    else if (status == SMELT_OK && zeros > 0)
        status = smelt__fill_async(call->backward->kernels->context,
                                   (char *)args->workspace + prepared->layout.progress, 0,
                                   (size_t)zeros, 1, call->stream);
    /* The caller's dkv, and dsink; dq out of its slices. */
    return status == SMELT_OK && (zeros > 0 || args->dsink.data)
               ? smelt__key_grads_finish(&prepared->dkv, prepared->finish)
               : status;
}

/* The CUDA context is made current once for all launches. */
static smelt_status launch_in_context(const struct smelt__sparse_attn_backward *backward,
                                      struct smelt__grad_prepared *prepared,
                                      const smelt_sparse_attn_grad_args *args,
                                      struct CUstream_st *stream) {
    const smelt_context *const context = backward->kernels->context;
    struct backward_call call = {backward, prepared, stream};
    int pushed;
    smelt_status status = smelt__context_enter(context, &pushed);
    if (status != SMELT_OK)
        return status;
    status = launch_chain(&call, args);
    smelt__context_leave(context, pushed);
    return status;
}

/* A call that finds another one under way. */
static __attribute__((noinline)) smelt_status
launch_beside(const struct smelt__sparse_attn_backward *backward,
              const smelt_sparse_attn_grad_args *given, struct CUstream_st *stream) {
    struct smelt__grad_prepared prepared;
    const smelt_status status = smelt__grad_prepare(backward, given, &prepared);
    return status == SMELT_OK ? launch_in_context(backward, &prepared, &prepared.args, stream)
                              : status;
}

smelt_status smelt__sparse_attn_backward_launch(const struct smelt__sparse_attn_backward *backward,
                                                const smelt_sparse_attn_grad_args *given,
                                                struct CUstream_st *stream) {
    struct smelt__grad_kept *const kept = backward->kept;
    struct smelt__grad_prepared *const prepared = &kept->prepared;
    if (atomic_flag_test_and_set_explicit(&kept->taken, memory_order_acquire))
        return launch_beside(backward, given, stream);
    smelt_status status = SMELT_OK;
    const int again = smelt__grad_is_prepared(prepared, given);
    if (!again)
        status = smelt__grad_prepare(backward, given, prepared);
    if (status == SMELT_OK)
        status = launch_in_context(backward, prepared, again ? given : &prepared->args, stream);
    atomic_flag_clear_explicit(&kept->taken, memory_order_release);
    return status;
}
