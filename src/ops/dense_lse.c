/* The operator dense_lse: see smelt/dense_lse.h. */
#include "smelt/dense_lse.h"

#include "codegen/families/dense_scores_fwd.h"
#include "ops/call.h"
#include "ops/dense_lse_table.h"
#include "ops/dense_maps.h"
#include "ops/divide.h"
#include "runtime/log.h"

/* clang-format off */
#include "common/tensor_map.h"
#include "dense_lse_fwd.params.h"
/* clang-format on */

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

static smelt_status make_maps(const struct smelt__call *call,
                              const struct smelt__dense_lse_launch *shape,
                              struct dense_lse_fwd_params *params) {
    const smelt_dense_lse_args *args = call->args;
    const struct smelt__spec *spec = &call->op->spec;
    const int kv_heads = (int)smelt__spec_get(spec, "kv_heads");
    const struct smelt__dense_operands operands = {
        .q = args->q,
        .k = args->k,
        .tokens = args->tokens,
        .rows = args->rows,
        .kv_heads = kv_heads,
        .group = (int)smelt__spec_get(spec, "heads") / kv_heads,
        .dqk = (int)smelt__spec_get(spec, "dqk"),
        .box_queries = shape->item_queries,
        .box_heads = shape->query_rows,
        .box_keys = shape->box_keys,
    };
    SMELT__TRY(smelt__dense_maps_check(&operands, "variant=mma"));
    return smelt__dense_maps_make(call->op->context, &operands, &params->q_map, &params->k_map);
}

static smelt_status launch(struct smelt__call *call) {
    const smelt_dense_lse_args *args = call->args;
    const struct smelt__kernel *kernel = call->op->kernels[0];
    const struct smelt__dense_lse_launch *shape = smelt__dense_lse_launch(&kernel->plan);
    SMELT__TRY(smelt__check_scale(args->scale));
    if (args->tokens == 0)
        return SMELT_OK; /* an empty call's tensors are not checked */
    SMELT__TRY(smelt__call_check(call, 0, NULL, 0));
    struct dense_lse_fwd_params params = pack(args);
    if (shape->tensor_maps && args->rows > 0)
        SMELT__TRY(make_maps(call, shape, &params));
    const int64_t items = smelt__divide_up(args->tokens, shape->item_queries) * shape->query_items;
    return smelt__call_launch(call, kernel, items, args->free_multiprocessors, &params);
}

SMELT__OPERATOR(dense_lse, forward, FORWARD, smelt_operator, NULL,
                .tables = &smelt__dense_lse_table, .launch = launch)
