/*
 * A training step of the indexer without the host: selection, attention, target, logits, loss,
 * gradients. (examples/train_indexer.c shows that the loss decreases.)
 */
#include "training_chain.h"

#include "chain.h"
#include "smelt/smelt.h"

enum { CHOICE, ATTENTION, TARGET, LOGITS, LOSS, GRADIENTS, LINKS };

/* Only in deterministic mode do gradients with respect to keys have the same bits in every run. */
static const char *const specs[LINKS] = {
    [CHOICE] = "indexer_topk:heads=8,dim=64,dtype=bf16,topk=64",
    [ATTENTION] = "sparse_attn:heads=16,dqk=128,dv=64,topk=64",
    [TARGET] = "sparse_scores:heads=16,dqk=128,dv=64,topk=64",
    [LOGITS] = "indexer_scores:heads=8,dim=64,topk=64",
    [LOSS] = "indexer_loss:topk=64",
    [GRADIENTS] = "indexer_bwd:heads=8,dim=64,topk=64,deterministic=1",
};

static void set_problem(int link, int64_t tokens, struct smelt__problem_options *options) {
    (void)tokens;
    options->lists = link == CHOICE ? SMELT__LISTS_CAUSAL : SMELT__LISTS_RANDOM;
    options->topk_length = 1;
}

static void connect(struct chain *chain) {
    smelt_indexer_topk_args *choice = chain_args(chain, CHOICE);
    smelt_sparse_attn_args *attention = chain_args(chain, ATTENTION);
    smelt_sparse_scores_args *target = chain_args(chain, TARGET);
    smelt_indexer_scores_args *logits = chain_args(chain, LOGITS);
    smelt_indexer_loss_args *loss = chain_args(chain, LOSS);
    smelt_indexer_bwd_args *gradients = chain_args(chain, GRADIENTS);
    choice->offset.data = NULL;
    choice->index_offset = 0;
    attention->indices.data = choice->indices.data;
    attention->topk_length.data = choice->lengths.data;
    target->q.data = attention->q.data;
    target->kv.data = attention->kv.data;
    target->scale = attention->scale;
    target->lse.data = attention->lse.data;
    target->indices = attention->indices;
    target->topk_length = attention->topk_length;
    logits->q.data = choice->q.data;
    logits->k.data = choice->k.data;
    logits->weights.data = choice->weights.data;
    logits->indices.data = choice->indices.data;
    logits->topk_length.data = choice->lengths.data;
    loss->logits.data = logits->logits.data;
    loss->target.data = target->target.data;
    loss->indices.data = choice->indices.data;
    loss->topk_length.data = choice->lengths.data;
    gradients->q.data = choice->q.data;
    gradients->k.data = choice->k.data;
    gradients->weights.data = choice->weights.data;
    gradients->indices.data = choice->indices.data;
    gradients->topk_length.data = choice->lengths.data;
    gradients->grad.data = loss->grad.data;
}

void run_training_chain(struct suite *suite) {
    static const struct chain_plan plan = {.name = "chain: a step of training the indexer",
                                           .specs = specs,
                                           .links = LINKS,
                                           .problem = set_problem,
                                           .connect = connect,
                                           .first_changed = CHOICE,
                                           .last_changed = ATTENTION,
                                           .decided = GRADIENTS};
    run_chain(suite, &plan);
}
