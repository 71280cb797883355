/* The operator dense_lse: see smelt/dense_lse.h. */
#include "smelt/dense_lse.h"

#include "codegen/families/dense_scores_fwd.h"
#include "dense_lse_fwd.params.h"
#include "ops/call.h"
#include "ops/dense_lse_table.h"
#include "ops/divide.h"

static struct dense_lse_fwd_params pack(const smelt_dense_lse_args *args) {
    return (struct dense_lse_fwd_params){
        SMELT__TENSOR_TH(q, args->q),
        SMELT__TENSOR_SH(k, args->k),
        .window_begin = args->window_begin.data,
        .window_end = args->window_end.data,
        SMELT__TENSOR_TH(lse, args->lse),
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
        .scale = args->scale,
    };
}

static smelt_status launch(struct smelt__call *call) {
    const smelt_dense_lse_args *args = call->args;
    const struct smelt__kernel *kernel = call->op->kernels[0];
    const struct smelt__dense_lse_launch *shape = smelt__dense_lse_launch(&kernel->plan);
    smelt_status status = smelt__check_scale(args->scale);
    if (status != SMELT_OK || args->tokens == 0)
        return status; /* of an empty call no tensor is looked at */
    status = smelt__call_check(call, 0, NULL, 0);
    if (status != SMELT_OK)
        return status;
    const struct dense_lse_fwd_params params = pack(args);
    const int64_t items = smelt__divide_up(args->tokens, shape->item_queries) * shape->query_items;
    return smelt__call_launch(call, kernel, items, args->free_multiprocessors, &params);
}

SMELT__OPERATOR(dense_lse, forward, FORWARD, smelt_operator, NULL,
                .tables = &smelt__dense_lse_table, .launch = launch)
