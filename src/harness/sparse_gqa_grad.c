/* sparse_gqa's backward pass in the harness: its tensors other than the forward's inputs, and how its
 * results are compared: dq by query, dk and dv by key, dsink by head. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/normal.h"
#include "harness/parallel.h"
#include "harness/sparse_gqa.h"
#include "reference/bf16.h"

#define TENSOR(name) SMELT__SPARSE_GQA_GRAD_##name
#define INPUT(name) SMELT__SPARSE_GQA_##name

enum { STREAM_GRAD_OUT = 11, STREAM_OUT, STREAM_DK_SUM, STREAM_DV_SUM };

/* Multiplications up to which out and lse are the reference's; of larger problems they are made up. */
static const double EXACT_WORK = 4e9;

struct smelt__key_rows smelt__sparse_gqa_dk(const struct smelt__problem *problem) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    return (struct smelt__key_rows){TENSOR(DK), TENSOR(DK_FP32), TENSOR(DK_SUM), spec->dqk};
}

struct smelt__key_rows smelt__sparse_gqa_dv(const struct smelt__problem *problem) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    return (struct smelt__key_rows){TENSOR(DV), TENSOR(DV_FP32), TENSOR(DV_SUM), spec->dv};
}

/* The backward call on a problem's inputs, with all strides. */
static smelt_sparse_gqa_grad_args args_of(const struct smelt__problem *problem) {
    smelt_sparse_gqa_grad_args args;
    smelt__problem_arguments(problem, &args);
    return args;
}

/* ---- tensors --------------------------------------------------------------------------------- */

struct fill {
    struct smelt__problem *problem;
    const struct smelt__sparse_gqa_spec *spec;
    smelt_sparse_gqa_args inputs;
    const struct smelt__normals *normals;
    int exact;
    _Atomic int failed;
};

/* The row of a tensor with rows for each head of each query. */
static void *row_at(const struct fill *fill, int tensor, int64_t query, int head) {
    const int64_t tokens = fill->problem->options.tokens;
    const int64_t bytes =
        (int64_t)smelt__element_bytes(fill->problem->pass->tensors->rows[tensor].element);
    return (char *)smelt__problem_data(fill->problem, tensor) +
           bytes * smelt__problem_at(fill->problem, tensor, query / tokens, query % tokens, head);
}

/* NaN in every row of a query that is not computed. */
static void spoil_query(const struct fill *fill, int64_t query) {
    const size_t dv = (size_t)fill->spec->dv * sizeof(uint16_t);
    for (int head = 0; head < fill->spec->heads; head++) {
        memset(row_at(fill, TENSOR(OUT), query, head), 0xff, dv);
        memset(row_at(fill, TENSOR(GRAD_OUT), query, head), 0xff, dv);
        memset(row_at(fill, TENSOR(LSE), query, head), 0xff, sizeof(float));
    }
}

static void put_out(const struct fill *fill, int64_t query, int head, const double *out,
                    double lse) {
    uint16_t *const to = row_at(fill, TENSOR(OUT), query, head);
    for (int d = 0; d < fill->spec->dv; d++)
        to[d] = smelt__bf16_from_float((float)out[d]);
    *(float *)row_at(fill, TENSOR(LSE), query, head) = (float)lse;
}

/* out and lse as the forward pass has them. */
static int compute_query(const struct fill *fill, int64_t query) {
    const size_t heads = (size_t)fill->spec->heads, dv = (size_t)fill->spec->dv;
    double max_abs, *const memory = malloc(heads * (2 * dv + 1) * sizeof *memory);
    const struct smelt__sparse_gqa_results results = {memory, memory + heads * dv,
                                                      memory + 2 * heads * dv, &max_abs};
    const int failed =
        !memory || smelt__sparse_gqa_reference(fill->spec, &fill->inputs, query, &results) != 0;
    for (int head = 0; head < fill->spec->heads && !failed; head++)
        put_out(fill, query, head, results.out + (size_t)head * dv, results.lse[head]);
    free(memory);
    return failed;
}

/* Made up: the gradients are defined for any out and lse, and a kernel does the same work. lse is that
 * of normal scores; out is as small as the mean of so many normal values, and of that the share that
 * the sink leaves. */
