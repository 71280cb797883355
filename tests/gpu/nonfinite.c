/* NaN and infinity in the inputs of one query, or in a key. They appear in the results of the queries that
 * use them and may affect queries that share a tile with these; all other results keep their bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/indexer_bwd_table.h"
#include "ops/sparse_attn_table.h"
#include "reference/bf16.h"
#include "suite.h"

enum {
    TOKENS = 9,
    ROWS = 300,
    TOPK = 60,
    QUERY = 4,
    HEAD = 11,
    SLOT = 5,
    MOST_OUTPUTS = 2,
    NONE = -1
};

#define BWD(name) SMELT__INDEXER_BWD_##name
#define ATTN(name) SMELT__SPARSE_ATTN_##name

/* A number that is planted, and where it may appear. */
struct plant {
    const char *name;
    int in_key;      /* 0: in QUERY's part of the tensor; 1: in the key of its slot SLOT */
    int one_head;    /* 1: it affects HEAD alone */
    int tensor;      /* of bf16 or fp32 */
    int64_t element; /* within the query's part, or the key's row */
    float value;
    /* The outputs (SMELT__OF) in which it must appear for each query that uses it; 0: HEAD's results must
     * be 0, since x = NaN counts as x <= 0. */
    unsigned shows;
};

/* An operator's planted numbers, and the numbers of its tensors. */
struct subject {
    const char *spec;
    int heads, group;                            /* group: queries that share a tile */
    int indices, by_query[MOST_OUTPUTS], by_key; /* by_key: an output, or NONE */
    struct plant plants[6];
};

#define ATTN_RESULTS (SMELT__OF(ATTN(OUT)) | SMELT__OF(ATTN(LSE)))

#define BWD_PLANTS(heads, dim)                                                                     \
    {                                                                                              \
        {"NaN as a weight", 0, 1, BWD(WEIGHTS), HEAD, NAN, SMELT__OF(BWD(DQ))},                    \
            {"infinity as a weight", 0, 1, BWD(WEIGHTS), HEAD, INFINITY, SMELT__OF(BWD(DQ))},      \
            {"NaN as a slot's gradient", 0, 0, BWD(GRAD), SLOT, NAN, SMELT__OF(BWD(DWEIGHTS))},    \
            {"NaN in a query's head", 0, 1, BWD(Q), HEAD * (dim) + 37, NAN, 0},                    \
            {"NaN in a key", 1, 0, BWD(K), 37, NAN, SMELT__OF(BWD(DQ))},                           \
    }

static const struct subject subjects[] = {
    {"sparse_attn:heads=24,dqk=576,dv=512,topk=60",
     24,
     1,
     ATTN(INDICES),
     {ATTN(OUT), ATTN(LSE)},
     NONE,
     {{"NaN in a KV row", 1, 0, ATTN(KV), 0, NAN, ATTN_RESULTS},
      {"NaN in a query's head", 0, 1, ATTN(Q), HEAD * 576 + 575, NAN, ATTN_RESULTS}}},
    {"indexer_bwd:heads=40,dim=64,topk=60,deterministic=1,main.group=2",
     40,
     2,
     BWD(INDICES),
     {BWD(DQ), BWD(DWEIGHTS)},
     BWD(DK_FP32),
     BWD_PLANTS(40, 64)},
    {"indexer_bwd:heads=24,dim=128,topk=60,deterministic=1,main.group=2,main.variant=mma",
     24,
     2,
     BWD(INDICES),
     {BWD(DQ), BWD(DWEIGHTS)},
     BWD(DK_FP32),
     BWD_PLANTS(24, 128)},
};

/* A run's planted number: which queries meet it, and which share a tile with these. */
struct reach {
    const struct subject *subject;
    const struct plant *plant;
    int meets[TOKENS], affected[TOKENS];
};

static int names(const struct workload *work, const struct subject *subject, int64_t query,
                 int32_t key) {
    const int32_t *const indices = smelt__problem_data(&work->problem, subject->indices);
    for (int slot = 0; slot < TOPK; slot++)
        if (indices[query * TOPK + slot] == key)
            return 1;
    return 0;
}

static void find_reach(const struct workload *work, int32_t key, struct reach *reach) {
    const int group = reach->subject->group;
    for (int query = 0; query < TOKENS; query++)
        reach->meets[query] =
            reach->plant->in_key ? names(work, reach->subject, query, key) : query == QUERY;
    for (int query = 0; query < TOKENS; query++)
        for (int other = query / group * group; other < TOKENS && other / group == query / group;
             other++)
            reach->affected[query] |= reach->meets[other];
}

static void put(const struct workload *work, const struct plant *plant, int32_t key) {
    void *const data = smelt__problem_data(&work->problem, plant->tensor);
    const enum smelt__element element = work->pass->tensors->rows[plant->tensor].element;
    const size_t count =
        smelt__problem_bytes(&work->problem, plant->tensor) / smelt__element_bytes(element);
    const size_t part = count / (plant->in_key ? ROWS : TOKENS);
    const size_t at = (size_t)(plant->in_key ? key : QUERY) * part + (size_t)plant->element;
    if (smelt__element_bytes(element) == sizeof(float))
        ((float *)data)[at] = plant->value;
    else
        ((uint16_t *)data)[at] =
            isnan(plant->value) ? 0x7fc0 : smelt__bf16_from_float(plant->value);
}

