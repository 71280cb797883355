/*
 * From cu_seqlens to attention without the host: windows, quantised keys and queries, selection,
 * attention. (examples/indexer.c checks the results.)
 */
#include "chain.h"
#include "indexer_topk_groups.h"
#include "smelt/smelt.h"

enum { HEADS = 8 };
enum { WINDOWS, KEYS, QUERIES, CHOICE, ATTENTION, LINKS };

static const char *const specs[LINKS] = {
    [WINDOWS] = "indexer_windows",
    [KEYS] = "quantize:dim=128",
    [QUERIES] = "quantize:dim=128",
    [CHOICE] = "indexer_topk:heads=8,dim=128,dtype=fp8,topk=64",
    [ATTENTION] = "sparse_attn:heads=16,dqk=128,dv=64,topk=64",
};

static void set_problem(int link, int64_t tokens, struct smelt__problem_options *options) {
    options->tokens = link == QUERIES ? tokens * HEADS : tokens;
    options->lists = link == WINDOWS ? SMELT__LISTS_CAUSAL : SMELT__LISTS_RANDOM;
    options->topk_length = link == CHOICE || link == ATTENTION;
}

static void connect(struct chain *chain) {
    const smelt_indexer_windows_args *windows = chain_args(chain, WINDOWS);
    const smelt_quantize_args *keys = chain_args(chain, KEYS);
    smelt_quantize_args *queries = chain_args(chain, QUERIES);
    smelt_indexer_topk_args *choice = chain_args(chain, CHOICE);
    smelt_sparse_attn_args *attention = chain_args(chain, ATTENTION);
    queries->factor.data = choice->weights.data;
    choice->q.data = queries->y.data;
    choice->k.data = keys->y.data;
    choice->weights.data = queries->scale.data;
    choice->k_scale.data = keys->scale.data;
    choice->window_begin.data = windows->window_begin.data;
    choice->window_end.data = windows->window_end.data;
    choice->offset.data = NULL;
    choice->index_offset = 0;
    attention->indices.data = choice->indices.data;
    attention->topk_length.data = choice->lengths.data;
}

void run_choosing_chain(struct suite *suite) {
    static const struct chain_plan plan = {.name = "chain: windows, quantise, choose, attend",
                                           .specs = specs,
                                           .links = LINKS,
                                           .problem = set_problem,
                                           .connect = connect,
                                           .first_changed = KEYS,
                                           .last_changed = QUERIES,
                                           .decided = CHOICE};
    run_chain(suite, &plan);
}
