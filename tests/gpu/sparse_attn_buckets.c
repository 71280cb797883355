/* The bucketed operator has the plain operator's results for any lengths of queries. */
#include <stdio.h>
#include <string.h>

#include "harness/attention.h"
#include "ops/sparse_attn_table.h"
#include "sparse_attn_groups.h"

/* A bucketed operator, and whether each of its kernels has the plain one's plan (true for heads as
 * rows and mma; the plan for few heads depends on topk). */
static const struct {
    const char *plain, *buckets;
    int same_plan;
} operators[] = {
    {"sparse_attn:heads=16,dqk=128,dv=64,topk=200", ",buckets=16/64/128", 1},
    {"sparse_attn:heads=64,dqk=576,dv=512,topk=640", ",buckets=auto", 1},
    {"sparse_attn:heads=8,dqk=576,dv=512,topk=2048", ",buckets=auto", 0},
    {"sparse_attn:heads=128,dqk=512,dv=512,topk=1152,sink=1", ",buckets=64/65/512/4096", 1},
    {"sparse_attn:heads=64,dqk=576,dv=512,topk=640", ",buckets=100/200,variant=mma", 0},
    {"sparse_attn:heads=7,dqk=192,dv=128,topk=65,sink=1", ",buckets=1/2/3/4/63/64", 1},
};

/* Changes of the problem's index rows. */
enum edit { AS_MADE, ALL_EMPTY, ALL_FULL, ONE_LONG, ONE_SHORT, NO_MIDDLE };

static const struct {
    const char *name;
    enum edit edit;
    struct smelt__problem_options problem;
} mixes[] = {
    {"causal", AS_MADE, {.lists = SMELT__LISTS_CAUSAL, .documents = 3}},
    {"packed, in 3 batches", AS_MADE, {.lists = SMELT__LISTS_PACKED, .batches = 3}},
    {"log-uniform lengths", AS_MADE, {.lists = SMELT__LISTS_LOG}},
    {"anything anywhere", AS_MADE, {.lists = SMELT__LISTS_ADVERSARIAL, .topk_length = 1}},
    {"scattered, strided", AS_MADE, {.lists = SMELT__LISTS_RANDOM, .valid = 40, .strided = 1}},
    {"a query list", AS_MADE, {.lists = SMELT__LISTS_LOG, .query_list = SMELT__QUERY_LIST_PARTIAL}},
    {"a list too long",
     AS_MADE,
     {.lists = SMELT__LISTS_LOG, .query_list = SMELT__QUERY_LIST_CLAMPED}},
    {"an empty list", AS_MADE, {.lists = SMELT__LISTS_LOG, .query_list = SMELT__QUERY_LIST_EMPTY}},
    {"all empty", ALL_EMPTY, {.lists = SMELT__LISTS_RANDOM}},
    {"all full", ALL_FULL, {.lists = SMELT__LISTS_RANDOM}},
    {"one long, the others empty", ONE_LONG, {.lists = SMELT__LISTS_RANDOM}},
    {"one empty, the others full", ONE_SHORT, {.lists = SMELT__LISTS_RANDOM}},
    {"the middle buckets empty", NO_MIDDLE, {.lists = SMELT__LISTS_RANDOM}},
};

enum { OPERATORS = sizeof operators / sizeof operators[0], MIXES = sizeof mixes / sizeof mixes[0] };

static int keeps_row(enum edit edit, int64_t query) {
    switch (edit) {
    case ALL_EMPTY:
        return 0;
    case ONE_LONG:
        return query == 1;
    case ONE_SHORT:
        return query != 1;
    default:
        return 1;
    }
}

/* Masks whole rows, or all slots of a row except the last, in a packed problem. */
static void edit_rows(struct smelt__problem *problem, enum edit edit) {
    const int64_t width = problem->options.width;
    int32_t *const indices = smelt__problem_data(problem, SMELT__SPARSE_ATTN_INDICES);
    if (edit == AS_MADE)
        return;
    for (int64_t query = 0; query < problem->options.batches * problem->options.tokens; query++)
        for (int64_t i = 0; i < width; i++) {
            const int short_one = edit == NO_MIDDLE && query % 2 == 0 && i != width - 1;
            if (!keeps_row(edit, query) || short_one)
                indices[query * width + i] = i % 2 ? -1 : INT32_MAX;
        }
}

static int same_bits(const struct smelt__placed *a, const struct smelt__placed *b, int64_t query) {
    const struct smelt__attention_spec *spec = a->problem->spec;
    for (int head = 0; head < spec->heads; head++) {
        const float lse[2] = {smelt__placed_lse(a, query, head), smelt__placed_lse(b, query, head)};
        const float most[2] = {smelt__placed_max_logit(a, query, head),
                               smelt__placed_max_logit(b, query, head)};
        if (memcmp(&lse[0], &lse[1], sizeof lse[0]) != 0 ||
            memcmp(&most[0], &most[1], sizeof most[0]) != 0 ||
            memcmp(smelt__placed_out(a, query, head), smelt__placed_out(b, query, head),
                   (size_t)spec->dv * sizeof(uint16_t)) != 0)
            return 0;
    }
    return 1;
}