static void invent_query(const struct fill *fill, int64_t query) {
    const struct smelt__sparse_gqa_spec *const spec = fill->spec;
    const int group = spec->heads / spec->kv_heads;
    const int64_t lists = smelt__sparse_gqa_list_count(spec);
    for (int head = 0; head < spec->heads; head++) {
        const double valid = (double)smelt__sparse_gqa_rows(spec, &fill->inputs, query,
                                                            lists > 1 ? head / group : 0, NULL);
        const uint64_t row = (uint64_t)query * (uint64_t)spec->heads + (uint64_t)head;
        const uint16_t *const q = row_at(fill, INPUT(Q), query, head);
        uint16_t values[256];
        double square = 0, out[256] = {0};
        for (int d = 0; d < spec->dqk; d++)
            square += pow((double)fill->inputs.scale * (double)smelt__bf16_to_float(q[d]), 2);
        const double lse = valid > 0 ? log(valid) + square / 2 : -INFINITY;
        const double denominator = smelt__sparse_gqa_denominator(spec, &fill->inputs, head, lse);
        smelt__normals_row(fill->normals, fill->problem->options.seed, STREAM_OUT, row, values,
                           spec->dv);
        for (int d = 0; d < spec->dv && valid > 0; d++)
            out[d] = exp(lse - denominator) / sqrt(valid) * (double)smelt__bf16_to_float(values[d]);
        put_out(fill, query, head, out, lse);
    }
}

static void fill_queries(void *user, int64_t begin, int64_t end) {
    struct fill *const fill = user;
    for (int64_t query = begin; query < end; query++) {
        const int computed = smelt__sparse_gqa_is_computed(fill->problem, query);
        if (!computed && !fill->problem->options.far) /* there the emulator watches */
            spoil_query(fill, query);
        else if (computed && !fill->exact)
            invent_query(fill, query);
        else if (computed && compute_query(fill, query) != 0)
            atomic_store(&fill->failed, 1);
    }
}

int smelt__sparse_gqa_grad_fill(struct smelt__problem *problem) {
    const struct smelt__sparse_gqa_spec *const spec = problem->spec;
    const struct smelt__key_rows dk = smelt__sparse_gqa_dk(problem);
    const struct smelt__key_rows dv = smelt__sparse_gqa_dv(problem);
    struct fill *const fill = calloc(1, sizeof *fill);
    int failed = !fill || smelt__sparse_gqa_fill(problem) != 0;
    if (!failed) {
        const double work = (double)problem->valid_slots * (spec->heads / spec->kv_heads);
        fill->problem = problem;
        fill->spec = spec;
        fill->inputs = smelt__sparse_gqa_inputs(problem);
        fill->exact = work * (spec->dqk + spec->dv) <= EXACT_WORK;
        fill->normals = smelt__normals();
        smelt__normals_fill(problem, TENSOR(GRAD_OUT), STREAM_GRAD_OUT);
        smelt__parallel_for(problem->options.batches * problem->options.tokens,
                            fill->exact ? 1 : 16, fill_queries, fill);
        failed = atomic_load(&fill->failed);
    }
    free(fill);
    return failed || smelt__key_rows_fill(problem, &dk, STREAM_DK_SUM) != 0 ||
                   smelt__key_rows_fill(problem, &dv, STREAM_DV_SUM) != 0
               ? -1
               : 0;
}

/* ---- what is compared ------------------------------------------------------------------------ */

/* As sparse_attn's (sparse_attn_grad_compare.c). */
static const double TOLERANCE_PER_SCORE = 4.3e-6, LOST_IN_DIFFERENCE = 2e-6, DSINK_TOLERANCE = 2e-5,
                    SMALLEST_TERMS = 1e-30;

/* Of rows: */
enum { LARGEST_SCORE = SMELT__GRAD_METRICS, ROW_METRICS };

#define DQ SMELT__OF(TENSOR(DQ))
#define DK SMELT__KEY_ROWS(TENSOR(DK), TENSOR(DK_FP32), TENSOR(DK_SUM))
#define DV SMELT__KEY_ROWS(TENSOR(DV), TENSOR(DV_FP32), TENSOR(DV_SUM))
#define DSINK SMELT__OF(TENSOR(DSINK))

#define ROWS(name, outputs)                                                                        \
    SMELT__GRAD_METRIC_ROWS(name, outputs), [LARGEST_SCORE] = {"",      "largest_score", NULL,     \
                                                               "score", SMELT__LARGEST,  0},

static const struct smelt__metric dq_metrics[ROW_METRICS] = {ROWS("dq", DQ)};
static const struct smelt__metric dk_metrics[ROW_METRICS] = {ROWS("dk", DK)};
static const struct smelt__metric dv_metrics[ROW_METRICS] = {ROWS("dv", DV)};
static const struct smelt__metric dsink_metrics[] = {
    {"relative_error", "dsink", "dsink", "error of dsink, relative to its terms,", SMELT__LARGEST,
     DSINK},
};

