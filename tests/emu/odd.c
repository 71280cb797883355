/*
 * Gives each tensor of each operator in turn the smallest legal alignment of its address and of its
 * strides, while all others are packed and aligned. The emulator reports a kernel that uses vector
 * loads because only the other tensors allow them. Extents are chosen so that a row is a whole
 * number of vectors. Also tests one query in one batch, whose strides have no meaning, including
 * kernels that use tensor maps.
 *
 *     emu_odd        SMELT_TEST_SEED repeats a run
 */
#include <stdio.h>

#include "../unit/random.h"
#include "harness/check.h"
#include "harness/emulated.h"
#include "smelt/smelt.h"

struct odd_case {
    const char *arch, *spec;
    struct smelt__problem_options problem;
};

/* Other operators are tested with their example. */
static const struct odd_case cases[] = {
#define EXTENTS .tokens = 2, .rows = 48
    {"sm_80",
     "sparse_attn:heads=8,dqk=64,dv=64,topk=32,sink=1",
     {EXTENTS, .width = 32, .topk_length = 1}},
    {"sm_80",
     "sparse_attn:heads=8,dqk=64,dv=64,topk=32,sink=1,passes=backward",
     {EXTENTS, .width = 32, .topk_length = 1}},
    {"sm_80", "sparse_scores:heads=8,dqk=64,dv=64,topk=32", {EXTENTS, .width = 32}},
    {"sm_89", "quantize:dim=64", {EXTENTS}},
    {"sm_80",
     "sparse_gqa:heads=8,kv_heads=2,dqk=64,dv=64,topk=4,granularity=16,lists=kv,sink=1",
     {EXTENTS, .width = 4, .topk_length = 1, .own = {1}}},
    {"sm_80",
     "sparse_gqa_scores:heads=8,kv_heads=2,dqk=64,topk=4,granularity=16",
     {EXTENTS, .width = 4, .own = {1}}},
    {"sm_80", "indexer_logits:heads=4,dim=64,dtype=bf16", {EXTENTS}},
    {"sm_89", "indexer_topk:heads=4,dim=64,dtype=fp8,topk=20", {EXTENTS, .max_logits = 1}},
    {"sm_80", "topk_select:topk=20", {EXTENTS, .max_logits = 1}},
    /* 1024 elements from a vector boundary on have a warp, more of them a block. */
    {"sm_90a",
     "topk_select:topk=40,groups=2,pinned=3",
     {.tokens = 2, .rows = 1024, .max_logits = 1}},
    {"sm_80",
     "topk_select:topk=8,dtype=bf16,groups=2,pinned=1,expand=4,tail=1",
     {EXTENTS, .max_logits = 1}},
    {"sm_80",
     "indexer_scores:heads=4,dim=64,topk=32",
     {EXTENTS, .width = 32, .topk_length = 1, .own = {1}}},
    {"sm_80", "indexer_loss:topk=32", {EXTENTS, .width = 32}},
    {"sm_80",
     "indexer_bwd:heads=4,dim=64,topk=32",
     {EXTENTS, .width = 32, .topk_length = 1, .own = {1}}},
    {"sm_80", "dense_lse:heads=4,dqk=64,kv_heads=2,stages=14", {EXTENTS}},
    {"sm_90a", "dense_lse:heads=4,dqk=64,kv_heads=2", {.rows = 48, .tokens = 1}},
    {"sm_80",
     "indexer_dense_loss:heads=4,dqk=64,kv_heads=2,index_heads=4,index_dim=64,groups=2,block_max=8",
     {EXTENTS, .own = {0, 1, 1}}},
    {"sm_90a",
     "indexer_dense_loss:heads=4,dqk=64,index_heads=8,index_dim=64",
     {.rows = 48, .tokens = 1}},
    {"sm_90a", "sparse_attn:heads=64,dqk=512,dv=512,topk=64", {.rows = 48, .tokens = 1}},
    {"sm_90a",
     "sparse_attn:heads=64,dqk=512,dv=512,topk=64,passes=backward",
     {.rows = 48, .tokens = 1}},
    {"sm_90a", "sparse_scores:heads=64,dqk=512,dv=512,topk=64", {.rows = 48, .tokens = 1}},
    {"sm_90a", "indexer_logits:heads=8,dim=64,dtype=fp8", {.rows = 48, .tokens = 1}},
    {"sm_90a", "indexer_topk:heads=8,dim=64,dtype=bf16,topk=20", {.rows = 48, .tokens = 1}},
    {"sm_90a", "indexer_scores:heads=64,dim=64,topk=32", {.rows = 48, .tokens = 1}},
    {"sm_90a", "indexer_bwd:heads=64,dim=64,topk=32", {.rows = 48, .tokens = 1}},
};

enum { CASES = sizeof cases / sizeof cases[0] };

/* Tensors of the pass that the spec has. */
static int count_tensors(const char *text) {
    struct smelt__harness_spec spec;
    const int good = smelt__harness_spec_parse(&spec, text) == SMELT_OK;
    const struct smelt__harness_pass *pass = good ? smelt__harness_spec_pass(&spec, 0) : NULL;
    const int count = pass ? pass->tensors->count : 0;
    smelt__harness_spec_free(&spec);
    return count;
}

static int check_all(smelt_context *context, const struct odd_case *one, uint64_t seed) {
    const struct smelt__schedule schedule = smelt__schedule_at(seed, 0);
    struct smelt__check_options options = {
        .spec = one->spec, .problem = one->problem, .schedules = &schedule, .schedule_count = 1};
    const int alone = options.problem.tokens == 1;
    const int tensors = alone ? 0 : count_tensors(options.spec);
    int failures = tensors == 0 && !alone;
    for (int odd = 0; odd <= 2 * tensors; odd++) {
        struct smelt__check_result result;
        options.problem = one->problem;
        options.problem.seed = seed;
        options.problem.odd = odd;
        if (odd == 0) {
            options.problem.strided = 1;
            options.problem.tokens = 1;
        }
        if (smelt__check_run(context, &options, &result) == 0)
            continue;
        failures++;
        printf("FAILED %s: %s\n", options.spec, result.message);
    }
    printf("%-6s %-60s %d tensors\n", one->arch, options.spec, tensors);
    return failures;
}

static int run_case(const struct odd_case *one, struct random *random) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_context *context = NULL;
    options.kind = SMELT_CONTEXT_DEVICE;
    options.cache_disable = 1;
    smelt__emulator_configure(one->arch, smelt__schedule_at(0, 0), 0);
    const int failures = smelt_context_create(&context, &options) != SMELT_OK ||
                         check_all(context, one, random_next(random) >> 32);
    smelt_context_destroy(&context);
    return failures;
}

static int is_listed(const struct smelt__harness_operator *op) {
    for (int i = 0; i < CASES; i++)
        if (smelt__harness_find(cases[i].spec) == op)
            return 1;
    return 0;
}

int main(void) {
    struct random random = random_begin("emu_odd");
    int failures = !smelt__emulator();
    for (int i = 0; i < CASES && smelt__emulator(); i++)
        failures += run_case(&cases[i], &random);
    for (int i = 0; smelt__harness_operators[i] && smelt__emulator(); i++) {
        smelt_family_info info = SMELT_FAMILY_INFO_INIT;
        if (is_listed(smelt__harness_operators[i]))
            continue;
        failures += smelt_family_get_info(smelt__harness_operators[i]->name, &info) != SMELT_OK ||
                    run_case(&(struct odd_case){"sm_80", info.example, {EXTENTS}}, &random);
    }
    return failures > 0;
}
