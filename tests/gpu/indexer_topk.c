/* indexer_topk's cases of the GPU suite. */
#include <stdio.h>

#include "harness/random.h"
#include "indexer_topk_groups.h"

/* ---- matrix: heads, types, topk and orders with windows and sizes in turn -------------------- */

static const char *const all_specs[] = {
    "indexer_topk:heads=3,dim=128,dtype=bf16,topk=100",
    "indexer_topk:heads=32,dim=128,dtype=fp8,topk=200,order=score",
    "indexer_topk:heads=64,dim=128,dtype=fp8,topk=512",
    "indexer_topk:heads=8,dim=64,dtype=bf16,topk=1,logits=bf16",
    "indexer_topk:heads=16,dim=64,dtype=fp8,topk=2048",
    "indexer_topk:heads=128,dim=128,dtype=bf16,topk=4096,order=score",
    "indexer_topk:heads=32,dim=128,dtype=fp8,weights_dtype=bf16,topk=2048",
    "indexer_topk:heads=32,dim=128,dtype=bf16,topk=512,expand=4,tail=1",
    "indexer_topk:heads=64,dim=128,dtype=fp8,topk=512,publish=700,publish_block=8,publish_pinned=1",
    "indexer_topk:heads=64,dim=128,dtype=fp8,topk=512,candidate_block=8",
    "indexer_topk:heads=64,dim=128,dtype=fp8,topk=128,block_max=4,candidate_block=32,logits=bf16",
    "indexer_topk:heads=32,dim=128,dtype=fp8,topk=512,logits=bf16",
    "indexer_topk:heads=4,dim=128,dtype=bf16,weights=0,groups=4,topk=16,block_max=64,candidate_"
    "block="
    "128,logits=bf16,expand=2",
    "indexer_topk:heads=4,dim=128,dtype=bf16,weights=0,topk=512,expand=4,tail=1",
    "indexer_topk:heads=4,dim=128,dtype=bf16,activation=none,weights=0,groups=4,block_max=128,topk="
    "16,"
    "pinned=1",
    "indexer_topk:heads=8,dim=64,dtype=fp8,groups=2,block_max=2,topk=100,pinned=3,expand=2,publish="
    "60,"
    "publish_block=4",
};
static const char *const quick_specs[] = {
    "indexer_topk:heads=3,dim=64,dtype=bf16,weights_dtype=bf16,topk=100",
    "indexer_topk:heads=4,dim=64,dtype=fp8,topk=30,order=score,logits=bf16",
    "indexer_topk:heads=4,dim=64,dtype=bf16,groups=2,topk=20,pinned=2,expand=4,tail=1",
    ("indexer_topk:heads=4,dim=64,dtype=bf16,weights=0,activation=none,block_max=4,topk=9,"
     "publish=12,publish_block=8,publish_pinned=1"),
    "indexer_topk:heads=4,dim=64,dtype=bf16,candidate_block=8,topk=30,expand=2",
    ("indexer_topk:heads=4,dim=64,dtype=bf16,groups=2,block_max=4,candidate_block=16,topk=20,"
     "logits=bf16"),
};
static const enum smelt__lists kinds[] = {
    SMELT__LISTS_RANDOM, SMELT__LISTS_CAUSAL, SMELT__LISTS_ADVERSARIAL, SMELT__LISTS_FULL,
    SMELT__LISTS_PACKED, SMELT__LISTS_WINDOW, SMELT__LISTS_LOG};

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const int specs = suite->quick ? COUNT(quick_specs) : COUNT(all_specs);
    struct smelt__problem_options *problem = &one->problem;
    struct smelt__random random = smelt__random_at(suite->seed, 9, (uint64_t)number);
    const int kind = suite->quick ? number : number / specs; /* quick: the specs take turns */
    if (kind >= COUNT(kinds))
        return 0;
    snprintf(one->spec, sizeof one->spec, "%s",
             (suite->quick ? quick_specs : all_specs)[number % specs]);
    one->sample = suite->quick ? 8 : 24;
    problem->seed = suite->seed * 1000 + (uint64_t)number;
    problem->tokens = PICK(&random, 1, 9, 130, 333);
    problem->rows = PICK(&random, 1, 130, 5000, 40001);
    problem->lists = kinds[kind];
    problem->strided = number % 3 == 1;
    problem->topk_length = (int)smelt__random_below(&random, 2);
    problem->max_logits = (int)smelt__random_below(&random, 2);
    if (suite->emulated) {
        problem->tokens = problem->tokens > 11 ? 11 : problem->tokens;
        problem->rows = problem->rows > 600 ? 600 : problem->rows;
    }
    return 1;
}

/* ---- offsets beyond 32 bits ------------------------------------------------------------------ */

/* T x topk and T x H x D exceed 2^31 elements; windows that need the most memory. */
static const struct suite_case large[] = {
    SUITE_CASE("large: indexer_topk, T x topk above 2^31",
               "indexer_topk:heads=4,dim=64,dtype=fp8,topk=4096", 16, .tokens = 530000,
               .rows = 5000),
    SUITE_CASE("large: indexer_topk, T x H x D above 2^31",
               "indexer_topk:heads=128,dim=128,dtype=fp8,topk=64", 16, .tokens = 140000,
               .rows = 300),
    SUITE_CASE("large: indexer_topk, S of 2^20",
               "indexer_topk:heads=8,dim=128,dtype=bf16,topk=2048", 16, .tokens = 70,
               .rows = 1 << 20),
    {.name = NULL},
};

/* ---- strides of billions ---------------------------------------------------------------------- */

#define FAR(dtype, length)                                                                         \
    SUITE_FAR("indexer_topk:heads=4,dim=64,topk=20,dtype=" dtype, .tokens = 5, .rows = 200,        \
              .lists = SMELT__LISTS_FULL, .topk_length = (length))
static const struct suite_case far[] = {FAR("fp8", 1), FAR("bf16", 0), {.spec = ""}};

/* ---- the row --------------------------------------------------------------------------------- */

static const char *const launches[] = {
    "indexer_topk:heads=16,dim=128,dtype=bf16,topk=100",
    "indexer_topk:heads=16,dim=128,dtype=fp8,topk=100,order=score",
    NULL,
};

static const struct suite_group groups[] = {{"two-steps", run_two_steps},
                                            {"chain", run_choosing_chain},
                                            {"no keys", run_without_keys},
                                            {NULL, NULL}};

const struct suite_operator suite_operator_indexer_topk = {
    .matrix = matrix_case,
    .large = large,
    .launches = launches,
    .launch = {.tokens = 200, .rows = 3000},
    .quick_launch = {.tokens = 9, .rows = 300},
    .far = far,
    .groups = groups};