/* Whether numbers of 2 or 4 bytes have a NaN other than the poison, or, if `infinity`, an infinity. */
static int has_nonfinite(const void *numbers, size_t bytes, size_t element, int infinity) {
    for (size_t i = 0; i < bytes / element; i++) {
        const uint16_t half = ((const uint16_t *)numbers)[element == sizeof half ? i : 2 * i + 1];
        if ((half & 0x7fff) >= 0x7f81 - infinity && half != 0xffff)
            return 1;
    }
    return 0;
}

static int are_zeros(const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i])
            return 0;
    return 1;
}

static void compare_queries(const struct workload *work, const struct reach *reach, int output,
                            const char *before, char *message, size_t size) {
    const size_t part = smelt__problem_bytes(&work->problem, output) / TOKENS;
    const size_t head = part / (size_t)reach->subject->heads;
    const char *const after = smelt__placed_row(&work->placed, output, 0, 0, 0);
    const struct smelt__tensor_row *const row = &work->pass->tensors->rows[output];
    for (size_t query = 0; query < TOKENS; query++) {
        if (reach->meets[query] && reach->plant->shows & SMELT__OF(output) &&
            !has_nonfinite(after + query * part, part, smelt__element_bytes(row->element),
                           isinf(reach->plant->value)))
            snprintf(message, size, "%s of query %zu is finite, though the query meets the number",
                     row->name, query);
        if (reach->meets[query] && reach->plant->shows == 0 &&
            !are_zeros(after + query * part + HEAD * head, head))
            snprintf(message, size, "%s of query %zu, head %d is not 0", row->name, query, HEAD);
        for (size_t i = 0; i < (size_t)reach->subject->heads; i++)
            if ((!reach->affected[query] || (reach->plant->one_head && i != HEAD)) &&
                memcmp(after + query * part + i * head, before + query * part + i * head, head) !=
                    0)
                snprintf(message, size, "%s of query %zu, head %zu has other bits than without it",
                         row->name, query, i);
    }
}

static void compare_keys(const struct workload *work, const struct reach *reach, const char *before,
                         char *message, size_t size) {
    const int output = reach->subject->by_key;
    const size_t row = smelt__problem_bytes(&work->problem, output) / ROWS;
    const char *const after = smelt__placed_row(&work->placed, output, 0, 0, 0);
    for (int key = 0; key < ROWS; key++) {
        int affected = 0;
        for (int query = 0; query < TOKENS; query++)
            affected |= reach->affected[query] && names(work, reach->subject, query, key);
        if (!affected && memcmp(after + (size_t)key * row, before + (size_t)key * row, row) != 0)
            snprintf(message, size, "the gradient of key %d has other bits than without it", key);
    }
}

static char *copy_output(const struct workload *work, int output) {
    const size_t bytes = output == NONE ? 0 : smelt__problem_bytes(&work->problem, output);
    char *const copy = malloc(bytes + 1);
    if (copy && bytes)
        memcpy(copy, smelt__placed_row(&work->placed, output, 0, 0, 0), bytes);
    return copy;
}

/* Runs without and with the planted number. */
static void spread(struct workload *work, struct reach *reach, char *message, size_t size) {
    const struct subject *const subject = reach->subject;
    const int32_t key = ((const int32_t *)smelt__problem_data(
        &work->problem, subject->indices))[QUERY * TOPK + SLOT];
    char *before[MOST_OUTPUTS + 1] = {NULL};
    find_reach(work, key, reach);
    if (suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "a clean run", message,
                 size))
        return;
    for (int i = 0; i <= MOST_OUTPUTS; i++)
        before[i] = copy_output(work, i < MOST_OUTPUTS ? subject->by_query[i] : subject->by_key);
    put(work, reach->plant, key);
    if (!before[0] || !before[1] || !before[2])
        snprintf(message, size, "out of memory");
    else if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) == 0 &&
             suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "a run", message,
                      size) == 0) {
        for (int i = 0; i < MOST_OUTPUTS; i++)
            compare_queries(work, reach, subject->by_query[i], before[i], message, size);
        if (subject->by_key != NONE)
            compare_keys(work, reach, before[MOST_OUTPUTS], message, size);
    }
    for (int i = 0; i <= MOST_OUTPUTS; i++)
        free(before[i]);
}

void run_nonfinite(struct suite *suite) {
    for (int i = 0; i < COUNT(subjects); i++)
        for (const struct plant *plant = subjects[i].plants;
             plant->name && smelt__harness_find(subjects[i].spec); plant++) {
            const struct smelt__problem_options options = {.seed =
                                                               2 * suite->seed /* without limits */,
                                                           .tokens = TOKENS,
                                                           .rows = ROWS,
                                                           .dkv = SMELT__DKV_FP32};
            struct reach reach = {&subjects[i], plant, {0}, {0}};
            struct workload work;
            char name[SUITE_SPEC + 64], message[512] = "";
            snprintf(name, sizeof name, "nonfinite: %s, %s", plant->name, subjects[i].spec);
            if (!suite_wants(suite, name))
                continue;
            if (workload_open(&work, suite, subjects[i].spec, &options, message, sizeof message) ==
                0) {
                spread(&work, &reach, message, sizeof message);
                workload_close(&work);
            }
            suite_report(suite, name, message);
        }
}
