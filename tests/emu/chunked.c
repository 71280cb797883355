/*
 * Tests calls that an operator splits into at least three chunks, parts or rounds. The library here
 * is built with small sizes (small_splits/ops/split_sizes.h). The tests cover strides and offsets of later chunks,
 * memory that must be zeroed for each chunk, alternating lists and a shorter last chunk. They use
 * odd strides, several batches where the operator has them, a non-default stream and the second of
 * two devices.
 *
 *     emu_chunked [PART]        cases whose spec contains PART; SMELT_TEST_SEED repeats a run
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/random.h"
#include "harness/check.h"
#include "second_device.h"
#include "smelt/smelt.h"

static const struct chunked {
    const char *arch, *spec;
    int launches; /* minimum per call, for three chunks */
    int runs;     /* runs, with different initial contents of the workspace; fewer for slow cases */
    struct smelt__problem_options problem; /* far: lists of keys are as far apart, too */
} cases[] = {
/* clang-format off */
#define DETERMINISTIC ",passes=backward,deterministic=1"
    /* Lists, rows; per chunk the transposed lists, the main kernel and the sums; finish. */
    {"sm_80", "sparse_attn:heads=8,dqk=64,dv=64,topk=200" DETERMINISTIC, 12, 3,
     {.batches = 3, .tokens = 7, .rows = 40, .width = 190, .topk_length = 1}},
    {"sm_80", "sparse_attn:heads=3,dqk=64,dv=64,topk=130,sink=1,buckets=40/80" DETERMINISTIC, 14, 1,
     {.batches = 2, .tokens = 13, .rows = 50, .width = 130, .dkv = SMELT__DKV_ADD}},
    /* Five chunks, two per round of lists; their sums run concurrently with the next chunk. */
    {"sm_90a", "sparse_attn:heads=24,dqk=512,dv=512,topk=64" DETERMINISTIC, 16, 1,
     {.batches = 3, .tokens = 6, .rows = 60, .width = 32, .dkv = SMELT__DKV_FP32}},
    {"sm_90a", "sparse_attn:heads=128,dqk=512,dv=512,topk=64" DETERMINISTIC, 11, 1,
     {.batches = 2, .tokens = 3, .rows = 30, .width = 64, .workspace_limit = 2 << 16}},
    /* Rows, three kernels of the index, dq; three ranges of queries; two conversions. */
    {"sm_90a", "sparse_gqa:heads=6,kv_heads=2,dqk=64,dv=64,topk=6,granularity=4,passes=backward", 10, 1,
     {.batches = 2, .tokens = 13, .rows = 50, .width = 6, .topk_length = 1, .dkv = SMELT__DKV_ADD}},
    /* The same with too many queries for exact sums. */
    {"sm_90a", "sparse_gqa:heads=8,kv_heads=2,dqk=64,dv=64,topk=6,granularity=1" DETERMINISTIC, 10, 1,
     {.batches = 2, .tokens = 13, .rows = 50, .width = 6, .topk_length = 1}},
    /* Buckets; more runs of the partition than it prefers. */
    {"sm_90a", "sparse_attn:heads=4,dqk=64,dv=64,topk=48,sink=1,buckets=8/16/32", 6, 3,
     {.batches = 3, .tokens = 29, .rows = 90, .width = 48, .topk_length = 1, .max_logits = 1}},
    /* The second pass of the partition has more entries per thread block than threads. */
    {"sm_80", "sparse_attn:heads=1,dqk=64,dv=64,topk=4,blocks=1,buckets=1/2", 5, 1,
     {.tokens = 1600, .rows = 20, .width = 8}},
    /* Chunks of queries, whose partial results are added; a list of fewer queries. */
    {"sm_90a", "sparse_gqa:heads=4,kv_heads=2,dqk=64,dv=64,topk=3,granularity=64,passes=backward", 30, 1,
     {.batches = 2, .tokens = 26, .rows = 300, .width = 3, .query_list = SMELT__QUERY_LIST_PARTIAL}},
    /* Exact sums: lists; per part three kernels of grains, the main kernel and the totals;
     * finish. */
    {"sm_80", "indexer_bwd:heads=4,dim=64,topk=40,deterministic=1,main.exact_groups=2", 17, 3,
     {.tokens = 18, .rows = 50, .width = 37, .topk_length = 1, .dkv = SMELT__DKV_ADD}},
    {"sm_90a", "indexer_bwd:heads=64,dim=64,topk=40,deterministic=1,main.exact_groups=2", 17, 1,
     {.tokens = 11, .rows = 50, .width = 40}},
    /* Logits and selection per chunk; growing windows, so that chunks shrink. */
    {"sm_80", "indexer_topk:heads=4,dim=64,dtype=bf16,topk=20", 6, 3,
     {.tokens = 50, .rows = 61, .lists = SMELT__LISTS_CAUSAL, .topk_length = 1}},
    {"sm_90a", "indexer_topk:heads=8,dim=64,dtype=fp8,topk=20,order=score", 6, 1,
     {.tokens = 70, .rows = 75, .lists = SMELT__LISTS_CAUSAL, .max_logits = 1, .topk_length = 1}},
    {"sm_90a", "indexer_topk:heads=8,dim=64,dtype=fp8,topk=20", 6, 3,
     {.tokens = 40, .rows = 75, .max_logits = 1, .topk_length = 1}},
    /* Several blocks per row of the selection and their merge; windows below 12289 keys use the
     * merge kernel only. */
    {"sm_80", "topk_select:topk=20", 2, 3, {.tokens = 2, .rows = 13000, .max_logits = 1}},
    {"sm_80", "indexer_topk:heads=4,dim=64,dtype=bf16,topk=20", 9, 1,
     {.tokens = 7, .rows = 13000, .documents = 1, .lists = SMELT__LISTS_CAUSAL, .workspace_limit = 353000,
      .max_logits = 1, .topk_length = 1}},
    /* Lists, masks, gradients and partial rows beyond 2^31 elements. */
#define FAR .far = 1, .rows = 40
    {"sm_80", "sparse_attn:heads=8,dqk=64,dv=64,topk=70" DETERMINISTIC, 12, 1,
     {FAR, .tokens = 16, .width = 70, .workspace_limit = (int64_t)1 << 40}},
    {"sm_90a", "sparse_attn:heads=24,dqk=512,dv=512,topk=40,passes=backward", 4, 1,
     {FAR, .tokens = 19, .width = 40}},
    {"sm_90a", "sparse_attn:heads=24,dqk=512,dv=512,topk=40" DETERMINISTIC, 12, 1,
     {FAR, .tokens = 13, .width = 40, .workspace_limit = (int64_t)1 << 40}},
    {"sm_80", "indexer_bwd:heads=16,dim=64,topk=40,deterministic=1", 6, 1,
     {FAR, .tokens = 37, .width = 37, .topk_length = 1}},
    {"sm_90a", "indexer_bwd:heads=64,dim=64,topk=40,deterministic=1", 6, 1,
     {FAR, .tokens = 19, .width = 37}},
    /* clang-format on */
};

