/* Shapes at their edges, and offsets beyond 32 bits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/sparse_attn.h"
#include "suite.h"

static const char SPEC[] = "sparse_attn:heads=16,dqk=576,dv=512,topk=100";

struct large {
    const char *name, *spec;
    int64_t tokens, rows;
};

/* Rows times dqk, and queries times heads times dqk and dv, pass 2^31 elements. */
static const struct large large_cases[] = {
    {"large: S above 2^22", "sparse_attn:heads=16,dqk=128,dv=64,topk=640", 64, (1 << 22) + 7},
    {"large: S x dqk above 2^31", "sparse_attn:heads=16,dqk=576,dv=512,topk=640", 32,
     (1 << 22) + 7},
    {"large: T x H x dqk above 2^31", "sparse_attn:heads=128,dqk=576,dv=512,topk=64", 33000, 4096},
};

void run_large(struct suite *suite) {
    for (size_t i = 0; i < sizeof large_cases / sizeof large_cases[0] && !suite->quick; i++) {
        struct smelt__check_result result;
        if (suite->emulated) {
            suite_skip(suite, large_cases[i].name,
                       "too much work for the emulator; far cases take its place");
            continue;
        }
        struct smelt__check_options options = {.spec = large_cases[i].spec, .sample = 64};
        if (!suite_wants(suite, large_cases[i].name))
            continue;
        options.problem.seed = suite->seed;
        options.problem.tokens = large_cases[i].tokens;
        options.problem.rows = large_cases[i].rows;
        options.problem.max_logits = 1;
        smelt__check_run(suite->context, &options, &result);
        suite_report(suite, large_cases[i].name, result.passed ? NULL : result.message);
    }
}

/* Strides of billions: every product of an index and a stride passes 2^32 elements. */
void run_far(struct suite *suite) {
    static const char *const specs[] = {
        "sparse_attn:heads=16,dqk=576,dv=512,topk=100",
        "sparse_attn:heads=128,dqk=64,dv=64,topk=40,sink=1",
    };
    for (int i = 0; i < 8 && suite->emulated; i++) {
        char name[256];
        struct smelt__check_result result;
        struct smelt__schedule schedule = smelt__schedule_at(suite->seed, i);
        struct smelt__check_options options = {
            .spec = specs[i / 4], .schedules = &schedule, .schedule_count = 1};
        options.problem.seed = suite->seed + (uint64_t)i;
        options.problem.batches = 2;
        options.problem.tokens = 4;
        options.problem.rows = 300;
        options.problem.lists = (enum smelt__lists)(i % 4);
        options.problem.query_list = (enum smelt__query_list)((i + i / 4) % 4);
        options.problem.topk_length = options.problem.max_logits = options.problem.far = 1;
        snprintf(name, sizeof name, "far: %s, %s lists", options.spec,
                 smelt__lists_names[options.problem.lists]);
        if (!suite_wants(suite, name))
            continue;
        smelt__check_run(suite->context, &options, &result);
        suite_report(suite, name, result.passed ? NULL : result.message);
    }
}

/* ---- edges ----------------------------------------------------------------------------------- */

typedef void (*edge_function)(struct smelt__problem *problem, smelt_sparse_attn_args *args);

static void compute_nothing(struct smelt__problem *problem) {
    static uint8_t none[4096]; /* no query is listed; more than a workload here has */
    problem->computed = 0;
    problem->listed = none;
}

static void no_tokens(struct smelt__problem *problem, smelt_sparse_attn_args *args) {
    args->tokens = 0;
    compute_nothing(problem);
}

/* 0 batches count as one. */
static void one_batch(struct smelt__problem *problem, smelt_sparse_attn_args *args) {
    static uint8_t first[4096];
    args->batches = 0;
    for (int64_t query = 0; query < args->tokens; query++)
        first[query] = 1;
    problem->computed = args->tokens;
    problem->listed = first;
}

static void no_capacity(struct smelt__problem *problem, smelt_sparse_attn_args *args) {
    args->queries.data = args->indices.data; /* not to be read */
    args->query_capacity = 0;
    compute_nothing(problem);
}

/* Every slot is out of range then, whatever it holds. */
static void no_rows(struct smelt__problem *problem, smelt_sparse_attn_args *args) {
    smelt_sparse_attn_args *host = problem->args;
    host->rows = args->rows = 0;
    args->kv.data = NULL;
}

static void narrow(struct smelt__problem *problem, smelt_sparse_attn_args *args) {
    smelt_sparse_attn_args *host = problem->args;
    const int64_t stride = host->width;
    host->width = args->width = 1; /* a longer row's first slot */
    host->indices.strides[1] = args->indices.strides[1] = stride;
    host->indices.strides[0] = args->indices.strides[0] = stride * host->tokens;
}

static const struct {
    const char *name;
    edge_function edit;
} edges[] = {
    {"boundaries: no tokens", no_tokens},
    {"boundaries: no number of batches", one_batch},
    {"boundaries: empty query list", no_capacity},
    {"boundaries: no rows", no_rows},
    {"boundaries: width 1 of a longer row", narrow},
};

static void run_edge(struct suite *suite, edge_function edit, char *message, size_t size) {
    struct workload workload;
    struct smelt__problem_options options = {
        .seed = suite->seed, .batches = 2, .tokens = 6, .rows = 500, .max_logits = 1};
    if (workload_open(&workload, suite, SPEC, &options, message, size) != 0)
        return;
    edit(&workload.problem, workload.placed.args);
    if (suite_ok(smelt__placed_survey(&workload.placed), "survey", message, size) == 0 &&
        suite_ok(smelt__placed_run(&workload.placed, workload.object, NULL), "forward", message,
                 size) == 0)
        workload_judge(&workload, message, size);
    workload.problem.listed = NULL;
    workload_close(&workload);
}

void run_boundaries(struct suite *suite) {
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        char message[1024] = "";
        if (!suite_wants(suite, edges[i].name))
            continue;
        run_edge(suite, edges[i].edit, message, sizeof message);
        suite_report(suite, edges[i].name, message);
    }
}
