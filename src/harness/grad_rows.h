/*
 * Compares rows of gradients with the reference. Gradients with respect to keys are in one of three
 * tensors: bf16, fp32, or fp32 to which the operator adds.
 */
#pragma once

#include "harness/placed.h"

/* The metrics of a comparison of rows; an operator's own may follow. */
enum { SMELT__GRAD_OVERALL, SMELT__GRAD_ROW, SMELT__GRAD_ABSOLUTE, SMELT__GRAD_METRICS };

/* The metrics' descriptions for a gradient named `name`, such as "dq", in a set of outputs. */
#define SMELT__GRAD_METRIC_ROWS(name, outputs)                                                     \
    [SMELT__GRAD_OVERALL] = {"relative_error",          name,           name ", relative",         \
                             "relative error of " name, SMELT__OVERALL, outputs},                  \
    [SMELT__GRAD_ROW] = {"relative_error",          name "_row",    "worst " name " row",          \
                         "relative error of " name, SMELT__LARGEST, outputs},                      \
    [SMELT__GRAD_ABSOLUTE] = {"max_abs_error",  name,           NULL,                              \
                              "error of " name, SMELT__LARGEST, outputs}

/* The rules for it; `nothing` describes a row without any contribution. */
enum { SMELT__GRAD_FINITE, SMELT__GRAD_NOTHING, SMELT__GRAD_RULES };

#define SMELT__GRAD_RULE_ROWS(name, outputs, nothing)                                              \
    [SMELT__GRAD_FINITE] = {name "_finite", outputs, name " is NaN, infinite or not written"},     \
    [SMELT__GRAD_NOTHING] = {name "_nothing", outputs, name " of " nothing}

/* A row's expected values, and the error that it may have in addition to the bars. */
struct smelt__expected_row {
    const double *grads; /* [columns] */
    int columns;
    double spread; /* root of the sum of squares of the row's addends */
    double lost;   /* bound of the error in its norm from rounding other than to bf16 */
    int none;      /* 1: nothing contributes; the row must be exactly 0, or unchanged */
};

/* `got`: [columns], without previous values that the operator added to. `part`: for messages. */
void smelt__grad_row_compare(const double *got, const struct smelt__expected_row *expected,
                             int64_t part, struct smelt__finding *finding);

/* Sets the bars of both relative errors; `more` is added. */
void smelt__grad_rows_judge(double more, struct smelt__metric_result *results);

/* The same without `more`: the function `judge` of a comparison. */
void smelt__grad_rows_bars(const struct smelt__problem *problem, int64_t compared,
                           struct smelt__metric_result *results);

/* The three tensors, as row numbers of the operator's table, [B,S,columns] or [S,columns]; keys are
 * numbered b * S + row. The option `dkv` selects one. */
struct smelt__key_rows {
    int bf16, fp32, sum, columns;
};

/* Whether the tensor is the selected one of the three. */
int smelt__key_rows_given(const struct smelt__problem *problem, const struct smelt__key_rows *rows,
                          int tensor);

/* Fills the previous values that the operator adds to, with numbers of fp32's full precision, from
 * a stream of the seed. 0; -1: out of memory. */
int smelt__key_rows_fill(struct smelt__problem *problem, const struct smelt__key_rows *rows,
                         uint64_t stream);

#define SMELT__KEY_ROWS(bf16, fp32, sum) (SMELT__OF(bf16) | SMELT__OF(fp32) | SMELT__OF(sum))

/* A key's downloaded row; and its values before the call, or NULL if it is overwritten. */
const void *smelt__key_row(const struct smelt__placed *placed, const struct smelt__key_rows *rows,
                           int64_t key);
const float *smelt__key_row_before(const struct smelt__problem *problem,
                                   const struct smelt__key_rows *rows, int64_t key);

/* A key's downloaded row, [columns], minus its previous contents, for comparison with `expected`.
 * Adds a bound of the addition's rounding error to expected->lost. 0, or -1 when memory runs out. */
int smelt__key_row_read(const struct smelt__placed *placed, const struct smelt__key_rows *rows,
                        int64_t key, struct smelt__expected_row *expected, double *got,
                        struct smelt__finding *finding);
