/* The operator sparse_gqa: see smelt/sparse_gqa.h. */
#include "smelt/sparse_gqa.h"

#include "codegen/families/sparse_gqa.h"
#include "codegen/families/sparse_gqa_block.h"
#include "ops/sparse_gqa_block.h"
#include "ops/sparse_gqa_call.h"
#include "ops/sparse_gqa_groups.h"

/* Queries of an item of the forward kernel; above 1, their lists are united. */
static int item_queries(const smelt_operator *op) {
    return smelt__sparse_gqa_block_launch(&op->kernels[SMELT__SPARSE_GQA_FWD]->plan)->queries;
}

static smelt_status place_groups(const struct smelt__call *call, int64_t queries,
                                 struct smelt__gqa_groups *groups, size_t *bytes) {
    const smelt_sparse_gqa_args *args = call->args;
    const struct smelt__spec *spec = &call->op->spec;
    *groups = (struct smelt__gqa_groups){
        .queries = item_queries(call->op),
        .entries = queries,
        .lists = smelt__spec_get(spec, "lists") ? smelt__spec_get(spec, "kv_heads") : 1,
        .width = args->width,
        .batches = args->batches,
        .rows = args->rows,
        .granularity = (int)smelt__spec_get(spec, "granularity"),
    };
    return smelt__gqa_groups_place(groups, bytes);
}

static smelt_status workspace(const struct smelt__call *call, size_t *bytes) {
    const smelt_sparse_gqa_args *args = call->args;
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(args);
    const smelt_status status = smelt__sparse_attn_check_queries(&fields);
    *bytes = 0;
    if (status != SMELT_OK)
        return status;
    if (smelt__sparse_gqa_is_block(call->op))
        return smelt__sparse_gqa_block_workspace(call, bytes);
    struct smelt__gqa_groups groups;
    return item_queries(call->op) > 1
               ? place_groups(call, smelt__sparse_attn_count_queries(&fields), &groups, bytes)
               : SMELT_OK;
}

static void fill(const smelt_sparse_gqa_args *args, const struct smelt__sparse_attn_call *fields,
                 int64_t queries, struct sparse_gqa_fwd_params *params) {
    *params = (struct sparse_gqa_fwd_params){
        .work = smelt__sparse_attn_work(fields, queries),
        .lists = SMELT__SPARSE_GQA_LISTS_PARAMS(args),
        SMELT__TENSOR_BTH(q, args->q),
        SMELT__TENSOR_BSH(k, args->k),
        SMELT__TENSOR_BSH(v, args->v),
        .sink = args->sink.data,
        SMELT__TENSOR_BTH(out, args->out),
        SMELT__TENSOR_BTH(lse, args->lse),
        .scale = args->scale,
    };
}

static smelt_status launch(struct smelt__call *call) {
    const smelt_sparse_gqa_args *args = call->args;
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(args);
    struct sparse_gqa_fwd_params params;
    size_t needed = 0;
    smelt_status status = smelt__sparse_attn_check_call(&fields);
    int64_t queries = smelt__sparse_attn_count_queries(&fields);
    if (status != SMELT_OK || queries == 0)
        return status; /* of an empty call no tensor is looked at */
    status = workspace(call, &needed);
    if (status == SMELT_OK)
        status = smelt__call_check(call, needed, NULL, 0);
    if (status == SMELT_OK)
        status = smelt__operator_check_grid(call->op, SMELT_PASS_FORWARD, queries);
    if (status != SMELT_OK)
        return status;
    fill(args, &fields, queries, &params);
    if (smelt__sparse_gqa_is_block(call->op))
        return smelt__sparse_gqa_block_forward(call, &params);
    const struct smelt__kernel *kernel = call->op->kernels[SMELT__SPARSE_GQA_FWD];
    if (item_queries(call->op) > 1) {
        struct smelt__gqa_groups groups;
        size_t bytes = 0;
        status = place_groups(call, queries, &groups, &bytes);
        if (status == SMELT_OK)
            status = smelt__gqa_groups_launch(
                &groups, call->op->context, call->op->kernels[SMELT__SPARSE_GQA_GROUPS],
                args->workspace, &params.lists, &params.work, &params.groups, call->stream);
        if (status != SMELT_OK)
            return status;
        queries = groups.groups;
    }
    const int64_t most = smelt__available_blocks(kernel, args->free_multiprocessors);
    const struct smelt__launch one = {
        .blocks = {smelt__blocks_for(kernel, queries, most)}, .pdl = 1, .params = &params};
    return smelt__kernel_launch(call->op->context, kernel, &one, call->stream);
}

static const struct smelt__pass passes[] = {
    {.pass = SMELT_PASS_FORWARD,
     .call = "smelt_sparse_gqa_forward",
     .tables = smelt__sparse_gqa_table,
     .table_key = "lists",
     .workspace = workspace,
     .launch = launch},
    {.pass = SMELT_PASS_BACKWARD,
     .call = "smelt_sparse_gqa_backward",
     .tables = smelt__sparse_gqa_grad_table,
     .table_key = "lists",
     .workspace = smelt__sparse_gqa_backward_workspace,
     .launch = smelt__sparse_gqa_backward_launch},
};

const struct smelt__operator_type smelt__sparse_gqa_type = {
    .family = &smelt__sparse_gqa,
    .bytes = sizeof(smelt_operator),
    .passes = passes,
    .pass_count = sizeof passes / sizeof *passes,
};

SMELT__CALL(sparse_gqa, forward, FORWARD, smelt_sparse_gqa_args)
SMELT__ASK(sparse_gqa, forward, FORWARD, smelt_sparse_gqa_args)
SMELT__CALL(sparse_gqa, backward, BACKWARD, smelt_sparse_gqa_grad_args)
SMELT__ASK(sparse_gqa, backward, BACKWARD, smelt_sparse_gqa_grad_args)
