/* What the comparisons of sparse_attn and sparse_gqa share. */
#pragma once

#include "harness/grad_rows.h"
#include "harness/placed.h"

/* Whether a query is computed; the function `wanted` of comparisons by query. */
int smelt__query_is_computed(const struct smelt__problem *problem, int64_t query);

/* ---- problems ------------------------------------------------------------------------------- */

/* The option `spiky`: what it makes of a head's row of q (number query * heads + head) and of a key
 * of row `number`. */
void smelt__spiky_query(const struct smelt__problem_options *options, int heads, int dqk,
                        uint64_t row, uint16_t *q);
void smelt__spiky_key(const struct smelt__problem_options *options, int dqk, int64_t number,
                      uint16_t *key);

/* Sinks of the heads. */
void smelt__sinks_fill(uint64_t seed, uint64_t heads, float *sink);

/* A plausible lse of a row of q, dqk wide, with so many valid slots (at least one), for problems where
 * computing it takes too long: the lse of as many newly drawn keys, but at least as high as any
 * score of the problem. */
double smelt__sparse_attn_estimate_lse(const struct smelt__problem *problem, int dqk,
                                       const uint16_t *q, int64_t valid);

/* The results of a forward pass, as inputs of another. */
struct smelt__forward {
    struct smelt__problem *problem;
    const void *spec, *inputs; /* of the forward pass */
    int heads, dqk, dv;
    int q, out, lse; /* tensors of the problem; out -1: there is none */
    double work;     /* multiplications of all results */
    /* A query's results: out[heads * dv], unless NULL, and lse[heads]. 0, or -1. */
    int (*compute)(const struct smelt__forward *forward, int64_t query, double *out, double *lse);
    int64_t (*valid)(const struct smelt__forward *forward, int64_t query, int head); /* slots */
    double (*denominator)(const struct smelt__forward *forward, int head, double lse);
};

/* Fills out and lse of the queries that are computed; those of others are NaN. In large problems they
 * are invented: what reads them is defined for any, and a kernel does the same work. 0, or -1 when
 * memory runs out. */
int smelt__forward_fill(const struct smelt__forward *forward);

/* Makes the rows of queries NaN that are not computed, so that their use shows in the results. */
void smelt__unlisted_fill(struct smelt__problem *problem, int tensor);

/* ---- forward --------------------------------------------------------------------------------- */

/* The metrics of out and lse; an operator's own may follow. */
enum {
    SMELT__OUT_OVERALL,
    SMELT__OUT_ROW,
    SMELT__OUT_ELEMENT,
    SMELT__OUT_LSE,
    SMELT__OUT_ABSOLUTE,
    SMELT__OUT_SCORE,
    SMELT__OUT_METRICS
};

#define SMELT__OUT_METRIC_ROWS(out, lse)                                                           \
    [SMELT__OUT_OVERALL] = {"relative_error",        "out",          "out, relative",              \
                            "relative error of out", SMELT__OVERALL, out},                         \
    [SMELT__OUT_ROW] = {"relative_error",        "out_row",      "worst row",                      \
                        "relative error of out", SMELT__LARGEST, out},                             \
    [SMELT__OUT_ELEMENT] =                                                                         \
        {"relative_error", "out_element",                                                          \
         "worst element",  "error of an element of out, relative to its terms,",                   \
         SMELT__LARGEST,   out},                                                                   \
    [SMELT__OUT_LSE] = {"max_abs_error", "lse", "lse", "error of lse", SMELT__LARGEST, lse},       \
    [SMELT__OUT_ABSOLUTE] = {"max_abs_error", "out", NULL, "error of out", SMELT__LARGEST, out},   \
    [SMELT__OUT_SCORE] = {"", "largest_score", NULL, "score", SMELT__LARGEST, 0}

/* The rules; `nothing` is what an empty query has none of. SINGLE_SLOT is for operators that set
 * `exact`. */
enum {
    SMELT__OUT_EMPTY,
    SMELT__OUT_FINITE,
    SMELT__OUT_RULES,
    SMELT__OUT_SINGLE = SMELT__OUT_RULES
};

#define SMELT__OUT_RULE_ROWS(out, nothing)                                                         \
    [SMELT__OUT_EMPTY] = {"empty_query", out,                                                      \
                          "out of a query without a valid " nothing " is not 0"},                  \
    [SMELT__OUT_FINITE] = {"finite", out, "out is NaN, infinite or not written"}

/* The expected results of one head of a query. */
struct smelt__expected_out {
    const double *out, *terms;
    const uint16_t *exact; /* NULL: rounding errors are permitted */
    int dv, empty;
};

void smelt__out_compare(const uint16_t *out, const struct smelt__expected_out *expected, int head,
                        struct smelt__finding *finding);

/* Compares one fp32 number of a head, which may be -inf, unless its tensor is absent. `row`: of the
 * tensor. */
void smelt__out_number(const struct smelt__placed *placed, int tensor, int metric, int64_t row,
                       int head, double expected, struct smelt__finding *finding);

/* Sets the bars; the result is lse's. `compared`: rows of out. */
double smelt__out_judge(const struct smelt__problem *problem, int dqk, int64_t compared,
                        struct smelt__metric_result *results);

/* ---- backward -------------------------------------------------------------------------------- */

/* The metrics of rows of gradients. */
enum { SMELT__GRAD_SCORE = SMELT__GRAD_METRICS, SMELT__GRAD_SCORE_METRICS };

#define SMELT__GRAD_SCORE_ROWS(name, outputs)                                                      \
    SMELT__GRAD_METRIC_ROWS(name, outputs), [SMELT__GRAD_SCORE] = {"",      "largest_score", NULL, \
                                                                   "score", SMELT__LARGEST,  0}

struct smelt__expected_row smelt__grad_expected(const double *grads, int columns, double spread,
                                                double cancelled);
void smelt__grad_score_judge(const struct smelt__problem *problem, int64_t compared,
                             struct smelt__metric_result *results);

/* The queries that have a part, as often as they are listed: `prepare` of comparisons, released by
 * free. */
struct smelt__listed_queries {
    int64_t count;
    int64_t numbers[];
};
void *smelt__listed_queries(const struct smelt__placed *placed, const int64_t *units,
                            int64_t count);

/* dsink, by head: the comparison's metrics, rules and bars. */
#define SMELT__DSINK_METRIC(dsink)                                                                 \
    {                                                                                              \
        {                                                                                          \
            "relative_error", "dsink", "dsink", "error of dsink, relative to its terms,",          \
                SMELT__LARGEST, dsink                                                              \
        }                                                                                          \
    }
enum { SMELT__DSINK_FINITE, SMELT__DSINK_UNUSED };
#define SMELT__DSINK_RULE_ROWS(dsink)                                                              \
    {                                                                                              \
        [SMELT__DSINK_FINITE] = {"dsink_finite", dsink, "dsink is NaN, infinite or not written"},  \
        [SMELT__DSINK_UNUSED] = {"unused_sink", dsink,                                             \
                                 "dsink of a head whose sink takes nothing is not 0"},             \
    }
void smelt__dsink_compare(const struct smelt__placed *placed, int tensor, int64_t head,
                          double expected, double terms, struct smelt__finding *finding);
/* The rounding error, of a sum in fp32, relative to its terms and to those of each delta. */
#define SMELT__DSINK_BARS                                                                          \
    { 2e-5 }
