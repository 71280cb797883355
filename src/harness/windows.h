/* Windows of problems: each query's range of keys. Pure functions of options and query number. The
 * kinds are those of the lists (lists.h). */
#pragma once

#include <stdint.h>

struct smelt__problem;
struct smelt__problem_options;

/* The largest number of keys by which a window ends beyond its query's number, for windows that
 * grow with it; 0 for others. */
int64_t smelt__windows_causal_limit(const struct smelt__problem_options *options);

/* Fills the tensors of the windows, given as row numbers of the table; returns the total number of
 * keys in all windows. */
int64_t smelt__windows_fill(struct smelt__problem *problem, int begin_tensor, int end_tensor);

/* The window of a query of a filled problem, clipped to [0, rows); an empty one is [0, 0). Returns
 * its number of keys. */
int64_t smelt__windows_of(const struct smelt__problem *problem, int begin_tensor, int end_tensor,
                          int64_t query, int32_t *begin, int32_t *end);

/* Marks the keys in the windows of a filled problem: used[rows]. 0; -1: out of memory. */
int smelt__windows_used(const struct smelt__problem *problem, int begin_tensor, int end_tensor,
                        uint8_t *used);
