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

enum { STREAM_GRAD_OUT = 11, STREAM_DK_SUM = 13, STREAM_DV_SUM };

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

int smelt__sparse_gqa_grad_fill(struct smelt__problem *problem) {
    const struct smelt__key_rows dk = smelt__sparse_gqa_dk(problem);
    const struct smelt__key_rows dv = smelt__sparse_gqa_dv(problem);
    if (smelt__sparse_gqa_fill(problem) != 0)
        return -1;
    smelt__normals_fill(problem, TENSOR(GRAD_OUT), STREAM_GRAD_OUT);
    smelt__unlisted_fill(problem, TENSOR(GRAD_OUT));
    const int failed = smelt__sparse_gqa_fill_results(problem, TENSOR(OUT), TENSOR(LSE)) != 0 ||
                       smelt__key_rows_fill(problem, &dk, STREAM_DK_SUM) != 0 ||
                       smelt__key_rows_fill(problem, &dv, STREAM_DV_SUM) != 0;
    return failed ? -1 : 0;
}

/* ---- what is compared ------------------------------------------------------------------------ */

#define DQ SMELT__OF(TENSOR(DQ))
#define DK SMELT__KEY_ROWS(TENSOR(DK), TENSOR(DK_FP32), TENSOR(DK_SUM))
#define DV SMELT__KEY_ROWS(TENSOR(DV), TENSOR(DV_FP32), TENSOR(DV_SUM))
#define DSINK SMELT__OF(TENSOR(DSINK))

static const struct smelt__metric dq_metrics[SMELT__GRAD_SCORE_METRICS] = {
    SMELT__GRAD_SCORE_ROWS("dq", DQ)};
static const struct smelt__metric dk_metrics[SMELT__GRAD_SCORE_METRICS] = {
    SMELT__GRAD_SCORE_ROWS("dk", DK)};
static const struct smelt__metric dv_metrics[SMELT__GRAD_SCORE_METRICS] = {
    SMELT__GRAD_SCORE_ROWS("dv", DV)};
static const struct smelt__metric dsink_metrics[] = SMELT__DSINK_METRIC(DSINK);

#define UNNAMED "a row that no query names, or without weight, is not 0 or its previous value"
static const struct smelt__rule dq_rules[SMELT__GRAD_RULES] = {
    SMELT__GRAD_RULE_ROWS("dq", DQ, "a query without a valid row, or without weight, is not 0")};
static const struct smelt__rule dk_rules[SMELT__GRAD_RULES] = {
    SMELT__GRAD_RULE_ROWS("dk", DK, UNNAMED)};
static const struct smelt__rule dv_rules[SMELT__GRAD_RULES] = {
    SMELT__GRAD_RULE_ROWS("dv", DV, UNNAMED)};

static const struct smelt__rule dsink_rules[] = SMELT__DSINK_RULE_ROWS(DSINK);

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
            smelt__grad_expected(expected.grads + (size_t)head * dqk, spec->dqk,
                                 expected.spread[head], expected.cancelled[head]);
        const uint16_t *const dq = smelt__compared_row(
            placed, finding, TENSOR(DQ), smelt__problem_at(problem, TENSOR(DQ), b, t, head),
            spec->dqk, row.grads);
        for (int d = 0; d < spec->dqk; d++)
            got[d] = (double)smelt__bf16_to_float(dq[d]);
        smelt__grad_row_compare(got, &row, head, finding);
    }
    smelt__finding_enlarge(finding, SMELT__GRAD_SCORE, max_abs, 0);
    free(memory);
}

/* ---- dk and dv ------------------------------------------------------------------------------- */

/* `of_values`: dv, else dk. */
static void compare_key(const struct smelt__placed *placed,
                        const struct smelt__listed_queries *queries, int64_t key, int of_values,
                        struct smelt__finding *finding) {
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
    struct smelt__expected_row row = smelt__grad_expected(
        memory[of_values], rows.columns, numbers[of_values][0], numbers[of_values][1]);
    finding->failed = smelt__key_row_read(placed, &rows, key, &row, memory[2], finding) != 0;
    if (!finding->failed)
        smelt__grad_row_compare(memory[2], &row, 0, finding);
    smelt__finding_enlarge(finding, SMELT__GRAD_SCORE, numbers[0][2], 0);
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
    const struct smelt__listed_queries *const queries = prepared;
    const smelt_sparse_gqa_grad_args args = args_of(placed->problem);
    double expected, terms;
    finding->failed = smelt__sparse_gqa_dsink(placed->problem->spec, &args, queries->numbers,
                                              queries->count, (int)head, &expected, &terms) != 0;
    if (finding->failed)
        return;
    smelt__dsink_compare(placed, TENSOR(DSINK), head, expected, terms, finding);
}

/* ---- all ------------------------------------------------------------------------------------- */

#define OF_KEYS(name)                                                                              \
    {                                                                                              \
        SMELT__UNITS("key", "part", INPUT(B), INPUT(S), INPUT(HKV)),                               \
            SMELT__METRICS(name##_metrics), SMELT__RULES(name##_rules),                            \
            .prepare = smelt__listed_queries, .release = free, .compare = compare_##name,          \
            .judge = smelt__grad_score_judge                                                       \
    }

const struct smelt__comparison
    smelt__sparse_gqa_grad_comparisons[SMELT__SPARSE_GQA_GRAD_COMPARISONS] = {
        {
            SMELT__UNITS("query", "head", INPUT(B), INPUT(T)),
            SMELT__METRICS(dq_metrics),
            SMELT__RULES(dq_rules),
            .wanted = smelt__query_is_computed,
            .compare = compare_query,
            .judge = smelt__grad_score_judge,
        },
        OF_KEYS(dk),
        OF_KEYS(dv),
        {
            .unit = "head",
            .part = "part",
            SMELT__METRICS(dsink_metrics),
            SMELT__RULES(dsink_rules),
            .count = count_heads,
            .prepare = smelt__listed_queries,
            .release = free,
            .compare = compare_head,
            .bars = SMELT__DSINK_BARS,
        },
};
