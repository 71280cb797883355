/* Index rows of problems. Pure functions of options and query number. */
#pragma once

#include <stdint.h>

struct smelt__option;
struct smelt__problem_options;

enum smelt__lists {
    SMELT__LISTS_RANDOM = 0, /* distinct rows of the whole table, in random order */
    SMELT__LISTS_CAUSAL = 1, /* packed documents: a query's own document up to itself, -1 after */
    SMELT__LISTS_WINDOW = 2, /* the last `width` rows up to the query, -1 for those before row 0 */
    SMELT__LISTS_ADVERSARIAL = 3, /* empty rows, duplicates, out-of-range values anywhere */
    SMELT__LISTS_PACKED = 4,      /* as causal, with documents of equal length */
    SMELT__LISTS_LOG = 5,         /* distinct rows, then -1; the logarithm of their number is
                                     uniform */
    SMELT__LISTS_DRIFT = 6,       /* distinct rows; nine in ten are in the same slot of the previous
                             * query's list, as with a trained indexer */
    SMELT__LISTS_FULL = 7,        /* the first `width` rows of the table, ascending */
    SMELT__LISTS_KINDS
};

/* "random", ...; ended by NULL. */
extern const char *const smelt__lists_names[SMELT__LISTS_KINDS + 1];

/* Fills the row of a query (b * T + t), options->width slots. For `counted` lists, returns the
 * number of slots before the masked tail. */
int64_t smelt__lists_make(const struct smelt__problem_options *options, int64_t query,
                          int32_t *row);

/* Whether the lists' valid slots come first, so that their number describes them. */
int smelt__lists_counted(const struct smelt__problem_options *options);

/* A topk_length for lists that are not counted; may be negative or above the width. */
int32_t smelt__lists_length(const struct smelt__problem_options *options, int64_t query);

/* Whether the lists never name this row, so that it can hold NaN, which exposes a kernel that reads
 * it for a masked slot. Adversarial lists avoid the first and the last row. */
int smelt__lists_avoids(const struct smelt__problem_options *options, int64_t row);

/* The option --limits of operators over lists with the tensor `limit`: its index in
 * smelt__problem_options.own, its values, and a query's limit. */
enum { SMELT__LIMITS };
enum { SMELT__LIMITS_NONE, SMELT__LIMITS_CAUSAL, SMELT__LIMITS_ODD, SMELT__LIMITS_KINDS };
extern const struct smelt__option smelt__limits_option;
int32_t smelt__lists_limit(const struct smelt__problem_options *options, int64_t query);
