/* Windows of problems: each query's range of keys. Pure functions of options and query number. The
 * kinds are those of the lists (lists.h). */
#ifndef SMELT_HARNESS_WINDOWS_H
#define SMELT_HARNESS_WINDOWS_H

#include <stdint.h>

struct smelt__problem;
struct smelt__problem_options;

/*
 * The window of a query (b * T + t) as an operator is given it. The queries of a batch stand evenly
 * among the keys.
 *   full          every key
 *   random        between any two keys
 *   causal        packed documents of unequal length: the query's own, up to itself
 *   packed        the same of equal length
 *   window, drift the last `width` keys up to the query
 *   log           that many from any key on: the number's logarithm is uniform
 *   adversarial   empty, inverted, of one key, reaching outside on either side, with ends far out;
 *                 with one seed in eight (7, 15, ...) every key and beyond
 */
void smelt__windows_make(const struct smelt__problem_options *options, int64_t query,
                         int32_t *begin, int32_t *end);

/* By how many keys windows reach beyond their query's number at most: above 0 where they grow with
 * it, else 0. */
int64_t smelt__windows_causal_limit(const struct smelt__problem_options *options);

/* A window clipped to [0, rows); an empty one becomes [0, 0). Its number of keys. */
int64_t smelt__windows_clip(int64_t rows, int32_t *begin, int32_t *end);

/* Fills the tensors that hold the windows of all queries, by their rows in the table; the sum of
 * their numbers of keys. */
int64_t smelt__windows_fill(struct smelt__problem *problem, int begin_tensor, int end_tensor);

/* The window of a query, clipped, of a problem that was filled. Its number of keys. */
int64_t smelt__windows_of(const struct smelt__problem *problem, int begin_tensor, int end_tensor,
                          int64_t query, int32_t *begin, int32_t *end);

#endif
