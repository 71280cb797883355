/* Windows of problems: each query's range of keys. Pure functions of options and query number. The
 * kinds are those of the lists (lists.h). */
#pragma once

#include <stdint.h>

struct smelt__problem;
struct smelt__problem_options;

/* By how many keys windows reach beyond their query's number at most: above 0 where they grow with
 * it, else 0. */
int64_t smelt__windows_causal_limit(const struct smelt__problem_options *options);

/* Fills the tensors that hold the windows of all queries, by their rows in the table; the sum of
 * their numbers of keys. */
int64_t smelt__windows_fill(struct smelt__problem *problem, int begin_tensor, int end_tensor);

/* The window of a query of a problem that was filled, clipped to [0, rows); an empty one is [0, 0). Its
 * number of keys. */
int64_t smelt__windows_of(const struct smelt__problem *problem, int begin_tensor, int end_tensor,
                          int64_t query, int32_t *begin, int32_t *end);
