/* Boundary shapes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/attention.h"
#include "ops/sparse_attn_table.h"
#include "sparse_attn_groups.h"

static const char SPEC[] = "sparse_attn:heads=16,dqk=576,dv=512,topk=100";

/* ---- edges ----------------------------------------------------------------------------------- */

typedef void (*edge_function)(struct smelt__problem *problem, smelt_sparse_attn_args *args);

static void compute_nothing(struct smelt__problem *problem) {
    static uint8_t none[4096]; /* no query is listed; longer than any workload here */
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

/* Without rows every slot is out of range. */
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

/* The deterministic backward pass divides its queries into chunks of 108, whose sums run
 * concurrently with the next chunk's main kernel. On the emulator, where a query takes a tenth of a
 * second, there are two chunks; the quick suite leaves them to tests/emu/chunked.c, whose chunks are small. */
static void run_chunks(struct suite *suite) {
    struct suite_case one = {
        .name = "boundaries: chunks of the deterministic backward pass",
        .spec = "sparse_attn:heads=64,dqk=512,dv=512,topk=64,passes=backward,deterministic=1",
        .sample = 8,
        .problem = {.seed = suite->seed,
                    .tokens = suite->emulated ? 110 : 1500,
                    .rows = 100,
                    .dkv = SMELT__DKV_ADD}};
    if (!(suite->emulated && suite->quick) && suite_wants(suite, one.name))
        suite_check(suite, one.name, &one, 1);
}

void run_boundaries(struct suite *suite) {
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        char message[1024] = "";
        if (!suite_wants(suite, edges[i].name))
            continue;
        run_edge(suite, edges[i].edit, message, sizeof message);
        suite_report(suite, edges[i].name, message);
    }
    run_chunks(suite);
}
