/* The operator topk_select: see smelt/topk_select.h. */
#include "smelt/topk_select.h"

#include "codegen/families/topk_select_rows.h"
#include "codegen/family.h"
#include "ops/call.h"
#include "ops/topk_select_rows.h"
#include "ops/topk_select_table.h"
#include "runtime/log.h"

struct topk_select {
    smelt_operator op;
    struct smelt__topk_kernels kernels; /* op's, by name */
    struct smelt__topk_lists lists;
};

static void prepare(smelt_operator *op) {
    struct topk_select *made = (struct topk_select *)op;
    made->kernels = smelt__topk_kernels_from(op->kernels, smelt__topk_select_kernels(&op->spec),
                                             (int)smelt__spec_get(&op->spec, "topk"));
    made->lists = smelt__topk_lists_of(&op->spec);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static smelt_status workspace(const struct smelt__call *call, size_t *bytes) {
    const struct topk_select *made = (const struct topk_select *)call->op;
    const smelt_topk_select_args *args = call->args;
    *bytes = smelt__topk_workspace(&made->kernels, args->tokens * made->lists.groups, args->rows);
    return SMELT_OK;
}

static smelt_status check(struct smelt__call *call) {
    const struct topk_select *made = (const struct topk_select *)call->op;
    const smelt_topk_select_args *args = call->args;
    size_t needed;
    SMELT__TRY(smelt__topk_check_lists(&made->lists, args->tokens, args->rows, args->width,
                                       args->limit.data != NULL));
    workspace(call, &needed);
    if (!args->window_begin.data == !args->window_end.data)
        return smelt__call_check(call, needed, NULL, 0);
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s is NULL and %s is not; windows need both, whole rows neither",
                       args->window_begin.data ? "window_end" : "window_begin",
                       args->window_begin.data ? "window_begin" : "window_end");
}

/* ---- launching ------------------------------------------------------------------------------- */

static smelt_status launch(struct smelt__call *call) {
    const struct topk_select *made = (const struct topk_select *)call->op;
    const smelt_topk_select_args *args = call->args;
    if (args->tokens == 0)
        return SMELT_OK; /* an empty call's tensors are not checked */
    SMELT__TRY(check(call));
    const struct topk_select_rows_params params = {
        .logits = args->logits.data,
        .window_begin = args->window_begin.data,
        .window_end = args->window_end.data,
        .offset = args->offset.data,
        .limit = args->limit.data,
        .indices = args->indices.data,
        .values = args->values.data,
        .lengths = args->lengths.data,
        .logits_stride = args->logits.strides[0],
        .logits_group = args->logits.strides[1],
        .indices_stride = args->indices.strides[0],
        .indices_group = args->indices.strides[1],
        .values_stride = args->values.strides[0],
        .values_group = args->values.strides[1],
        .lengths_stride = made->lists.groups > 1 ? args->lengths.strides[0] : 1,
        .rows = (int)args->tokens * made->lists.groups,
        .keys = (int)args->rows,
        .width = (int)args->width,
        .all_rows = (int)args->rows * made->lists.expand,
        .most_rows = (int)args->rows * made->lists.expand + made->lists.expand - 1,
        .index_offset = args->index_offset,
    };
    return smelt__topk_launch(call->op->context, &made->kernels, &params, args->rows,
                              args->workspace, call->stream);
}

SMELT__OPERATOR(topk_select, forward, FORWARD, struct topk_select, prepare,
                .tables = smelt__topk_select_table, .workspace = workspace, .launch = launch)
SMELT__ASK(topk_select, forward, FORWARD, smelt_topk_select_args)
