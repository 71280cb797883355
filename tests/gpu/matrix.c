/* Heads x topk x widths, each with several kinds of lists and everything else in turn: not the full
 * product, but every value meets every other's neighbourhood. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/random.h"
#include "suite.h"

static const int all_heads[] = {1, 7, 8, 16, 24, 32, 64, 128, 192};
static const int all_topk[] = {1, 63, 64, 65, 100, 640, 2048};
static const int quick_heads[] = {1, 16, 64, 128};
static const int quick_topk[] = {1, 65, 100};
static const struct {
    int dqk, dv;
} main_widths[] = {{576, 512}, {512, 512}},
  other_widths[] = {{64, 64}, {128, 64}, {128, 128}, {192, 128}, {256, 256}, {320, 256}};

enum {
    CASES = 3, /* of each spec of the main widths */
    MOST_CASES = 700,
    SAMPLE = 24,
    SCHEDULES = 4,
    SPEC = 192
};

struct matrix {
    char specs[MOST_CASES][SPEC];
    struct smelt__check_options cases[MOST_CASES];
    struct smelt__schedule schedules[MOST_CASES]; /* on the emulator: a case's own */
    int count;
};

static int64_t pick(struct smelt__random *random, const int64_t *values, int count) {
    return values[smelt__random_below(random, count)];
}

/* To what the emulator does in a second or so. */
static void shrink(struct smelt__problem_options *problem) {
    problem->batches = problem->batches > 2 ? 2 : problem->batches;
    problem->tokens = 3;
    problem->rows = problem->rows > 1000 ? 1000 : problem->rows;
    problem->width = problem->width > 200 ? 200 : problem->width;
}

/* Case number `count`: what cycles does so by that number, the rest is drawn. */
static void add_case(struct matrix *matrix, const struct suite *suite, int heads, int dqk, int dv,
                     int topk, int variation) {
    int number = matrix->count++;
    struct smelt__check_options *options = &matrix->cases[number];
    struct smelt__problem_options *problem = &options->problem;
    struct smelt__random random = smelt__random_at(suite->seed, 0, (uint64_t)number);
    memset(options, 0, sizeof *options);
    int sink = (heads + topk + dqk / 64 + variation) % 2; /* both, over the variations */
    const char *knobs = dv == 512 && suite->knobs ? suite->knobs : "";
    char buckets[64] = "";
    if (number % (suite->quick ? 8 : 4) == 3) /* and rows wider than topk, below */
        snprintf(buckets, sizeof buckets, ",buckets=%d/%d", 1 + topk / 9, 2 + topk / 3);
    snprintf(matrix->specs[number], SPEC, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=%d%s%s%s%s",
             heads, dqk, dv, topk, sink ? ",sink=1" : "", buckets, *knobs ? "," : "", knobs);
    options->spec = matrix->specs[number];
    options->sample = suite->quick ? 4 : SAMPLE;
    problem->seed = suite->seed * 1000 + (uint64_t)number;
    problem->batches = pick(&random, (const int64_t[]){1, 1, 2, 3}, 4);
    matrix->schedules[number] = smelt__schedule_at(problem->seed, number % SCHEDULES);
    options->schedules = &matrix->schedules[number];
    options->schedule_count = 1;
    problem->tokens = suite->quick ? 5 : pick(&random, (const int64_t[]){11, 13, 20, 37}, 4);
    problem->rows = pick(&random, (const int64_t[]){topk / 2 + 3, topk + 1, 4096, 10007}, 4);
    problem->width = number % 3 == 0 ? 1 + smelt__random_below(&random, topk) : topk;
    if (buckets[0] && smelt__random_below(&random, 2) == 0)
        problem->width = topk + 1 + smelt__random_below(&random, topk);
    problem->lists = (enum smelt__lists)((number + variation + (buckets[0] != 0) * number / 4) % 4);
    problem->query_list = (enum smelt__query_list)(number % 9 < 5 ? number % 9 : 0);
    problem->spiky = number % 4 == 1;
    problem->topk_length = smelt__random_below(&random, 3) == 0;
    problem->strided = smelt__random_below(&random, 3) == 0;
    problem->max_logits = (int)smelt__random_below(&random, 2);
    if (smelt__random_below(&random, 8) == 0)
        problem->scale = 0.5F;
    if (suite->emulated)
        shrink(problem);
}

