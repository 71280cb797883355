/* See sparse_attn_backward.h. */
#include "ops/sparse_attn_backward.h"

#include <stdint.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "ops/divide.h"
#include "ops/sparse_attn_grad_params.h"
#include "ops/sparse_attn_partition.h"

enum {
    LISTS_SHARE = 2, /* with PDL the lists kernel leaves 1/2 of the device to the rows kernel */
    ZERO_STEPS = 4   /* zero vectors stored per thread; more zeros use more thread blocks */
};

void smelt__sparse_attn_backward_make(const smelt_operator *op, const int *bounds, int buckets,
                                      struct smelt__sparse_attn_backward *backward) {
    const struct smelt__spec *spec = &op->spec;
    int count;
    *backward = (struct smelt__sparse_attn_backward){
        .op = op,
        .shape = {.heads = (int)smelt__spec_get(spec, "heads"),
                  .dqk = (int)smelt__spec_get(spec, "dqk"),
                  .dv = (int)smelt__spec_get(spec, "dv"),
                  .topk = (int)smelt__spec_get(spec, "topk"),
                  .sink = (int)smelt__spec_get(spec, "sink"),
                  .buckets = buckets},
        .bounds = bounds,
        .chain = op->kernels + smelt__operator_pass(op, SMELT_PASS_BACKWARD, &count),
        .deterministic = (int)smelt__spec_get(spec, "deterministic"),
    };
    const struct smelt__kernel *main = smelt__grad_kernel(backward, SMELT__BACKWARD_MAIN);
    backward->main = *smelt__sparse_attn_bwd_launch(&main->plan);
    backward->sides = main->plan.cluster ? main->plan.cluster : 1;
    backward->main_blocks = main->resident_blocks;
}

static smelt_status launch(const struct smelt__grad_call *call,
                           enum smelt__sparse_attn_backward_kernel number, int64_t blocks, int pdl,
                           const void *params) {
    const struct smelt__launch launch = {
        .blocks = {(uint32_t)blocks}, .pdl = pdl, .params = params};
    return smelt__kernel_launch(call->backward->op->context,
                                smelt__grad_kernel(call->backward, number), &launch, call->stream);
}

static smelt_status launch_partition(const struct smelt__grad_call *call) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    const struct smelt__partition_kernels kernels = {backward->chain[0], backward->chain[1]};
    const struct sparse_attn_partition_params params = smelt__grad_partition(call);
    return smelt__partition_launch(backward->op->context, &kernels, &params, call->stream);
}

/* Each group's list of keys, and the zeros. */
static smelt_status launch_lists(const struct smelt__grad_call *call) {
    const struct smelt__kernel *kernel = smelt__grad_kernel(call->backward, SMELT__BACKWARD_GROUP);
    const struct sparse_attn_bwd_lists_params params = smelt__grad_lists(call);
    const int64_t filling =
        smelt__divide_up(params.zero_vectors, (int64_t)kernel->threads * ZERO_STEPS);
    const int64_t blocks = params.groups > filling ? params.groups : filling;
    const int share = kernel->pdl ? LISTS_SHARE : 1;
    return launch(call, SMELT__BACKWARD_GROUP,
                  smelt__blocks_for(kernel, blocks, kernel->most_blocks / share), 0, &params);
}

/* Each row's statistics, concurrently with the lists. */
static smelt_status launch_rows(const struct smelt__grad_call *call) {
    const struct sparse_attn_bwd_rows_params params = smelt__grad_rows(call);
    return launch(call, SMELT__BACKWARD_ROWS, call->layout.parts, 1, &params);
}

struct main_launches {
    const struct smelt__grad_call *call;
    struct smelt__grad_grid grid;
    struct sparse_attn_bwd_params params;
};

/* smelt__key_grads_call's launch_groups: the main kernel over one chunk. */
static smelt_status launch_groups(void *user, const struct smelt__key_grads_chunk *chunk) {
    struct main_launches *const main = user;
    const struct smelt__grad_call *call = main->call;
    const struct smelt__kernel *kernel = smelt__grad_kernel(call->backward, SMELT__BACKWARD_MAIN);
    const int64_t left = (int64_t)call->args->free_multiprocessors + chunk->free_multiprocessors;
    main->params.first_group = (int)chunk->first;
    main->params.groups = (int)chunk->groups;
    main->params.partials = chunk->partials;
    return launch(
        call, SMELT__BACKWARD_MAIN,
        call->backward->main.slice_blocks
            ? main->grid.blocks
            : smelt__blocks_for(kernel, chunk->groups, smelt__available_blocks(kernel, left)),
        0, &main->params);
}

static struct smelt__key_grads_call key_grads_of(const struct smelt__grad_call *call) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    struct smelt__key_grads_call dkv = {
        .context = backward->op->context,
        .shape = smelt__grad_shape(backward),
        .layout = &call->layout.dkv,
        .finish = smelt__grad_kernel(backward, SMELT__BACKWARD_FINISH),
        .workspace = call->args->workspace,
        .launch_groups = launch_groups,
        .stream = call->stream,
    };
    if (backward->deterministic) {
        dkv.transpose = smelt__grad_kernel(backward, SMELT__BACKWARD_TRANSPOSE);
        dkv.sum = smelt__grad_kernel(backward, SMELT__BACKWARD_SUM);
    }
    return dkv;
}

/* A call with queries. Fills the main kernel's params first, since that may fail. */
static smelt_status launch_queries(const struct smelt__grad_call *call) {
    const struct smelt__kernel *kernel = smelt__grad_kernel(call->backward, SMELT__BACKWARD_MAIN);
    struct smelt__key_grads_call dkv = key_grads_of(call);
    struct main_launches main = {.call = call};
    main.grid =
        smelt__grad_find_grid(call->backward, &call->layout,
                              smelt__available_blocks(kernel, call->args->free_multiprocessors));
    smelt_status status = smelt__grad_main(call, &main.grid, &main.params);
    if (status == SMELT_OK && call->backward->shape.buckets && !call->args->partition)
        status = launch_partition(call);
    if (status == SMELT_OK)
        status = launch_lists(call);
    if (status == SMELT_OK)
        status = launch_rows(call);
    dkv.user = &main;
    if (status == SMELT_OK)
        status = smelt__key_grads_launch(&dkv);
    return status == SMELT_OK && (smelt__grad_zeros(call) > 0 || call->args->dsink.data)
               ? smelt__key_grads_launch_finish(&dkv, smelt__grad_finish(call, &main.grid))
               : status;
}

/* A call without queries: stores zeros for each key and sink, or adds nothing. */
static smelt_status launch_zeros(const struct smelt__grad_call *call) {
    const struct smelt__key_grads_call dkv = key_grads_of(call);
    const int64_t zeros = smelt__grad_zeros(call);
    smelt_status status = SMELT_OK;
    if (zeros > 0)
        status = smelt__fill_async(call->backward->op->context,
                                   (char *)call->args->workspace + call->layout.progress, 0,
                                   (size_t)zeros, call->stream);
    return status == SMELT_OK && (zeros > 0 || call->args->dsink.data)
               ? smelt__key_grads_launch_finish(&dkv, smelt__grad_finish(call, NULL))
               : status;
}

smelt_status smelt__sparse_attn_backward_launch(const struct smelt__sparse_attn_backward *backward,
                                                struct smelt__call *given) {
    struct smelt__grad_call call;
    const smelt_status status = smelt__grad_check(backward, given, &call);
    if (status != SMELT_OK)
        return status;
    return call.layout.queries > 0 ? launch_queries(&call) : launch_zeros(&call);
}