/* The plain operator on the same problem: every bit must be the same. */
static void compare_with_plain(struct suite *suite, struct workload *bucketed, const char *spec,
                               char *message, size_t size) {
    struct workload plain;
    const struct smelt__problem *problem = &bucketed->problem;
    if (workload_open(&plain, suite, spec, &problem->options, message, size) != 0)
        return;
    memcpy(smelt__problem_data(&plain.problem, SMELT__SPARSE_ATTN_INDICES),
           smelt__problem_data(problem, SMELT__SPARSE_ATTN_INDICES),
           smelt__problem_bytes(problem, SMELT__SPARSE_ATTN_INDICES));
    const int good =
        suite_ok(smelt__placed_refresh(&plain.placed), "upload", message, size) == 0 &&
        suite_ok(smelt__placed_run(&plain.placed, plain.object, NULL), "plain", message, size) == 0;
    for (int64_t query = 0; query < problem->options.batches * problem->options.tokens && good;
         query++)
        if ((!problem->listed || problem->listed[query]) && !message[0] &&
            !same_bits(&plain.placed, &bucketed->placed, query))
            snprintf(message, size, "query %lld has other bits than from the plain operator",
                     (long long)query);
    workload_close(&plain);
}

static struct smelt__problem_options mix_options(const struct suite *suite, int number) {
    struct smelt__problem_options options = mixes[number].problem;
    const int small = suite->quick || suite->emulated;
    options.seed = suite->seed + (uint64_t)number;
    options.tokens = suite->emulated ? 5 : small ? 7 : 150;
    options.rows = small ? 500 : 5000;
    options.max_logits = 1;
    return options;
}

static void run_mix(struct suite *suite, int number, int mix, char *message, size_t size) {
    struct workload workload;
    char spec[256];
    const struct smelt__problem_options options = mix_options(suite, mix);
    const int plain_too = operators[number].same_plan && !suite->knobs;
    snprintf(spec, sizeof spec, "%s%s", operators[number].plain, operators[number].buckets);
    if (workload_open(&workload, suite, spec, &options, message, size) != 0)
        return;
    edit_rows(&workload.problem, mixes[mix].edit);
    if (suite_ok(smelt__placed_refresh(&workload.placed), "upload", message, size) == 0 &&
        suite_ok(smelt__placed_run(&workload.placed, workload.object, NULL), "forward", message,
                 size) == 0) {
        if (plain_too)
            compare_with_plain(suite, &workload, operators[number].plain, message, size);
        if (!message[0])
            workload_judge(&workload, message, size);
    }
    workload_close(&workload);
}

/* Rows wider than topk: only the number of valid slots matters; beyond topk of them, the first topk
 * are used. */
static void run_wide(struct suite *suite, int64_t valid, char *message, size_t size) {
    struct workload workload;
    const struct smelt__problem_options options = {.seed = suite->seed,
                                                   .tokens = 5,
                                                   .rows = 1000,
                                                   .width = 300,
                                                   .valid = valid,
                                                   .batches = 2,
                                                   .max_logits = 1};
    if (workload_open(&workload, suite, "sparse_attn:heads=16,dqk=128,dv=64,topk=100,buckets=16/64",
                      &options, message, size) != 0)
        return;
    if (suite_ok(smelt__placed_run(&workload.placed, workload.object, NULL), "forward", message,
                 size) == 0)
        workload_judge(&workload, message, size);
    workload_close(&workload);
}

void run_buckets(struct suite *suite) {
    static const int64_t valid[] = {7, 100, 101, 300};
    const int small = suite->quick || suite->emulated;
    char name[256], message[1024];
    for (int i = 0; i < (small ? 1 : OPERATORS); i++)
        for (int k = 0; k < MIXES; k++) {
            message[0] = '\0';
            snprintf(name, sizeof name, "buckets: %s%s, %s", operators[i].plain,
                     operators[i].buckets, mixes[k].name);
            if (!suite_wants(suite, name))
                continue;
            run_mix(suite, i, k, message, sizeof message);
            suite_report(suite, name, message);
        }
    for (size_t i = 0; i < sizeof valid / sizeof valid[0]; i++) {
        message[0] = '\0';
        snprintf(name, sizeof name, "buckets: %d of 300 slots valid, topk 100", (int)valid[i]);
        if (!suite_wants(suite, name))
            continue;
        run_wide(suite, valid[i], message, sizeof message);
        suite_report(suite, name, message);
    }
}
