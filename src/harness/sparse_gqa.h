/* The operator sparse_gqa in the harness: what its files share. */
#pragma once

#include "harness/attention.h"
#include "ops/sparse_gqa_table.h"

enum { SMELT__LIMITS }; /* own options by number */
enum { SMELT__LIMITS_NONE, SMELT__LIMITS_CAUSAL, SMELT__LIMITS_ODD, SMELT__LIMITS_KINDS };

static inline int64_t smelt__least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- problems (sparse_gqa_problem.c): as struct smelt__harness_pass has them, of both passes --- */

void smelt__sparse_gqa_shape(struct smelt__problem *problem);
int smelt__sparse_gqa_given(const struct smelt__problem *problem, int tensor);
#define SMELT__SPARSE_GQA_PARTLY(v)                                                                \
    (SMELT__OF(SMELT__SPARSE_GQA_K) | SMELT__OF(SMELT__SPARSE_GQA_INDICES) |                       \
     SMELT__OF(SMELT__SPARSE_GQA_QUERIES) | (v))
void smelt__sparse_gqa_footprint(const struct smelt__problem *problem,
                                 struct smelt__footprints *footprints);

/* The forward call on a problem's inputs, of either pass, with all strides. */
smelt_sparse_gqa_args smelt__sparse_gqa_inputs(const struct smelt__problem *problem);

/* The inputs of both passes; and of a filled problem lse, and out unless it is -1. 0, or -1 when
 * memory runs out. */
int smelt__sparse_gqa_fill(struct smelt__problem *problem);
int smelt__sparse_gqa_fill_results(struct smelt__problem *problem, int out, int lse);

/* ---- options and figures (sparse_gqa.c), of sparse_gqa_scores, too --------------------------- */

extern const struct smelt__option smelt__sparse_gqa_options[1]; /* own ones */
void smelt__sparse_gqa_defaults(const void *spec, struct smelt__problem_options *given);
void smelt__sparse_gqa_small(const void *spec, struct smelt__problem_options *given);
void smelt__sparse_gqa_draw(const void *spec, struct smelt__random *random,
                            struct smelt__problem_options *given);
int smelt__sparse_gqa_variation(int number, struct smelt__problem_options *given);
int smelt__sparse_gqa_trial(const void *spec, int number, struct smelt__problem_options *given);
/* `columns`: of the products with each row of a query's list, and of what is gathered of it. */
int smelt__sparse_gqa_rates(const struct smelt__problem *problem, int columns,
                            struct smelt__rate found[SMELT__MOST_RATES]);

/* ---- the backward pass (sparse_gqa_grad.c) --------------------------------------------------- */

/* The three tensors of dk and of dv. */
struct smelt__key_rows smelt__sparse_gqa_dk(const struct smelt__problem *problem);
struct smelt__key_rows smelt__sparse_gqa_dv(const struct smelt__problem *problem);

int smelt__sparse_gqa_grad_fill(struct smelt__problem *problem);

enum { SMELT__SPARSE_GQA_GRAD_COMPARISONS = 4 };
extern const struct smelt__comparison
    smelt__sparse_gqa_grad_comparisons[SMELT__SPARSE_GQA_GRAD_COMPARISONS];
