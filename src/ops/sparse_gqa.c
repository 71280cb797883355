/* The operator sparse_gqa: see smelt/sparse_gqa.h. This file launches the query-stationary forward
 * kernels, sparse_gqa_block.c the block-stationary ones, sparse_gqa_backward.c the backward pass. */
#include "smelt/sparse_gqa.h"

#include <inttypes.h>

#include "codegen/families/sparse_gqa.h"
#include "ops/divide.h"
#include "ops/key_grads.h"
#include "ops/sparse_gqa.h"
#include "runtime/log.h"

enum {
    MOST_ROWS = 1 << 28, /* of all batches: the bits above a row's number are a mask of queries */
    LIST_STEP = 64       /* united lists are padded to multiples of it */
};

/* Queries of an item of the forward kernel; above 1, their lists are united. */
static int item_queries(const smelt_operator *op) {
    return smelt__sparse_gqa_block_launch(&op->kernels[SMELT__SPARSE_GQA_FWD]->plan)->queries;
}

/* ---- groups of neighbouring queries whose lists are united (entries of 1 to 16 rows) ----------- */

struct groups {
    int queries; /* of a group */
    int64_t lists, blocks, groups, key_stride;
    size_t members, counts, keys, masks; /* offsets in the workspace */
};

/* Sizes the groups and their arrays in the workspace. INVALID_ARGUMENT: there are too many rows. */
static smelt_status place_groups(const struct smelt__call *call, int64_t entries,
                                 struct groups *groups, size_t *bytes) {
    const smelt_sparse_gqa_args *args = call->args;
    const struct smelt__spec *spec = &call->op->spec;
    const int64_t granularity = smelt__spec_get(spec, "granularity");
    groups->queries = item_queries(call->op);
    groups->lists = smelt__spec_get(spec, "lists") ? smelt__spec_get(spec, "kv_heads") : 1;
    groups->blocks = smelt__divide_up(args->rows, granularity);
    groups->groups = smelt__divide_up(entries, groups->queries);
    groups->key_stride = smelt__divide_up(groups->queries * args->width, LIST_STEP) * LIST_STEP;
    if (args->batches * groups->blocks * granularity >= MOST_ROWS)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "batches * rows is %" PRId64
                           "; with unite=1 it must be below 2^28: leave unite=1 out",
                           args->batches * args->rows);
    const int64_t lists = groups->lists * groups->groups;
    groups->members = smelt__workspace_place(bytes, groups->groups * groups->queries, sizeof(int));
    groups->counts = smelt__workspace_place(bytes, lists, sizeof(int));
    groups->keys = smelt__workspace_place(bytes, lists * groups->key_stride, sizeof(int));
    groups->masks = smelt__workspace_place(bytes, lists * groups->key_stride, 1);
    return SMELT_OK;
}

/* Unites one list, number `list`, of each group's queries. */
static smelt_status unite_list(const struct smelt__call *call, const struct groups *groups,
                               const struct sparse_gqa_fwd_params *main, int64_t list) {
    const smelt_sparse_gqa_args *args = call->args;
    const struct smelt__kernel *const kernel = call->op->kernels[SMELT__SPARSE_GQA_GROUPS];
    char *const workspace = args->workspace;
    const int64_t first = list * groups->groups;
    struct sparse_attn_bwd_lists_params params = {
        .work = main->groups.work,
        .members = (int *)(void *)(workspace + groups->members),
        .counts = (int *)(void *)(workspace + groups->counts) + first,
        .keys = (int *)(void *)(workspace + groups->keys) + first * groups->key_stride,
        .masks = (unsigned char *)workspace + groups->masks + first * groups->key_stride,
        .groups = (int)groups->groups,
        .group_queries = groups->queries,
        .key_stride = (int)groups->key_stride,
        .copies = 1,
        .topk = (int)args->width,
        .ascending = 1,
    };
    params.work.rows = (int)groups->blocks;
    params.work.indices += list * main->lists.indices_group_stride;
    if (params.work.topk_length)
        params.work.topk_length += list * main->lists.topk_length_group_stride;
    const struct smelt__launch launch = {
        .blocks = {smelt__blocks_for(kernel, groups->groups, kernel->most_blocks)},
        .params = &params};
    return smelt__kernel_launch(call->op->context, kernel, &launch, call->stream);
}

/* Unites the lists of the queries of params->work, and replaces params->work by the groups. */
static smelt_status launch_groups(const struct smelt__call *call, const struct groups *groups,
                                  struct sparse_gqa_fwd_params *params) {
    char *const at = ((const smelt_sparse_gqa_args *)call->args)->workspace;
    const struct work_params work = params->work;
    smelt_status status = SMELT_OK;
    params->groups = (struct gqa_groups_params){
        .work = work,
        .members = (const int *)(void *)(at + groups->members),
        .counts = (const int *)(void *)(at + groups->counts),
        .keys = (const int *)(void *)(at + groups->keys),
        .masks = (const unsigned char *)at + groups->masks,
        .groups = (int)groups->groups,
        .key_stride = (int)groups->key_stride,
        .blocks = (int)groups->blocks,
    };
    for (int64_t list = 0; list < groups->lists && status == SMELT_OK; list++)
        status = unite_list(call, groups, params, list);
    params->work = (struct work_params){
        .batches = 1,
        .tokens = (int)groups->groups,
        .rows = work.rows,
        .width = work.width,
        .query_capacity = (int)groups->groups,
        .pdl_wait_at_end = work.pdl_wait_at_end,
    };
    return status;
}

/* ---- the forward pass ------------------------------------------------------------------------ */

static smelt_status workspace(const struct smelt__call *call, size_t *bytes) {
    const smelt_sparse_gqa_args *args = call->args;
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(args);
    const smelt_status status = smelt__sparse_attn_check_queries(&fields);
    *bytes = 0;
    if (status != SMELT_OK)
        return status;
    if (smelt__sparse_gqa_is_block(call->op))
        return smelt__sparse_gqa_block_workspace(call, bytes);
    struct groups groups;
    return item_queries(call->op) > 1
               ? place_groups(call, smelt__sparse_attn_count_queries(&fields), &groups, bytes)
               : SMELT_OK;
}

static struct sparse_gqa_fwd_params pack(const smelt_sparse_gqa_args *args,
                                         const struct smelt__sparse_attn_call *fields,
                                         int64_t queries) {
    return (struct sparse_gqa_fwd_params){
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
    size_t needed = 0, bytes = 0;
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
    struct sparse_gqa_fwd_params params = pack(args, &fields, queries);
    if (smelt__sparse_gqa_is_block(call->op))
        return smelt__sparse_gqa_block_forward(call, &params);
    if (item_queries(call->op) > 1) {
        struct groups groups;
        status = place_groups(call, queries, &groups, &bytes);
        if (status == SMELT_OK)
            status = launch_groups(call, &groups, &params);
        if (status != SMELT_OK)
            return status;
        queries = groups.groups;
    }
    const struct smelt__kernel *kernel = call->op->kernels[SMELT__SPARSE_GQA_FWD];
    const int64_t most = smelt__available_blocks(kernel, args->free_multiprocessors);
    const struct smelt__launch one = {
        .blocks = {smelt__blocks_for(kernel, queries, most)}, .pdl = 1, .params = &params};
    return smelt__kernel_launch(call->op->context, kernel, &one, call->stream);
}

/* ---- the operator ---------------------------------------------------------------------------- */

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
