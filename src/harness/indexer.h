/* Shared by the indexer's operators: options and inputs of those with windows; q, k, weights and
 * scales of all; the comparison of logits. */
#pragma once

#include "harness/grad_rows.h"
#include "harness/problem.h"
#include "reference/operators.h"

struct smelt__finding;
struct smelt__placed;
struct smelt__random;

/* The sizes of an operator's problems with windows: several blocks of keys, the last one partial. */
#define SMELT__INDEXER_OPTIONS                                                                     \
    .small = {.tokens = 19, .rows = 531, .width = 100}, .most = {.rows = 700, .width = 700},       \
    .trial = {.tokens = 70, .rows = 1100}

/* An operator's inputs, as row numbers of its table; T is batches * tokens, S is rows. */
struct smelt__indexer_inputs {
    int heads, dim, dtype; /* dtype: of enum smelt__dtype */
    int q, k;
    int weights;                  /* -1: the spec has none */
    int k_scale;                  /* given with e4m3 only; -1: the operator has none */
    int window_begin, window_end; /* of operators with windows */
};

/*
 * Fills q, k, weights and scales, and sets the problem's `computed`. Keys that are not `used`
 * ([rows]) hold NaN, so that a kernel that reads one gives NaN. With adversarial lists some weights
 * and some used keys and scales are NaN or infinite, or make logits that are too small for fp32. 0,
 * or -1 when memory runs out.
 */
int smelt__indexer_fill_rows(struct smelt__problem *problem,
                             const struct smelt__indexer_inputs *inputs, const uint8_t *used);

/* Fills the windows and, as above, the other inputs; keys in a window are used. Sets `valid_slots`
 * to the number of keys in all windows. */
int smelt__indexer_fill(struct smelt__problem *problem, const struct smelt__indexer_inputs *inputs);

/* The default number of a query's candidates, which are blocks of `block` keys: half of the blocks, at most
 * 2048; 0 if block is 0. */
int64_t smelt__candidates_default(int64_t block, int64_t rows);

/* Fills a tensor [T,C] of candidates: ascending block numbers, then -1. With adversarial windows some are out
 * of range, and if `unordered` the others are in random order and some are listed twice. */
void smelt__candidates_fill(struct smelt__problem *problem, int tensor, int64_t block,
                            int unordered);

/* Stores a weight of a head in tensor `tensor`, of fp32 or bf16. */
void smelt__indexer_store_weight(const struct smelt__problem *problem, int tensor, int64_t query,
                                 int head, float weight);

/* ---- gradients, of indexer_bwd and indexer_dense_loss ---------------------------------------- */

/* The metrics of dq and dweights; an operator's own may follow. */
enum { SMELT__INDEXER_DWEIGHTS = SMELT__GRAD_METRICS, SMELT__INDEXER_QUERY_METRICS };
#define SMELT__INDEXER_QUERY_METRIC_ROWS(dq, dweights)                                             \
    SMELT__GRAD_METRIC_ROWS("dq", dq),                                                             \
        [SMELT__INDEXER_DWEIGHTS] = {                                                              \
            "relative_error",     "dweights",                                                      \
            "dweights, relative", "error of dweights, relative to the sum of its terms' sizes,",   \
            SMELT__LARGEST,       dweights}

/* Sets the bars of these metrics. `tolerance`: of dweights, in addition to rounding to bf16; weights_dtype:
 * of enum smelt__weights_dtype. */
void smelt__indexer_query_judge(int weights_dtype, double tolerance,
                                struct smelt__metric_result *results);

/* The gradients of a head, which the reference computes as head `within` of a call. dq, dweights: row numbers
 * of the operator's table. */
struct smelt__indexer_head {
    int dq, dweights;
    int64_t query;
    int head, within;
    double lost; /* additional permitted error of dq's row, per unit of the head's weight */
    double more; /* added to the sum of the sizes of dweights' terms */
};

/* Compares a head's gradients. `memory`: [2 * dim], scratch. */
void smelt__indexer_head_compare(const struct smelt__placed *placed,
                                 const struct smelt__indexer_head *head,
                                 const struct smelt__indexer_bwd_spec *spec,
                                 const smelt_indexer_bwd_args *args, double *memory,
                                 struct smelt__finding *finding);

/* Compares a key's row of dk. `lost`: an additional permitted error; `got`: [dim], scratch. */
void smelt__indexer_key_compare(const struct smelt__placed *placed,
                                const struct smelt__key_rows *rows, int64_t key,
                                const struct smelt__indexer_bwd_row *row, double lost, double *got,
                                struct smelt__finding *finding);

/* ---- logits ---------------------------------------------------------------------------------- */

/* The metrics of a comparison of logits. */
enum {
    SMELT__LOGITS_RELATIVE, /* error, relative to the sum of the terms' sizes */
    SMELT__LOGITS_ABSOLUTE,
    SMELT__LOGITS_METRICS
};
/* The metrics' descriptions for a set of outputs, and the common rules; operators add further
 * rules. */
#define SMELT__LOGITS_METRIC_ROWS(outputs)                                                         \
    [SMELT__LOGITS_RELATIVE] = {"relative_error",                                                  \
                                "logits",                                                          \
                                "logits, relative",                                                \
                                "error of a logit, relative to the sum of its terms' sizes,",      \
                                SMELT__LARGEST,                                                    \
                                outputs},                                                          \
    [SMELT__LOGITS_ABSOLUTE] = {"max_abs_error",    "logits",       NULL,                          \
                                "error of a logit", SMELT__LARGEST, outputs}

enum { SMELT__LOGITS_NUMBER, SMELT__LOGITS_INFINITE, SMELT__LOGITS_RULES };

#define SMELT__LOGITS_RULE_ROWS(outputs)                                                           \
    [SMELT__LOGITS_NUMBER] = {"number", outputs, "a logit is NaN, not written, or -0"},            \
    [SMELT__LOGITS_INFINITE] = {"infinite", outputs,                                               \
                                "a logit of infinities or NaN is wrong, or a finite one infinite"}

/* Permitted relative error of logits of bf16: fp32 sums of bf16 products. */
#define SMELT__LOGITS_TOLERANCE 1e-5

/* The error of a finite logit, beyond fp32's rounding error of small numbers. */
double smelt__logits_error(double got, double expected);

/* Compares one logit, number `part` of its row, with the reference's; `terms`: the error is
 * relative to it; -inf: either infinity is correct. */
void smelt__logits_compare(float got, double expected, double terms, int64_t part,
                           struct smelt__finding *finding);
