/* The operator indexer_loss: see smelt/indexer_loss.h. */
#include "smelt/indexer_loss.h"

#include "codegen/families/indexer_loss.h"
#include "indexer_loss_rows.params.h"
#include "indexer_loss_sum.params.h"
#include "ops/call.h"
#include "ops/indexer_loss_table.h"
#include "runtime/log.h"

enum { ROWS, SUM }; /* kernels in launch order */
enum { VECTOR = 4 /* elements of 16 bytes */ };

/* ---- arguments ------------------------------------------------------------------------------- */

/* Where the caller keeps no queries' losses, the call does. */
static smelt_status workspace(const struct smelt__call *call, size_t *bytes) {
    const smelt_indexer_loss_args *args = call->args;
    *bytes = args->losses.data ? 0 : (size_t)args->tokens * sizeof(float);
    return SMELT_OK;
}

static smelt_status check(struct smelt__call *call) {
    const smelt_indexer_loss_args *args = call->args;
    SMELT__TRY(smelt__check_query_weight(args->query_weight));
    size_t needed;
    workspace(call, &needed);
    return smelt__call_check(call, needed, NULL, 0);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Whether rows of a matrix start at multiples of 16 bytes; nothing does. */
static int starts_whole(const void *data, int64_t stride) {
    return (uintptr_t)data % SMELT__ROW_BYTES == 0 && stride % VECTOR == 0;
}

static struct indexer_loss_rows_params rows_params(const smelt_indexer_loss_args *args) {
    return (struct indexer_loss_rows_params){
        .logits = args->logits.data,
        .target = args->target.data,
        .indices = args->indices.data,
        .topk_length = args->topk_length.data,
        .weight = args->weight.data,
        .grad_loss = args->grad_loss.data,
        .losses = args->losses.data ? args->losses.data : args->workspace,
        .grad = args->grad.data,
        .logits_stride = args->logits.strides[0],
        .target_stride = args->target.strides[0],
        .indices_stride = args->indices.strides[0],
        .topk_length_stride = args->topk_length.strides[0],
        .grad_stride = args->grad.data ? args->grad.strides[0] : 0,
        .queries = (int)args->tokens,
        .rows = (int)args->rows,
        .width = (int)args->width,
        .query_weight = args->query_weight,
        .whole = args->width % VECTOR == 0 &&
                 starts_whole(args->logits.data, args->logits.strides[0]) &&
                 starts_whole(args->target.data, args->target.strides[0]) &&
                 starts_whole(args->indices.data, args->indices.strides[0]) &&
                 (!args->grad.data || starts_whole(args->grad.data, args->grad.strides[0])),
    };
}

static smelt_status launch(struct smelt__call *call) {
    const smelt_indexer_loss_args *args = call->args;
    SMELT__TRY(check(call));
    const struct indexer_loss_rows_params queries = rows_params(args);
    if (args->tokens > 0)
        SMELT__TRY(smelt__call_launch(call, call->op->kernels[ROWS], args->tokens,
                                      args->free_multiprocessors, &queries));
    const struct indexer_loss_sum_params all = {.losses = queries.losses,
                                                .loss = args->loss.data,
                                                .query_stride = 1,
                                                .queries = queries.queries,
                                                .groups = 1};
    const struct smelt__launch sum = {.blocks = {1}, .pdl = args->tokens > 0, .params = &all};
    return smelt__kernel_launch(call->op->context, call->op->kernels[SUM], &sum, call->stream);
}

SMELT__OPERATOR(indexer_loss, forward, FORWARD, smelt_operator, NULL,
                .tables = &smelt__indexer_loss_table, .workspace = workspace, .launch = launch)
SMELT__ASK(indexer_loss, forward, FORWARD, smelt_indexer_loss_args)
