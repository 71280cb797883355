/* The operator sparse_attn in the harness: its row, and functions for its tests. */
#pragma once

#include "harness/attention.h"
#include "ops/sparse_attn_table.h"
#include "smelt/sparse_attn.h"

/* Functions of its passes, by file: sparse_attn_problem.c, sparse_attn_compare.c; for the backward
 * pass sparse_attn_grad_problem.c, sparse_attn_grad_compare.c. */
int smelt__sparse_attn_given(const struct smelt__problem *problem, int tensor);
int smelt__sparse_attn_fill(struct smelt__problem *problem);
enum {
    SMELT__SPARSE_ATTN_PARTLY = SMELT__OF(SMELT__SPARSE_ATTN_KV) |
                                SMELT__OF(SMELT__SPARSE_ATTN_INDICES) |
                                SMELT__OF(SMELT__SPARSE_ATTN_QUERIES)
};
void smelt__sparse_attn_footprint(const struct smelt__problem *problem,
                                  struct smelt__footprints *footprints);
extern const struct smelt__comparison smelt__sparse_attn_by_query;

/* Fills lse, and out unless it is -1, the tensors of a filled problem, as the forward pass makes
 * them. 0, or -1 when memory runs out. */
int smelt__sparse_attn_fill_results(struct smelt__problem *problem, int out, int lse);

enum { SMELT__SPARSE_ATTN_GRAD_COMPARISONS = 3 };
void smelt__sparse_attn_grad_shape_problem(struct smelt__problem *problem);
int smelt__sparse_attn_grad_given(const struct smelt__problem *problem, int tensor);
int smelt__sparse_attn_grad_fill(struct smelt__problem *problem);
extern const struct smelt__comparison
    smelt__sparse_attn_grad_comparisons[SMELT__SPARSE_ATTN_GRAD_COMPARISONS];

/* dkv's three tensors. */
struct smelt__key_rows smelt__sparse_attn_dkv_rows(const struct smelt__problem *problem);

/* Used by both passes. Sets the extents that differ from the arguments'. */
void smelt__sparse_attn_shape_extents(struct smelt__problem *problem);

/* The arguments of the forward call on a problem's inputs, of either pass, with its query list. */
smelt_sparse_attn_args smelt__sparse_attn_inputs(const struct smelt__problem *problem);

/* Query lists, as an operator with this option has them. Entries at most, and whether there is a
 * count; fills both tensors, by their rows of the table, and *capacity, the args struct's; sets
 * problem->listed. 0, or -1 when memory runs out. */
int64_t smelt__query_list_room(const struct smelt__problem_options *options);
int smelt__query_list_counted(const struct smelt__problem_options *options);
int smelt__query_list_make(struct smelt__problem *problem, int queries_row, int count_row,
                           int64_t *capacity);

/* Functions of harness/operator.h for every operator over lists of slots. Small problems have
 * several key blocks, the last one partial. */
void smelt__sparse_attn_defaults(int dqk, int topk, struct smelt__problem_options *options);
void smelt__sparse_attn_small(int topk, struct smelt__problem_options *options);
void smelt__sparse_attn_draw(int topk, struct smelt__random *random,
                             struct smelt__problem_options *options);
int smelt__sparse_attn_variation(int number, struct smelt__problem_options *options);
int smelt__sparse_attn_trial(int topk, int number, struct smelt__problem_options *options);

/* The rates of the arithmetic (so many multiplications per valid slot) and of the gather (a row of
 * dqk columns per valid slot); returns their number. */
int smelt__sparse_attn_rates(const struct smelt__problem *problem, int dqk, int multiplications,
                             struct smelt__rate found[SMELT__MOST_RATES]);

/* The number of valid slots of a query (b * T + t). */
int64_t smelt__problem_valid_slots(const struct smelt__problem *problem, int64_t query);

/* The downloaded results of a query and head: dv bf16 values; pointers into the copy. */
const uint16_t *smelt__placed_out(const struct smelt__placed *placed, int64_t query, int head);
float smelt__placed_lse(const struct smelt__placed *placed, int64_t query, int head);
float smelt__placed_max_logit(const struct smelt__placed *placed, int64_t query, int head);
