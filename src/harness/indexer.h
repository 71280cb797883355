/* Shared by the indexer's operators: options and inputs of those with windows; q, k, weights and
 * scales of all; the comparison of logits. */
#pragma once

#include "harness/grad_rows.h"
#include "harness/problem.h"
#include "reference/operators.h"

struct smelt__finding;
struct smelt__placed;
struct smelt__random;

/* The options of an operator with windows: several blocks of keys, the last one partial. */
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

/* Stores a weight of a head in tensor `tensor`, of fp32 or bf16. */
void smelt__indexer_store_weight(const struct smelt__problem *problem, int tensor, int64_t query,
                                 int head, float weight);

/* The gradient of a weight, of fp32 or bf16, as smelt__compared_row reads it. */
double smelt__indexer_compared_dweight(const struct smelt__placed *placed,
                                       struct smelt__finding *finding, int tensor, int64_t query,
                                       int head, const double *expected);

/* Its permitted error, relative to the sum of its terms' sizes, beside `tolerance`: that of rounding to
 * bf16. weights_dtype: of enum smelt__weights_dtype. */
static inline double smelt__indexer_dweight_bar(int weights_dtype, double tolerance) {
    return tolerance + (weights_dtype == SMELT__WEIGHTS_BF16 ? 0x1p-8 : 0);
}

/* The expected row of gradients. `lost`: an error that is permitted in addition to rounding. */
static inline struct smelt__expected_row
smelt__indexer_expected_row(const struct smelt__indexer_bwd_row *row, int columns, double lost) {
    return (struct smelt__expected_row){
        .grads = row->grads,
        .columns = columns,
        .spread = row->spread,
        .lost = row->doubtful + lost,
        .none = row->spread == 0 && row->doubtful == 0 && lost == 0,
    };
}

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