static void add_main(struct matrix *matrix, const struct suite *suite) {
    const int *heads = suite->quick ? quick_heads : all_heads;
    const int *topk = suite->quick ? quick_topk : all_topk;
    int head_count = suite->quick ? 4 : 9, topk_count = suite->quick ? 3 : 7;
    for (int w = 0; w < 2; w++)
        for (int h = 0; h < head_count; h++)
            for (int k = 0; k < topk_count; k++)
                for (int i = 0; i < (suite->quick ? 1 : CASES); i++)
                    add_case(matrix, suite, heads[h], main_widths[w].dqk, main_widths[w].dv,
                             topk[k], i == CASES - 1 ? 1 : 0);
}

static void add_others(struct matrix *matrix, const struct suite *suite) {
    static const int heads[] = {1, 16, 64, 128}, topk[] = {64, 100, 640};
    for (int w = 0; w < 6; w++)
        for (int h = 0; h < 4; h++)
            for (int i = 0; i < (suite->quick ? 0 : 3); i++)
                add_case(matrix, suite, heads[h], other_widths[w].dqk, other_widths[w].dv, topk[i],
                         i % 2);
    if (suite->quick)
        for (int w = 0; w < 6; w++)
            add_case(matrix, suite, heads[w % 4], other_widths[w].dqk, other_widths[w].dv, 100, 0);
}

/* ---- compiling all of it first, on all processors ------------------------------------------- */

struct kernels {
    smelt_kernel_request *requests;
    size_t count, capacity;
};

static int add_kernel(void *user, const char *text) {
    struct kernels *kernels = user;
    for (size_t i = 0; i < kernels->count; i++)
        if (strcmp(kernels->requests[i].spec, text) == 0)
            return 0;
    if (kernels->count == kernels->capacity)
        return -1;
    char *copy = strdup(text);
    kernels->requests[kernels->count] =
        (smelt_kernel_request){.size = sizeof *kernels->requests, .spec = copy};
    kernels->count += copy != NULL;
    return copy ? 0 : -1;
}

static int wanted_case(const struct suite *suite, const struct matrix *matrix, int number,
                       char *name, size_t size) {
    char command[768];
    smelt__problem_command("check", matrix->specs[number], &matrix->cases[number].problem, command,
                           sizeof command);
    snprintf(name, size, "matrix: %s", command + strlen("smelt check "));
    return !suite->filter || strstr(name, suite->filter) != NULL;
}

static void prepare(struct suite *suite, const struct matrix *matrix) {
    char name[768];
    struct kernels kernels = {.capacity = MOST_CASES};
    kernels.requests = calloc(kernels.capacity, sizeof *kernels.requests);
    if (!kernels.requests)
        return; /* then each is compiled when it is met */
    for (int i = 0; i < matrix->count; i++)
        if (wanted_case(suite, matrix, i, name, sizeof name))
            smelt_spec_expand(matrix->specs[i], add_kernel, &kernels);
    if (kernels.count > 0) {
        smelt_status status = smelt_kernels_prepare(suite->context, kernels.requests, kernels.count,
                                                    0, NULL, NULL, NULL);
        printf("       %zu kernels prepared%s%s\n", kernels.count, status ? ": " : "",
               status ? smelt_last_error() : "");
    }
    for (size_t i = 0; i < kernels.count; i++)
        free((void *)(uintptr_t)kernels.requests[i].spec);
    free(kernels.requests);
}

void run_matrix(struct suite *suite) {
    char name[768];
    struct matrix *matrix = calloc(1, sizeof *matrix);
    if (!matrix) {
        suite_report(suite, "matrix", "out of memory");
        return;
    }
    add_main(matrix, suite);
    add_others(matrix, suite);
    if (!suite->list)
        prepare(suite, matrix);
    for (int i = 0; i < matrix->count; i++) {
        struct smelt__check_result result;
        if (!wanted_case(suite, matrix, i, name, sizeof name) || !suite_wants(suite, name))
            continue;
        smelt__check_run(suite->context, &matrix->cases[i], &result);
        suite_report(suite, name, result.passed ? NULL : result.message);
    }
    free(matrix);
}
