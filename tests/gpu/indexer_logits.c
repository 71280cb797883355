/* indexer_logits's cases of the GPU suite. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/random.h"
#include "ops/indexer_logits_table.h"
#include "parts.h"
#include "suite.h"

/* ---- matrix: heads x types and widths, windows and sizes in turn ----------------------------- */

static const int all_heads[] = {1, 3, 8, 16, 24, 32, 64, 128};
static const int quick_heads[] = {3, 32};
static const char *const types[] = {"dim=128,dtype=bf16", "dim=128,dtype=fp8", "dim=64,dtype=bf16",
                                    "dim=64,dtype=fp8", "dim=32,dtype=bf16"};
static const char *const scorings[] = {",block_max=8",
                                       ",activation=none,block_max=128",
                                       ",weights=0,block_max=4",
                                       ",block_max=64",
                                       ",activation=none,weights=0",
                                       ",weights=0,block_max=128",
                                       ",block_max=2",
                                       ",activation=none,block_max=16",
                                       ",block_max=32",
                                       ",activation=none,weights_dtype=bf16",
                                       ",candidate_block=8,weights_dtype=bf16",
                                       ",candidate_block=1",
                                       ",weights=0,block_max=32,candidate_block=64",
                                       ",block_max=4,candidate_block=4",
                                       ",activation=none,block_max=128,candidate_block=128",
                                       ",block_max=16,candidate_block=32"};
static const enum smelt__lists kinds[] = {
    SMELT__LISTS_RANDOM, SMELT__LISTS_CAUSAL, SMELT__LISTS_ADVERSARIAL, SMELT__LISTS_FULL,
    SMELT__LISTS_PACKED, SMELT__LISTS_WINDOW, SMELT__LISTS_LOG};

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const int heads = suite->quick ? COUNT(quick_heads) : COUNT(all_heads);
    const int repeats = suite->quick ? 1 : COUNT(kinds);
    struct smelt__problem_options *problem = &one->problem;
    struct smelt__random random = smelt__random_at(suite->seed, 7, (uint64_t)number);
    const int type = number % COUNT(types), head = number / COUNT(types) % heads;
    if (number >= heads * COUNT(types) * repeats)
        return 0;
    const int of_spec = suite->quick ? quick_heads[head] : all_heads[head];
    const char *const more = scorings[(number + number / COUNT(types)) % COUNT(scorings)];
    /* Every second one as before there were these keys. */
    snprintf(one->spec, sizeof one->spec, "indexer_logits:heads=%d,%s%s", of_spec, types[type],
             number / COUNT(types) % 2 ? more : "");
    /* Groups of one head and of half of them; of listed keys those whose heads fit into a product. */
    if (number % 5 == 1 && (!strstr(one->spec, "candidate_block") || of_spec <= 8))
        snprintf(one->spec + strlen(one->spec), sizeof one->spec - strlen(one->spec), ",groups=%d",
                 of_spec % 2 || number % 2 ? of_spec : 2);
    one->sample = suite->quick ? 8 : 24;
    problem->seed = suite->seed * 1000 + (uint64_t)number;
    problem->tokens = PICK(&random, 1, 9, 130, 333);
    problem->rows = PICK(&random, 1, 130, 1000, 2051);
    problem->lists = kinds[(number + head) % COUNT(kinds)];
    problem->strided = number % 3 == 1;
    if (suite->emulated) {
        problem->tokens = problem->tokens > 11 ? 11 : problem->tokens;
        problem->rows = problem->rows > 600 ? 600 : problem->rows;
    }
    return 1;
}

/* ---- offsets beyond 32 bits ------------------------------------------------------------------ */

/* T x S and T x H x D exceed 2^31 elements. */
static const struct suite_case large[] = {
    SUITE_CASE("large: logits, T x S above 2^31", "indexer_logits:heads=8,dim=64,dtype=fp8", 16,
               .tokens = 2100, .rows = (1 << 20) + 5),
    SUITE_CASE("large: logits, T x H x D above 2^31", "indexer_logits:heads=128,dim=128,dtype=fp8",
               16, .tokens = 140000, .rows = 300),
    SUITE_CASE("large: logits, S x D above 2^31", "indexer_logits:heads=2,dim=128,dtype=bf16", 16,
               .tokens = 5, .rows = (1 << 24) + 77),
    {.name = NULL},
};

