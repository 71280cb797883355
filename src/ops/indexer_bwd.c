/* The operator indexer_bwd: see smelt/indexer_bwd.h. */
#include "smelt/indexer_bwd.h"

#include "codegen/families/indexer_keys.h"
#include "ops/divide.h"
#include "ops/indexer_bwd_launch.h"
#include "ops/indexer_bwd_table.h"
#include "ops/split_sizes.h"
#include "runtime/log.h"

static void prepare(smelt_operator *op) {
    struct smelt__indexer_bwd *made = (struct smelt__indexer_bwd *)op;
    made->kernels = smelt__operator_kernels(op, SMELT_PASS_BACKWARD);
    made->context = op->context;
    made->q_name = "q";
    made->heads = (int)smelt__spec_get(&op->spec, "heads");
    made->dim = (int)smelt__spec_get(&op->spec, "dim");
    made->deterministic = (int)smelt__spec_get(&op->spec, "deterministic");
    made->granularity = (int)smelt__spec_get(&op->spec, "granularity");
    made->weights_bf16 = smelt__spec_get(&op->spec, "weights_dtype") == SMELT__INDEXER_WEIGHTS_BF16;
    made->main = *smelt__indexer_bwd_main_launch(&made->kernels[SMELT__INDEXER_BWD_MAIN]->plan);
}

/* ---- the workspace --------------------------------------------------------------------------- */

static struct smelt__indexer_bwd_layout find_layout(const struct smelt__indexer_bwd *indexer,
                                                    const smelt_indexer_bwd_args *args) {
    const int64_t groups = smelt__divide_up(args->tokens, indexer->main.group_queries);
    const int64_t slots = args->width * indexer->granularity;
    const int64_t key_stride =
        smelt__divide_up(slots * indexer->main.group_queries, SMELT__SPLIT_LIST_STEP) *
        SMELT__SPLIT_LIST_STEP;
    struct smelt__indexer_bwd_layout layout = {0};
    smelt__indexer_bwd_lay_out(indexer, groups, key_stride, args->rows,
                               groups > indexer->main.exact_groups, &layout);
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
    SMELT__TRY(smelt__call_check(call, chain.layout.bytes, NULL, 0));
    SMELT__TRY(smelt__operator_check_grid(call->op, SMELT_PASS_BACKWARD, chain.layout.groups));
    return smelt__indexer_bwd_launch(&chain);
}

SMELT__OPERATOR(indexer_bwd, backward, BACKWARD, struct smelt__indexer_bwd, prepare,
                .tables = smelt__indexer_bwd_table, .workspace = workspace, .launch = launch)
SMELT__ASK(indexer_bwd, backward, BACKWARD, smelt_indexer_bwd_args)