int smelt__split_list_step;

enum { CASES = sizeof cases / sizeof cases[0], MOST_RUNS = 3, FAR_STEP = 1 << 28 };

static uint64_t count_launches(void) {
    struct emu_statistics statistics;
    smelt__emulator()->statistics(&statistics);
    return statistics.launches;
}

static int check(smelt_context *context, const struct chunked *one, uint64_t seed) {
    const struct smelt__schedule schedules[MOST_RUNS] = {
        smelt__schedule_at(seed, 2), smelt__schedule_at(seed, 0), smelt__schedule_at(seed, 1)};
    struct smelt__check_options options = {.spec = one->spec,
                                           .problem = one->problem,
                                           .schedules = schedules,
                                           .schedule_count = one->runs};
    struct smelt__check_result result;
    options.problem.seed = seed;
    options.problem.strided = !options.problem.far;
    smelt__split_list_step = options.problem.far ? FAR_STEP : 64;
    const uint64_t before = count_launches();
    if (smelt__check_run(context, &options, &result) != 0) {
        printf("FAILED %s on %s: %s\n", one->spec, one->arch, result.message);
        return 1;
    }
    const int launches = (int)(count_launches() - before) / one->runs;
    printf("%-7s %-80s %d launches, %.1f s\n", one->arch, one->spec, launches, result.seconds);
    if (launches >= one->launches)
        return 0;
    printf("FAILED: a call has fewer than %d launches: it is not in three chunks\n", one->launches);
    return 1;
}

int main(int argc, char **argv) {
    struct random random = random_begin("emu_chunked");
    const int devices = smelt__emulator() ? second_device_begin() : -1;
    int failures = 0;
    for (int i = 0; i < CASES && devices > 0; i++) {
        const uint64_t seed = random_next(&random) >> 32;
        smelt_context *context = NULL;
        if (argc > 1 && !strstr(cases[i].spec, argv[1]))
            continue;
        if (second_device_context(cases[i].problem.far ? 1 : devices, cases[i].arch, &context) !=
            SMELT_OK)
            break;
        failures += check(context, &cases[i], seed);
        smelt_context_destroy(&context);
    }
    if (devices != 2)
        printf("SMELT_CUDA and SMELT_NVRTC must name the emulator, SMELT_EMU_DEVICES be 2\n");
    return devices != 2 || failures > 0;
}