/* ---- launches -------------------------------------------------------------------------------- */

static const char *const launches[] = {
    "indexer_logits:heads=16,dim=128,dtype=bf16",
    "indexer_logits:heads=16,dim=128,dtype=fp8",
    "indexer_logits:heads=4,dim=128,dtype=bf16,activation=none,weights=0,groups=4,block_max=128",
    "indexer_logits:heads=16,dim=128,dtype=fp8,block_max=8",
    "indexer_logits:heads=16,dim=128,dtype=fp8,candidate_block=8",
    NULL,
};

/* ---- a logit depends on its query and its key alone ------------------------------------------ */

enum { CUT_QUERIES = 5, CUT_KEYS = 37 }; /* from the front */

/* The same call without its first queries and keys, writing to the same rows. */
static smelt_status launch_part(const struct workload *workload, struct CUstream_st *stream) {
    const struct smelt__indexer_logits_spec *spec = workload->spec.spec;
    const int64_t bytes = spec->dtype == SMELT__DTYPE_FP8 ? 1 : 2;
    smelt_indexer_logits_args args = *(const smelt_indexer_logits_args *)workload->placed.args;
    const int64_t row = spec->dim * bytes, rows = args.rows;
    args.tokens -= CUT_QUERIES;
    args.rows -= CUT_KEYS;
    args.q.data = (const char *)args.q.data + CUT_QUERIES * spec->heads * row;
    args.k.data = (const char *)args.k.data + CUT_KEYS * row;
    args.weights.data = (const float *)args.weights.data + CUT_QUERIES * spec->heads;
    if (args.k_scale.data)
        args.k_scale.data = (const float *)args.k_scale.data + CUT_KEYS;
    args.logits.strides[0] = rows;
    return smelt_operator_launch(workload->object, workload->pass->pass, &args, stream);
}

/* All windows have all keys. */
static void compare_invariant(struct suite *suite, const char *name, const char *spec) {
    const struct part part = {.name = name,
                              .spec = spec,
                              .problem = {.seed = suite->seed,
                                          .tokens = suite->emulated || suite->quick ? 19 : 400,
                                          .rows = suite->emulated || suite->quick ? 333 : 3000,
                                          .lists = SMELT__LISTS_FULL},
                              .output = SMELT__INDEXER_LOGITS_LOGITS,
                              .launch = launch_part,
                              .queries = CUT_QUERIES,
                              .columns = CUT_KEYS};
    run_part(suite, &part);
}

static void run_invariance(struct suite *suite) {
    compare_invariant(suite, "invariance: logits, bf16",
                      "indexer_logits:heads=12,dim=128,dtype=bf16");
    compare_invariant(suite, "invariance: logits, fp8",
                      "indexer_logits:heads=32,dim=128,dtype=fp8");
    compare_invariant(suite, "invariance: logits, variant mma, bf16",
                      "indexer_logits:heads=5,dim=64,dtype=bf16,variant=mma");
    compare_invariant(suite, "invariance: logits, variant mma, fp8",
                      "indexer_logits:heads=9,dim=32,dtype=fp8,variant=mma");
}

/* ---- strides of billions ---------------------------------------------------------------------- */

#define FAR(keys) SUITE_FAR("indexer_logits:heads=3,dim=64,dtype=" keys, .tokens = 9, .rows = 100)
static const struct suite_case far[] = {FAR("bf16"),
                                        FAR("fp8"),
                                        FAR("bf16,groups=3,block_max=4"),
                                        FAR("fp8,candidate_block=8"),
                                        {.spec = ""}};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct suite_group groups[] = {{"invariance", run_invariance}, {NULL, NULL}};

const struct suite_operator suite_operator_indexer_logits = {
    .matrix = matrix_case,
    .large = large,
    .launches = launches,
    .launch = {.tokens = 200, .rows = 3000},
    .quick_launch = {.tokens = 9, .rows = 300},
    .far = far,
    .groups = groups};
