/* Compares sparse_attn's forward pass with the reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/attention.h"
#include "harness/sparse_attn.h"
#include "reference/operators.h"

#define TENSOR(name) SMELT__SPARSE_ATTN_##name

/* Below it the probability of a query's only slot is 1 (docs/operators.md, "Accuracy"). */
static const double LARGEST_EXACT_SCORE = 45000;
enum { MAX_LOGITS = SMELT__OUT_METRICS, METRICS };

#define OUT SMELT__OF(TENSOR(OUT))

static const struct smelt__metric metrics[METRICS] = {
    SMELT__OUT_METRIC_ROWS(OUT, SMELT__OF(TENSOR(LSE))),
    [MAX_LOGITS] = {"max_abs_error", "max_logits", NULL, "error of max_logits", SMELT__LARGEST,
                    SMELT__OF(TENSOR(MAX_LOGITS))},
};

static const struct smelt__rule rules[SMELT__OUT_RULES + 1] = {
    SMELT__OUT_RULE_ROWS(OUT, "slot"),
    [SMELT__OUT_SINGLE] = {"single_slot", OUT,
                           "out of a query with one valid slot is not that row's value"},
};

/* The value of a query's valid slot if it has exactly one: its probability is 1, unless there is a
 * sink or scores are too large for fp32's exponents. */
static const uint16_t *only_value(const struct smelt__problem *problem, int64_t query,
                                  double score) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    struct smelt__sparse_attn_spec two = *spec; /* limits the rows that are written to two */
    int64_t rows[2] = {0, 0};
    two.topk = spec->topk < 2 ? spec->topk : 2;
    if (spec->sink || score >= LARGEST_EXACT_SCORE ||
        smelt__sparse_attn_valid_rows(&two, problem->args, query, rows) != 1)
        return NULL;
    const uint16_t *const kv = smelt__problem_data(problem, TENSOR(KV));
    return kv + smelt__problem_at(problem, TENSOR(KV), query / problem->options.tokens, rows[0], 0);
}

static void compare_results(const struct smelt__placed *placed, int64_t query,
                            const struct smelt__sparse_attn_results *expected,
                            struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    struct smelt__expected_out row = {.exact = only_value(problem, query, expected->max_abs[0]),
                                      .dv = spec->dv};
    smelt__finding_enlarge(finding, SMELT__OUT_SCORE, expected->max_abs[0], 0);
    for (int head = 0; head < spec->heads && !finding->broken; head++) {
        const int64_t number = query * spec->heads + head;
        row.out = expected->out + (int64_t)head * spec->dv;
        row.terms = expected->out_terms + (int64_t)head * spec->dv;
        row.empty = isinf(expected->lse[head]);
        smelt__out_compare(smelt__compared_row(placed, finding, TENSOR(OUT),
                                               smelt__problem_row(problem, TENSOR(OUT), number),
                                               spec->dv, row.out),
                           &row, head, finding);
        smelt__out_number(placed, TENSOR(LSE), SMELT__OUT_LSE, number, head, expected->lse[head],
                          finding);
        smelt__out_number(placed, TENSOR(MAX_LOGITS), MAX_LOGITS, number, head,
                          expected->max_logits[head], finding);
    }
}

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    const size_t heads = (size_t)spec->heads, dv = (size_t)spec->dv;
    double max_abs = 0, *memory = malloc(heads * (2 * dv + 2) * sizeof *memory);
    (void)prepared;
    finding->failed = 1;
    if (memory) {
        struct smelt__sparse_attn_results expected = {memory, memory + heads * dv,
                                                      memory + heads * (dv + 1), &max_abs,
                                                      memory + heads * (dv + 2)};
        if (smelt__sparse_attn_reference(spec, problem->args, &query, 1, &expected) == 0) {
            finding->failed = 0;
            compare_results(placed, query, &expected, finding);
        }
    }
    free(memory);
}

static void judge(const struct smelt__problem *problem, int64_t compared,
                  struct smelt__metric_result *results) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    results[MAX_LOGITS].bar = smelt__out_judge(problem, spec->dqk, compared * spec->heads, results);
}

const struct smelt__comparison smelt__sparse_attn_by_query = {
    SMELT__UNITS("query", "head", TENSOR(B), TENSOR(T)),
    SMELT__METRICS(metrics),
    SMELT__RULES(rules),
    .wanted = smelt__query_is_computed,
    .compare = compare_query,
    .judge = judge,
};

/* ---- reading the copy ------------------------------------------------------------------------ */

static const void *row_at(const struct smelt__placed *placed, int tensor, int64_t query, int head) {
    const int64_t tokens = placed->problem->options.tokens;
    return smelt__placed_row(placed, tensor, query / tokens, query % tokens, head);
}

const uint16_t *smelt__placed_out(const struct smelt__placed *placed, int64_t query, int head) {
    return row_at(placed, TENSOR(OUT), query, head);
}

float smelt__placed_lse(const struct smelt__placed *placed, int64_t query, int head) {
    return *(const float *)row_at(placed, TENSOR(LSE), query, head);
}

float smelt__placed_max_logit(const struct smelt__placed *placed, int64_t query, int head) {
    return *(const float *)row_at(placed, TENSOR(MAX_LOGITS), query, head);
}
