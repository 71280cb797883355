/* The operator indexer_logits: see smelt/indexer_logits.h. */
#include "smelt/indexer_logits.h"

#include "ops/call.h"
#include "ops/indexer_logits_launch.h"
#include "ops/indexer_logits_table.h"
#include "runtime/log.h"

struct indexer_logits {
    smelt_operator op;
    struct smelt__indexer_scorer scorer;
};

static void prepare(smelt_operator *op) {
    ((struct indexer_logits *)op)->scorer = smelt__indexer_scorer_of(op, op->kernels[0]);
}

static smelt_status launch(struct smelt__call *call) {
    const struct indexer_logits *made = (const struct indexer_logits *)call->op;
    const smelt_indexer_logits_args *args = call->args;
    if (args->tokens == 0 ||
        smelt__indexer_scorer_columns(&made->scorer, args->rows, args->candidate_count) == 0)
        return SMELT_OK; /* an empty call's tensors are not checked */
    SMELT__TRY(smelt__call_check(call, 0, NULL, 0));
    SMELT__TRY(smelt__indexer_scorer_check(&made->scorer, args));
    return smelt__indexer_scorer_launch(&made->scorer, args,
                                        &(const struct smelt__indexer_chain){0}, call->stream);
}

SMELT__OPERATOR(indexer_logits, forward, FORWARD, struct indexer_logits, prepare,
                .tables = smelt__indexer_logits_table, .launch = launch)