#define UNNAMED "a row that no query names, or without weight, is not 0 or its previous value"
static const struct smelt__rule dq_rules[SMELT__GRAD_RULES] = {
    SMELT__GRAD_RULE_ROWS("dq", DQ, "a query without a valid row, or without weight, is not 0")};
static const struct smelt__rule dk_rules[SMELT__GRAD_RULES] = {
    SMELT__GRAD_RULE_ROWS("dk", DK, UNNAMED)};
static const struct smelt__rule dv_rules[SMELT__GRAD_RULES] = {
    SMELT__GRAD_RULE_ROWS("dv", DV, UNNAMED)};

enum { DSINK_FINITE, DSINK_UNUSED, DSINK_RULES };
static const struct smelt__rule dsink_rules[DSINK_RULES] = {
    [DSINK_FINITE] = {"dsink_finite", DSINK, "dsink is NaN, infinite or not written"},
    [DSINK_UNUSED] = {"unused_sink", DSINK, "dsink of a head whose sink takes nothing is not 0"},
};

static void judge_rows(const struct smelt__problem *problem, int64_t compared,
                       struct smelt__metric_result *results) {
    (void)problem, (void)compared;
    smelt__grad_rows_judge(TOLERANCE_PER_SCORE * results[LARGEST_SCORE].value, results);
}

static struct smelt__expected_row expected_row(const double *grads, int columns, double spread,
                                               double cancelled) {
    return (struct smelt__expected_row){.grads = grads,
                                        .columns = columns,
                                        .spread = spread,
                                        .lost = LOST_IN_DIFFERENCE * cancelled,
                                        .none = !(cancelled > 0)};
}

/* ---- dq -------------------------------------------------------------------------------------- */

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__problem *const problem = placed->problem;
    const struct smelt__sparse_gqa_spec *const spec = problem->spec;
    const smelt_sparse_gqa_grad_args args = args_of(problem);
    const int64_t b = query / args.tokens, t = query % args.tokens;
    const size_t heads = (size_t)spec->heads, dqk = (size_t)spec->dqk;
    double max_abs = 0, *const memory = malloc((heads * (dqk + 2) + dqk) * sizeof *memory);
    const struct smelt__sparse_attn_row_grads expected = {memory, memory + heads * dqk,
                                                          memory + heads * (dqk + 1), &max_abs};
    (void)prepared;
    finding->failed = !memory || smelt__sparse_gqa_dq(spec, &args, query, &expected) != 0;
    for (int head = 0; head < spec->heads && !finding->failed && !finding->broken; head++) {
        double *const got = memory + heads * (dqk + 2);
        const struct smelt__expected_row row =
            expected_row(expected.grads + (size_t)head * dqk, spec->dqk, expected.spread[head],
                         expected.cancelled[head]);
        const uint16_t *const dq = smelt__compared_row(
            placed, finding, TENSOR(DQ), smelt__problem_at(problem, TENSOR(DQ), b, t, head),
            spec->dqk, row.grads);
        for (int d = 0; d < spec->dqk; d++)
            got[d] = (double)smelt__bf16_to_float(dq[d]);
        smelt__grad_row_compare(got, &row, head, finding);
    }
    smelt__finding_enlarge(finding, LARGEST_SCORE, max_abs, 0);
    free(memory);
}

/* ---- the queries that have a part, as often as they are listed ------------------------------- */

struct queries {
    int64_t count;
    int64_t numbers[];
};

static void *prepare_queries(const struct smelt__placed *placed, const int64_t *units,
                             int64_t count) {
    const struct smelt__problem *const problem = placed->problem;
    const int64_t all = problem->options.batches * problem->options.tokens;
    struct queries *const queries =
        malloc(sizeof *queries + ((size_t)problem->computed + 1) * sizeof queries->numbers[0]);
    (void)units, (void)count;
    if (!queries)
        return NULL;
    queries->count = 0;
    for (int64_t query = 0; query < all; query++)
        for (int times = problem->listed ? problem->listed[query] : 1; times > 0; times--)
            queries->numbers[queries->count++] = query;
    return queries;
}

/* ---- dk and dv ------------------------------------------------------------------------------- */

