/* indexer_dense_loss in the GPU suite: what its cases are. */
#include <stdio.h>

#include "harness/random.h"
#include "ops/indexer_dense_loss_table.h"
#include "suite.h"

enum { LOSS_ALONE, WEIGHTED, EACH_LOSS }; /* the operator's own options */

static const char *const shapes[] = {
    "heads=64,dqk=576,index_heads=64,index_dim=128",
    "heads=5,dqk=80,index_heads=3,index_dim=32",
    "heads=128,dqk=512,index_heads=32,index_dim=128,deterministic=1",
    "heads=64,dqk=128,kv_heads=4,index_heads=8,index_dim=128",
    "heads=24,dqk=256,kv_heads=2,index_heads=1,index_dim=128,deterministic=1",
    "heads=16,dqk=192,index_heads=128,index_dim=64,weights_dtype=bf16",
    "heads=48,dqk=256,index_heads=8,index_dim=64,scores.variant=sm90,scores.slabs=1,scores.stages="
    "3",
    "heads=192,dqk=592,index_heads=16,index_dim=64,scores.item_tiles=1",
    "heads=12,dqk=64,kv_heads=12,index_heads=5,index_dim=128,main.exact_groups=1,deterministic=1",
    "heads=64,dqk=512,index_heads=32,index_dim=128,granularity=4",
    "heads=64,dqk=128,kv_heads=4,index_heads=4,index_dim=128,groups=4,block_max=128,activation="
    "none",
    "heads=12,dqk=64,kv_heads=2,index_heads=12,index_dim=64,groups=6,granularity=2,deterministic=1",
    "heads=16,dqk=64,index_heads=64,index_dim=64,block_max=16,deterministic=1",
};
static const enum smelt__lists kinds[] = {SMELT__LISTS_CAUSAL, SMELT__LISTS_RANDOM,
                                          SMELT__LISTS_ADVERSARIAL, SMELT__LISTS_FULL,
                                          SMELT__LISTS_PACKED};

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const int small = suite->quick || suite->emulated;
    struct smelt__problem_options *problem = &one->problem;
    struct smelt__random random = smelt__random_at(suite->seed, 43, (uint64_t)number);
    if (number >= COUNT(shapes) * (small ? 1 : 5))
        return 0;
    snprintf(one->spec, sizeof one->spec, "indexer_dense_loss:%s", shapes[number % COUNT(shapes)]);
    one->sample = 24;
    problem->seed = suite->seed * 1000 + (uint64_t)number;
    problem->tokens = small ? PICK(&random, 1, 3, 5) : PICK(&random, 1, 9, 130, 200);
    problem->rows = small ? PICK(&random, 1, 100, 150) : PICK(&random, 1, 130, 500, 700);
    problem->lists = kinds[number % COUNT(kinds)];
    problem->strided = number % 3 == 1;
    problem->dkv = (enum smelt__dkv)smelt__random_below(&random, 3);
    problem->own[LOSS_ALONE] = number % 7 == 6;
    problem->own[WEIGHTED] = smelt__random_below(&random, 2);
    problem->own[EACH_LOSS] = smelt__random_below(&random, 2);
    if (!small && number % 4 == 3) /* several chunks */
        problem->workspace_limit = 1 << 20;
    return 1;
}

static const char *const launches[] = {
    "indexer_dense_loss:heads=16,dqk=128,index_heads=8,index_dim=64", NULL};

static const struct suite_case far[] = {
    SUITE_FAR("indexer_dense_loss:heads=4,dqk=64,kv_heads=2,index_heads=3,index_dim=64",
              .tokens = 5, .rows = 100, .own = {[WEIGHTED] = 1, [EACH_LOSS] = 1}),
    {.spec = ""},
};

const struct suite_operator suite_operator_indexer_dense_loss = {
    .matrix = matrix_case,
    .launches = launches,
    .launch = {.tokens = 100, .rows = 1000},
    .quick_launch = {.tokens = 3, .rows = 70},
    .far = far};
