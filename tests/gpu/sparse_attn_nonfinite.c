/* NaN and infinity in a query's inputs: they appear in its results and nowhere else. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/attention.h"
#include "ops/sparse_attn_table.h"
#include "sparse_attn_groups.h"

enum {
    TOKENS = 6,
    ROWS = 900,
    TOPK = 100,
    HEADS = 24,
    DQK = 576,
    DV = 512,
    QUERY = 3,
    SLOT = 5,
    HEAD = 17
};

static const char SPEC[] = "sparse_attn:heads=24,dqk=576,dv=512,topk=100";
static const char SINK_SPEC[] = "sparse_attn:heads=24,dqk=576,dv=512,topk=100,sink=1";

enum { BF16_NAN = 0x7fc0 };

/* A NaN other than the poison of outputs. */
static int is_new_bf16_nan(uint16_t bits) {
    return (bits & 0x7fff) > 0x7f80 && bits != 0xffff;
}

static int is_new_nan(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return isnan(value) && bits != 0xffffffff;
}

/* 0 if all results of a query's head are NaN. */
static int all_nan(const struct smelt__placed *placed, int64_t query, int head, int dv) {
    const uint16_t *out = smelt__placed_out(placed, query, head);
    for (int column = 0; column < dv; column++)
        if (!is_new_bf16_nan(out[column]))
            return -1;
    return is_new_nan(smelt__placed_lse(placed, query, head)) ? 0 : -1;
}

/* Whether a query's list names the row. */
static int names(const struct smelt__problem *problem, int64_t query, int32_t row) {
    const int32_t *const indices = smelt__problem_data(problem, SMELT__SPARSE_ATTN_INDICES);
    for (int slot = 0; slot < TOPK; slot++)
        if (indices[query * TOPK + slot] == row)
            return 1;
    return 0;
}

/* Whether the planted NaN reaches a query's head. */
typedef int (*reach_function)(const struct smelt__problem *problem, int64_t query, int head,
                              int32_t row);

static int through_row(const struct smelt__problem *problem, int64_t query, int head, int32_t row) {
    (void)head;
    return names(problem, query, row);
}

static int through_query(const struct smelt__problem *problem, int64_t query, int head,
                         int32_t row) {
    (void)problem, (void)row;
    return query == QUERY && head == HEAD;
}

/* The kept copy of a run: out and lse of every query and head. */
struct kept {
    uint16_t *out;
    float *lse;
};

static void keep(const struct workload *work, struct kept *kept) {
    const size_t dv = DV;
    for (int64_t query = 0; query < TOKENS; query++)
        for (int head = 0; head < HEADS; head++) {
            const size_t place = (size_t)(query * HEADS + head);
            memcpy(kept->out + place * dv, smelt__placed_out(&work->placed, query, head),
                   dv * sizeof *kept->out);
            kept->lse[place] = smelt__placed_lse(&work->placed, query, head);
        }
}

static void compare(const struct workload *work, const struct kept *kept, reach_function reaches,
                    int32_t row, char *message, size_t size) {
    const size_t dv = DV;
    for (int64_t query = 0; query < TOKENS; query++)
        for (int head = 0; head < HEADS; head++) {
            const size_t place = (size_t)(query * HEADS + head);
            const float lse = smelt__placed_lse(&work->placed, query, head);
            if (reaches(&work->problem, query, head, row)) {
                if (all_nan(&work->placed, query, head, DV) == 0)
                    continue;
                snprintf(message, size, "query %lld, head %d: a NaN it meets is lost",
                         (long long)query, head);
                return;
            }
            if (memcmp(&lse, &kept->lse[place], sizeof lse) != 0 ||
                memcmp(smelt__placed_out(&work->placed, query, head), kept->out + place * dv,
                       dv * sizeof(uint16_t)) != 0) {
                snprintf(message, size, "query %lld, head %d: touched by a NaN it does not meet",
                         (long long)query, head);
                return;
            }
        }
}

/* Runs without and with the planted NaN. */
static void spread(struct workload *work, reach_function reaches, char *message, size_t size) {
    struct smelt__problem *problem = &work->problem;
    uint16_t *const q = smelt__problem_data(problem, SMELT__SPARSE_ATTN_Q);
    uint16_t *const kv = smelt__problem_data(problem, SMELT__SPARSE_ATTN_KV);
    const int32_t *const indices = smelt__problem_data(problem, SMELT__SPARSE_ATTN_INDICES);
    const int32_t row = indices[QUERY * TOPK + SLOT];
    struct kept kept = {calloc((size_t)TOKENS * HEADS * (size_t)DV, sizeof(uint16_t)),
                        calloc((size_t)TOKENS * HEADS, sizeof(float))};
    if (!kept.out || !kept.lse) {
        snprintf(message, size, "out of memory");
        goto out;
    }
    if (suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "forward", message, size))
        goto out;
    keep(work, &kept);
    if (reaches == through_row)
        kv[(size_t)row * (size_t)DQK] = BF16_NAN;
    else
        q[((size_t)QUERY * HEADS + HEAD) * (size_t)DQK + 575] = BF16_NAN;
    if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) ||
        suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "forward", message, size))
        goto out;
    compare(work, &kept, reaches, row, message, size);
out:
    free(kept.out);
    free(kept.lse);
}

static void nan_in_row(struct workload *work, char *message, size_t size) {
    spread(work, through_row, message, size);
}

static void nan_in_query(struct workload *work, char *message, size_t size) {
    spread(work, through_query, message, size);
}

/* A sink of -inf has no effect, one of +inf gives zeros; so does the reference. */
static void infinite_sinks(struct workload *work, char *message, size_t size) {
    float *const sink = smelt__problem_data(&work->problem, SMELT__SPARSE_ATTN_SINK);
    sink[0] = INFINITY;
    sink[1] = -INFINITY;
    sink[2] = 3e38F;
    if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) == 0 &&
        suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "forward", message, size) ==
            0)
        workload_judge(work, message, size);
}

void run_nonfinite(struct suite *suite) {
    static const struct {
        const char *name, *spec;
        void (*run)(struct workload *work, char *message, size_t size);
    } cases[] = {
        {"nonfinite: NaN in a KV row", SPEC, nan_in_row},
        {"nonfinite: NaN in a query's head", SPEC, nan_in_query},
        {"nonfinite: sinks of +inf, -inf and 3e38", SINK_SPEC, infinite_sinks},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct workload work;
        char message[512] = "";
        const struct smelt__problem_options options = {
            .seed = suite->seed, .tokens = TOKENS, .rows = ROWS};
        if (!suite_wants(suite, cases[i].name))
            continue;
        if (workload_open(&work, suite, cases[i].spec, &options, message, sizeof message) == 0) {
            cases[i].run(&work, message, sizeof message);
            workload_close(&work);
        }
        suite_report(suite, cases[i].name, message);
    }
}
