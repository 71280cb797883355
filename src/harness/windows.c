/* See windows.h. */
#include "harness/windows.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "harness/lists.h"
#include "harness/problem.h"
#include "harness/random.h"

enum { STREAM_WINDOW = 151, STREAM_PATTERN };

struct window {
    int64_t begin, end;
};

/* The position of a query among the keys. */
static int64_t position(const struct smelt__problem_options *options, int64_t query) {
    return (query % options->tokens + 1) * options->rows / options->tokens - 1;
}

static struct window make_random(const struct smelt__problem_options *options, int64_t query) {
    struct smelt__random random = smelt__random_at(options->seed, STREAM_WINDOW, (uint64_t)query);
    const int64_t a = smelt__random_below(&random, options->rows + 1);
    const int64_t b = smelt__random_below(&random, options->rows + 1);
    return (struct window){a < b ? a : b, a < b ? b : a};
}

/* The first key of document number `document`. Unequal documents grow linearly: the first of four
 * has a tenth of the keys, the last four tenths. */
static int64_t document_start(const struct smelt__problem_options *options, int64_t document) {
    const int64_t all = options->documents;
    if (options->lists == SMELT__LISTS_PACKED)
        return document * options->rows / all;
    return options->rows * (document * (document + 1)) / (all * (all + 1));
}

static struct window make_causal(const struct smelt__problem_options *options, int64_t query) {
    const int64_t at = position(options, query);
    int64_t document = 0;
    while (document + 1 < options->documents && document_start(options, document + 1) <= at)
        document++;
    return (struct window){document_start(options, document), at + 1};
}

static struct window make_last(const struct smelt__problem_options *options, int64_t query) {
    const int64_t end = position(options, query) + 1;
    return (struct window){end > options->width ? end - options->width : 0, end};
}

static struct window make_log(const struct smelt__problem_options *options, int64_t query) {
    struct smelt__random random = smelt__random_at(options->seed, STREAM_WINDOW, (uint64_t)query);
    const double share = (double)(smelt__random_next(&random) >> 11) * 0x1p-53;
    const int64_t length = (int64_t)exp(share * log((double)options->rows + 2)) - 1;
    const int64_t count = length < options->rows ? length : options->rows;
    const int64_t begin = smelt__random_below(&random, options->rows - count + 1);
    return (struct window){begin, begin + count};
}

static struct window make_adversarial(const struct smelt__problem_options *options, int64_t query) {
    struct smelt__random random = smelt__random_at(options->seed, STREAM_PATTERN, (uint64_t)query);
    const int64_t rows = options->rows, at = smelt__random_below(&random, rows);
    const struct window some = make_random(options, query);
    const struct window patterns[] = {
        {at, at},                   /* empty */
        {some.end + 1, some.begin}, /* inverted */
        {at, at + 1},
        {-5, at + 1},
        {at, rows + 7},
        {INT32_MIN, INT32_MAX},
        some,
        {INT32_MAX, INT32_MIN},
        {rows, rows + 9}, /* behind all keys */
        {-9, 0},          /* before them */
        {rows - 1, rows},
        {0, rows},
    };
    if (options->seed % 8 == 7) /* every key, so that odd values meet full blocks of queries */
        return (struct window){-at, rows + at};
    return patterns[((uint64_t)query + options->seed) % (sizeof patterns / sizeof patterns[0])];
}

/*
 * The window of a query (b * T + t) in the operator's input. The queries of a batch are spread evenly over
 * the keys.
 *
 *   full           every key
 *   random         from one random key to another
 *   causal         packed documents of unequal length: the query's own document, up to the query
 *   packed         the same with documents of equal length
 *   window, drift  the last `width` keys up to the query
 *   log            a random number of keys, whose logarithm is uniform, from a random key on
 *   adversarial    empty, inverted, of one key, reaching outside on either side, with ends far out; with one
 *                  seed in eight (7, 15, ...) every key and beyond
 */
static void make_window(const struct smelt__problem_options *options, int64_t query, int32_t *begin,
                        int32_t *end) {
    struct window window = {0, options->rows};
    switch (options->lists) {
    case SMELT__LISTS_RANDOM:
        window = make_random(options, query);
        break;
    case SMELT__LISTS_CAUSAL:
    case SMELT__LISTS_PACKED:
        window = make_causal(options, query);
        break;
    case SMELT__LISTS_WINDOW:
    case SMELT__LISTS_DRIFT:
        window = make_last(options, query);
        break;
    case SMELT__LISTS_LOG:
        window = make_log(options, query);
        break;
    case SMELT__LISTS_ADVERSARIAL:
        window = make_adversarial(options, query);
        break;
    case SMELT__LISTS_FULL:
    case SMELT__LISTS_KINDS:
        break;
    }
    *begin = (int32_t)window.begin;
    *end = (int32_t)window.end;
}

int64_t smelt__windows_causal_limit(const struct smelt__problem_options *options) {
    /* A window ends at its query's position, which grows by rows / tokens per query, while the
     * query's number grows by 1. */
    const int64_t last = options->rows - options->tokens + 1;
    if (options->lists != SMELT__LISTS_CAUSAL && options->lists != SMELT__LISTS_PACKED &&
        options->lists != SMELT__LISTS_WINDOW && options->lists != SMELT__LISTS_DRIFT)
        return 0;
    return last > 0 ? last : 0;
}

int64_t smelt__windows_fill(struct smelt__problem *problem, int begin_tensor, int end_tensor) {
    const struct smelt__problem_options *options = &problem->options;
    int32_t *const begins = smelt__problem_data(problem, begin_tensor);
    int32_t *const ends = smelt__problem_data(problem, end_tensor);
    int64_t sum = 0;
    for (int64_t query = 0; query < options->batches * options->tokens; query++) {
        int32_t begin, end;
        make_window(options, query, &begins[query], &ends[query]);
        sum += smelt__windows_of(problem, begin_tensor, end_tensor, query, &begin, &end);
    }
    return sum;
}

int64_t smelt__windows_of(const struct smelt__problem *problem, int begin_tensor, int end_tensor,
                          int64_t query, int32_t *begin, int32_t *end) {
    *begin = ((const int32_t *)smelt__problem_data(problem, begin_tensor))[query];
    *end = ((const int32_t *)smelt__problem_data(problem, end_tensor))[query];
    if (*begin < 0)
        *begin = 0;
    if (*end > problem->options.rows)
        *end = (int32_t)problem->options.rows;
    if (*begin >= *end)
        *begin = *end = 0;
    return *end - *begin;
}

/* A prefix sum over the windows' beginnings and ends. */
int smelt__windows_used(const struct smelt__problem *problem, int begin_tensor, int end_tensor,
                        uint8_t *used) {
    const struct smelt__problem_options *options = &problem->options;
    int32_t open = 0, *const steps = calloc((size_t)options->rows + 1, sizeof *steps);
    if (!steps)
        return -1;
    for (int64_t query = 0; query < options->batches * options->tokens; query++) {
        int32_t begin, end;
        smelt__windows_of(problem, begin_tensor, end_tensor, query, &begin, &end);
        steps[begin]++;
        steps[end]--;
    }
    for (int64_t key = 0; key < options->rows; key++) {
        open += steps[key];
        used[key] = open > 0;
    }
    free(steps);
    return 0;
}
