/* Boundary cases of the operators that train the indexer: no queries, no rows. Tensors without
 * elements are NULL. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/grad_rows.h"
#include "indexer_training_groups.h"
#include "ops/indexer_bwd_table.h"
#include "ops/indexer_scores_table.h"
#include "ops/sparse_scores_table.h"
#include "smelt/indexer_bwd.h"
#include "smelt/indexer_scores.h"
#include "smelt/sparse_scores.h"

#define TENSOR(name) SMELT__INDEXER_BWD_##name

enum { TOKENS = 5, ROWS = 90, WIDTH = 70 };

/* ---- indexer_bwd ----------------------------------------------------------------------------- */

static void no_queries(void *given) {
    smelt_indexer_bwd_args *const args = given;
    args->tokens = 0;
    args->q.data = args->weights.data = args->indices.data = args->grad.data = NULL;
    args->dq.data = args->dweights.data = NULL;
}

static void no_rows(void *given) {
    smelt_indexer_bwd_args *const args = given;
    args->rows = 0;
    args->k.data = NULL;
    args->dk.data = args->dk_fp32.data = args->dk_sum.data = NULL;
}

static int are_zeros(const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (((const char *)bytes)[i] != 0)
            return 0;
    return 1;
}

/* Expects zeros, or the previous values. */
static const char *judge_keys(const struct workload *work) {
    const struct smelt__indexer_bwd_spec *const spec = work->problem.spec;
    const struct smelt__key_rows rows = {TENSOR(DK), TENSOR(DK_FP32), TENSOR(DK_SUM), spec->dim};
    const int bf16 = work->problem.options.dkv == SMELT__DKV_BF16;
    const size_t bytes = (size_t)spec->dim * (bf16 ? sizeof(uint16_t) : sizeof(float));
    for (int64_t key = 0; key < ROWS; key++) {
        const void *const got = smelt__key_row(&work->placed, &rows, key);
        const float *const before = smelt__key_row_before(&work->problem, &rows, key);
        if (before ? memcmp(got, before, bytes) != 0 : !are_zeros(got, bytes))
            return "without a query dk is not what it must be";
    }
    return "";
}

static const char *judge_queries(const struct workload *work) {
    const struct smelt__indexer_bwd_spec *const spec = work->problem.spec;
    const size_t heads = (size_t)spec->heads, dim = (size_t)spec->dim;
    for (int64_t query = 0; query < TOKENS; query++)
        if (!are_zeros(smelt__placed_row(&work->placed, TENSOR(DQ), query, 0, 0),
                       heads * dim * sizeof(uint16_t)) ||
            !are_zeros(smelt__placed_row(&work->placed, TENSOR(DWEIGHTS), query, 0, 0),
                       heads * sizeof(float)))
            return "without a row dq or dweights is not 0";
    return "";
}

/* ---- scores ---------------------------------------------------------------------------------- */

static void no_keys(void *given) {
    smelt_indexer_scores_args *const args = given;
    args->rows = 0;
    args->k.data = NULL;
}

static const char *judge_logits(const struct workload *work) {
    for (int64_t query = 0; query < TOKENS; query++) {
        const float *const logits =
            smelt__placed_row(&work->placed, SMELT__INDEXER_SCORES_LOGITS, query, 0, 0);
        for (int i = 0; i < WIDTH; i++)
            if (logits[i] != -INFINITY)
                return "without a row a logit is not -inf";
    }
    return "";
}

static void no_kv(void *given) {
    smelt_sparse_scores_args *const args = given;
    args->rows = 0;
    args->kv.data = NULL;
}

static const char *judge_target(const struct workload *work) {
    for (int64_t query = 0; query < TOKENS; query++)
        if (!are_zeros(smelt__placed_row(&work->placed, SMELT__SPARSE_SCORES_TARGET, 0, query, 0),
                       WIDTH * sizeof(float)))
            return "without a row a target is not 0";
    return "";
}

/* ---- cases ----------------------------------------------------------------------------------- */

struct edge {
    const char *name, *spec;
    enum smelt__dkv dkv;
    void (*edit)(void *args);
    const char *(*judge)(const struct workload *work);
};

static void run_edges(struct suite *suite, const struct edge *edges) {
    for (const struct edge *edge = edges; edge->name; edge++) {
        const struct smelt__problem_options options = {
            .seed = suite->seed, .tokens = TOKENS, .rows = ROWS, .dkv = edge->dkv};
        struct workload work;
        char name[SUITE_SPEC + 64], message[1024] = "";
        snprintf(name, sizeof name, "boundaries: %s, %s", edge->name, edge->spec);
        if (!suite_wants(suite, name))
            continue;
        if (workload_open(&work, suite, edge->spec, &options, message, sizeof message) == 0) {
            edge->edit(work.placed.args);
            if (suite_ok(smelt__placed_run(&work.placed, work.object, NULL), "launch", message,
                         sizeof message) == 0)
                snprintf(message, sizeof message, "%s", edge->judge(&work));
            workload_close(&work);
        }
        suite_report(suite, name, message);
    }
}

#define PLAIN "indexer_bwd:heads=20,dim=64,topk=70"
#define EXACT PLAIN ",deterministic=1"

void run_indexer_bwd_boundaries(struct suite *suite) {
    static const struct edge edges[] = {
        {"no queries", PLAIN, SMELT__DKV_BF16, no_queries, judge_keys},
        {"no queries, added to what is there", PLAIN, SMELT__DKV_ADD, no_queries, judge_keys},
        {"no queries", EXACT, SMELT__DKV_FP32, no_queries, judge_keys},
        {"no rows", PLAIN, SMELT__DKV_BF16, no_rows, judge_queries},
        {"no rows", EXACT, SMELT__DKV_FP32, no_rows, judge_queries},
        {NULL, NULL, SMELT__DKV_BF16, NULL, NULL},
    };
    run_edges(suite, edges);
}

void run_indexer_scores_boundaries(struct suite *suite) {
    static const struct edge edges[] = {
        {"no rows", "indexer_scores:heads=20,dim=64,topk=70", SMELT__DKV_BF16, no_keys,
         judge_logits},
        {"no rows", "indexer_scores:heads=20,dim=64,topk=70,variant=mma", SMELT__DKV_BF16, no_keys,
         judge_logits},
        {NULL, NULL, SMELT__DKV_BF16, NULL, NULL},
    };
    run_edges(suite, edges);
}

void run_sparse_scores_boundaries(struct suite *suite) {
    static const struct edge edges[] = {
        {"no rows", "sparse_scores:heads=20,dqk=128,dv=64,topk=70", SMELT__DKV_BF16, no_kv,
         judge_target},
        {"no rows", "sparse_scores:heads=64,dqk=576,dv=512,topk=70", SMELT__DKV_BF16, no_kv,
         judge_target},
        {"no rows", "sparse_scores:heads=64,dqk=576,dv=512,topk=70,variant=mma", SMELT__DKV_BF16,
         no_kv, judge_target},
        {NULL, NULL, SMELT__DKV_BF16, NULL, NULL},
    };
    run_edges(suite, edges);
}