/* `of_values`: dv, else dk. */
static void compare_key(const struct smelt__placed *placed, const struct queries *queries,
                        int64_t key, int of_values, struct smelt__finding *finding) {
    const struct smelt__problem *const problem = placed->problem;
    const struct smelt__sparse_gqa_spec *const spec = problem->spec;
    const smelt_sparse_gqa_grad_args args = args_of(problem);
    const struct smelt__key_rows rows =
        of_values ? smelt__sparse_gqa_dv(problem) : smelt__sparse_gqa_dk(problem);
    double memory[3][256], numbers[2][3];
    const struct smelt__sparse_attn_row_grads dk = {memory[0], &numbers[0][0], &numbers[0][1],
                                                    &numbers[0][2]};
    const struct smelt__sparse_attn_row_grads dv = {memory[1], &numbers[1][0], &numbers[1][1],
                                                    &numbers[1][2]};
    finding->failed =
        smelt__sparse_gqa_key(spec, &args, queries->numbers, queries->count, key, &dk, &dv) != 0;
    if (finding->failed)
        return;
    struct smelt__expected_row row =
        expected_row(memory[of_values], rows.columns, numbers[of_values][0], numbers[of_values][1]);
    finding->failed = smelt__key_row_read(placed, &rows, key, &row, memory[2], finding) != 0;
    if (!finding->failed)
        smelt__grad_row_compare(memory[2], &row, 0, finding);
    smelt__finding_enlarge(finding, LARGEST_SCORE, numbers[0][2], 0);
}

static void compare_dk(const struct smelt__placed *placed, const void *prepared, int64_t key,
                       struct smelt__finding *finding) {
    compare_key(placed, prepared, key, 0, finding);
}

static void compare_dv(const struct smelt__placed *placed, const void *prepared, int64_t key,
                       struct smelt__finding *finding) {
    compare_key(placed, prepared, key, 1, finding);
}

/* ---- dsink ----------------------------------------------------------------------------------- */

static int64_t count_heads(const struct smelt__problem *problem) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    return problem->buffers[TENSOR(DSINK)].elements > 0 ? spec->heads : 0;
}

static void compare_head(const struct smelt__placed *placed, const void *prepared, int64_t head,
                         struct smelt__finding *finding) {
    const struct queries *const queries = prepared;
    const smelt_sparse_gqa_grad_args args = args_of(placed->problem);
    double expected, terms;
    finding->failed = smelt__sparse_gqa_dsink(placed->problem->spec, &args, queries->numbers,
                                              queries->count, (int)head, &expected, &terms) != 0;
    if (finding->failed)
        return;
    const double got = (double)*(const float *)smelt__compared_row(placed, finding, TENSOR(DSINK),
                                                                   head, 1, &expected);
    if (smelt__finding_rule(finding, DSINK_FINITE, isfinite(got), 0) &&
        (terms > 0 || smelt__finding_rule(finding, DSINK_UNUSED, got == 0, 0)))
        smelt__finding_enlarge(finding, 0, fabs(got - expected) / fmax(terms, SMALLEST_TERMS), 0);
}

static void judge_heads(const struct smelt__problem *problem, int64_t compared,
                        struct smelt__metric_result *results) {
    (void)problem, (void)compared;
    results[0].bar = DSINK_TOLERANCE;
}

/* ---- all ------------------------------------------------------------------------------------- */

#define OF_KEYS(name)                                                                              \
    {                                                                                              \
        SMELT__UNITS("key", "part", INPUT(B), INPUT(S), INPUT(HKV)),                               \
            SMELT__METRICS(name##_metrics), SMELT__RULES(name##_rules),                            \
            .prepare = prepare_queries, .release = free, .compare = compare_##name,                \
            .judge = judge_rows                                                                    \
    }

const struct smelt__comparison
    smelt__sparse_gqa_grad_comparisons[SMELT__SPARSE_GQA_GRAD_COMPARISONS] = {
        {
            SMELT__UNITS("query", "head", INPUT(B), INPUT(T)),
            SMELT__METRICS(dq_metrics),
            SMELT__RULES(dq_rules),
            .wanted = smelt__sparse_gqa_is_computed,
            .compare = compare_query,
            .judge = judge_rows,
        },
        OF_KEYS(dk),
        OF_KEYS(dv),
        {
            .unit = "head",
            .part = "part",
            SMELT__METRICS(dsink_metrics),
            SMELT__RULES(dsink_rules),
            .count = count_heads,
            .prepare = prepare_queries,
            .release = free,
            .compare = compare_head,
            .judge = judge_heads,
        },
};
