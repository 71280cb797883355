/*
 * Gives each tensor of each operator in turn the least aligned legal address, and the least aligned
 * legal strides, while all others are packed and aligned. The emulator reports a kernel that uses
 * vector loads because only the other tensors allow them. Extents are chosen so that a row is a
 * whole number of vectors. Also tests one query in one batch, whose strides have no meaning,
 * including kernels that use tensor maps.
 *
 *     emu_odd        SMELT_TEST_SEED repeats a run
 */
#include <stdio.h>

#include "../unit/random.h"
#include "harness/check.h"
#include "harness/emulated.h"
#include "smelt/smelt.h"

static const struct {
    const char *arch, *spec;
    struct smelt__problem_options problem;
} cases[] = {
#define EXTENTS .tokens = 2, .rows = 48
    {"sm_80",
     "sparse_attn:heads=8,dqk=64,dv=64,topk=32,sink=1",
     {EXTENTS, .width = 32, .topk_length = 1}},
    {"sm_80",
     "sparse_attn:heads=8,dqk=64,dv=64,topk=32,sink=1,passes=backward",
     {EXTENTS, .width = 32, .topk_length = 1}},
    {"sm_80", "sparse_scores:heads=8,dqk=64,dv=64,topk=32", {EXTENTS, .width = 32}},
    {"sm_80", "indexer_windows", {EXTENTS}},
    {"sm_89", "indexer_quantize:dim=64", {EXTENTS}},
    {"sm_80", "indexer_logits:heads=4,dim=64,dtype=bf16", {EXTENTS}},
    {"sm_80", "indexer_clean", {EXTENTS}},
    {"sm_89", "indexer_topk:heads=4,dim=64,dtype=fp8,topk=16", {EXTENTS, .max_logits = 1}},
    {"sm_80", "topk_select:topk=16", {EXTENTS, .max_logits = 1}},
    {"sm_80", "indexer_scores:heads=4,dim=64,topk=32", {EXTENTS, .width = 32}},
    {"sm_80", "indexer_loss:topk=32", {EXTENTS, .width = 32}},
    {"sm_80", "indexer_bwd:heads=4,dim=64,topk=32", {EXTENTS, .width = 32}},
    {"sm_90a", "sparse_attn:heads=64,dqk=512,dv=512,topk=64", {.rows = 48, .tokens = 1}},
    {"sm_90a",
     "sparse_attn:heads=64,dqk=512,dv=512,topk=64,passes=backward",
     {.rows = 48, .tokens = 1}},
    {"sm_90a", "sparse_scores:heads=64,dqk=512,dv=512,topk=64", {.rows = 48, .tokens = 1}},
    {"sm_90a", "indexer_logits:heads=8,dim=64,dtype=fp8", {.rows = 48, .tokens = 1}},
    {"sm_90a", "indexer_topk:heads=8,dim=64,dtype=bf16,topk=16", {.rows = 48, .tokens = 1}},
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

static int check_all(smelt_context *context, int number, uint64_t seed) {
    const struct smelt__schedule schedule = smelt__schedule_at(seed, 0);
    struct smelt__check_options options = {.spec = cases[number].spec,
                                           .problem = cases[number].problem,
                                           .schedules = &schedule,
                                           .schedule_count = 1};
    const int alone = options.problem.tokens == 1;
    const int tensors = alone ? 0 : count_tensors(options.spec);
    int failures = tensors == 0 && !alone;
    for (int odd = 0; odd <= 2 * tensors; odd++) {
        struct smelt__check_result result;
        options.problem = cases[number].problem;
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
    printf("%-6s %-60s %d tensors\n", cases[number].arch, options.spec, tensors);
    return failures;
}

int main(void) {
    struct random random = random_begin("emu_odd");
    int failures = !smelt__emulator();
    for (int i = 0; i < CASES && smelt__emulator(); i++) {
        smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
        smelt_context *context = NULL;
        options.kind = SMELT_CONTEXT_DEVICE;
        options.cache_disable = 1;
        smelt__emulator_configure(cases[i].arch, smelt__schedule_at(0, 0), 0);
        failures += smelt_context_create(&context, &options) != SMELT_OK ||
                    check_all(context, i, random_next(&random) >> 32);
        smelt_context_destroy(&context);
    }
    return failures > 0;
}
