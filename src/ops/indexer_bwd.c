/* The operator indexer_bwd: see smelt/indexer_bwd.h. */
#include "smelt/indexer_bwd.h"

#include "ops/divide.h"
#include "ops/indexer_bwd_launch.h"
#include "ops/indexer_bwd_table.h"

enum { KEY_STEP = 64 /* lists are padded to whole blocks of it */ };

static void prepare(smelt_operator *op) {
    struct smelt__indexer_bwd *made = (struct smelt__indexer_bwd *)op;
    made->heads = (int)smelt__spec_get(&op->spec, "heads");
    made->dim = (int)smelt__spec_get(&op->spec, "dim");
    made->deterministic = (int)smelt__spec_get(&op->spec, "deterministic");
    const int main = smelt__indexer_bwd_place(made, SMELT__INDEXER_BWD_MAIN);
    made->main = *smelt__indexer_bwd_main_launch(&op->kernels[main]->plan);
}

/* ---- the workspace --------------------------------------------------------------------------- */

static struct smelt__indexer_bwd_layout find_layout(const struct smelt__indexer_bwd *indexer,
                                                    const smelt_indexer_bwd_args *args) {
    const struct smelt__key_grads_shape shape = smelt__indexer_bwd_shape(indexer);
    const int64_t groups = smelt__divide_up(args->tokens, indexer->main.group_queries);
    const int64_t entries = groups * indexer->main.group_queries;
    struct smelt__indexer_bwd_layout layout = {0};
    layout.dk.groups = groups;
    layout.dk.key_count = args->rows;
    layout.dk.key_stride =
        (int)(smelt__divide_up(args->width * indexer->main.group_queries, KEY_STEP) * KEY_STEP);
    layout.members = smelt__workspace_place(&layout.bytes, entries, sizeof(int));
    layout.dk.counts = smelt__workspace_place(&layout.bytes, groups, sizeof(int));
    layout.runs = smelt__workspace_place(&layout.bytes, indexer->main.group_tiles > 1 ? groups : 0,
                                         2 * sizeof(int));
    layout.dk.keys =
        smelt__workspace_place(&layout.bytes, groups * layout.dk.key_stride, sizeof(int));
    layout.grads =
        smelt__workspace_place(&layout.bytes, entries * layout.dk.key_stride, sizeof(float));
    if (indexer->deterministic) {
        layout.reach = smelt__workspace_place(&layout.bytes, entries, sizeof(float));
        layout.tops = smelt__workspace_place(&layout.bytes, SMELT__INDEXER_BWD_TOPS, sizeof(float));
        layout.grains = smelt__workspace_place(&layout.bytes, args->rows, sizeof(float));
        layout.totals = smelt__workspace_place(
            &layout.bytes, groups > indexer->main.exact_groups ? args->rows * indexer->dim : 0,
            sizeof(float));
    }
    layout.bounds = smelt__workspace_place(&layout.bytes, indexer->deterministic ? args->rows : 0,
                                           SMELT__INDEXER_BWD_UNIT_KINDS * sizeof(unsigned));
    smelt__key_grads_place(&shape, 0, &layout.bytes, &layout.dk);
    return layout;
}

static smelt_status workspace(const struct smelt__call *call, size_t *bytes) {
    *bytes = find_layout((const struct smelt__indexer_bwd *)call->op, call->args).bytes;
    return SMELT_OK;
}

/* ---- launching ------------------------------------------------------------------------------- */

static smelt_status launch(struct smelt__call *call) {
    const struct smelt__indexer_bwd *made = (const struct smelt__indexer_bwd *)call->op;
    const struct smelt__indexer_bwd_call chain = {made, call->args, find_layout(made, call->args),
                                                  call->stream};
    int pushed;
    smelt_status status = smelt__call_check(call, chain.layout.bytes, NULL, 0);
    if (status == SMELT_OK)
        status = smelt__operator_check_grid(call->op, SMELT_PASS_BACKWARD, chain.layout.dk.groups);
    if (status == SMELT_OK) /* the CUDA context is made current once for all launches */
        status = smelt__context_enter(call->op->context, &pushed);
    if (status != SMELT_OK)
        return status;
    status = smelt__indexer_bwd_launch(&chain);
    smelt__context_leave(call->op->context, pushed);
    return status;
}

static const struct smelt__pass passes[] = {
    {.pass = SMELT_PASS_BACKWARD,
     .call = "smelt_indexer_bwd_backward",
     .tables = &smelt__indexer_bwd_table,
     .workspace = workspace,
     .launch = launch},
};

const struct smelt__operator_type smelt__indexer_bwd_type = {
    .family = &smelt__indexer_bwd,
    .bytes = sizeof(struct smelt__indexer_bwd),
    .prepare = prepare,
    .passes = passes,
    .pass_count = 1,
};

SMELT__CALL(indexer_bwd, backward, BACKWARD, smelt_indexer_bwd_args)
SMELT__ASK(indexer_bwd, backward, BACKWARD, smelt_indexer_bwd_args)
