#include "harness/lists.h"

#include <limits.h>
#include <math.h>

#include "harness/options.h"
#include "harness/random.h"

const char *const smelt__lists_names[SMELT__LISTS_KINDS + 1] = {
    "random", "causal", "window", "adversarial", "packed", "log", "drift", "full", NULL};

enum {
    STREAM_ROWS = 101,
    STREAM_PLACES,
    STREAM_PATTERN,
    STREAM_LENGTH,
    STREAM_COUNT,
    STREAM_DRIFT
};

/* A random permutation of [0, count): an invertible mixing of [0, next power of two), repeated
 * until the result is below count. */
struct permutation {
    uint64_t count, mask, first_factor, second_factor, offset;
    int shift;
};

static struct permutation permutation_make(struct smelt__random random, int64_t count) {
    struct permutation p = {.count = (uint64_t)count};
    int bits = 0;
    while ((1ULL << bits) < p.count)
        bits++;
    p.mask = (1ULL << bits) - 1;
    p.shift = bits < 2 ? 1 : (bits + 1) / 2;
    p.first_factor = smelt__random_next(&random) | 1;
    p.second_factor = smelt__random_next(&random) | 1;
    p.offset = smelt__random_next(&random);
    return p;
}

static int64_t permute(const struct permutation *p, int64_t number) {
    uint64_t x = (uint64_t)number;
    do {
        x = (x * p->first_factor + p->offset) & p->mask;
        x ^= x >> p->shift;
        x = (x * p->second_factor) & p->mask;
        x ^= x >> p->shift;
    } while (x >= p->count);
    return (int64_t)x;
}

static void make_random(const struct smelt__problem_options *options, int64_t query, int32_t *row) {
    int64_t count = options->valid > 0 ? options->valid : options->width;
    if (count > options->width)
        count = options->width;
    if (count > options->rows)
        count = options->rows;
    struct permutation rows = permutation_make(
        smelt__random_at(options->seed, STREAM_ROWS, (uint64_t)query), options->rows);
    struct permutation slots = permutation_make(
        smelt__random_at(options->seed, STREAM_PLACES, (uint64_t)query), options->width);
    for (int64_t i = 0; i < options->width; i++)
        row[i] = -1;
    for (int64_t i = 0; i < count; i++)
        row[count == options->width ? i : permute(&slots, i)] = (int32_t)permute(&rows, i);
}

/* The row at a query's position: the queries of a batch spread evenly over its rows. */
static int64_t position(const struct smelt__problem_options *options, int64_t query) {
    return query % options->tokens * options->rows / options->tokens;
}

/* Documents grow linearly: the first of four takes a tenth of the rows, the last four tenths. */
static int64_t document_start(const struct smelt__problem_options *options, int64_t at) {
    int64_t start = 0, all = options->documents * (options->documents + 1);
    for (int64_t d = 1; d < options->documents; d++) {
        int64_t next = options->rows * (d * (d + 1)) / all;
        if (next > at)
            break;
        start = next;
    }
    return start;
}

/* Documents whose lengths differ by at most one row. */
static int64_t equal_start(const struct smelt__problem_options *options, int64_t at) {
    int64_t document = at * options->documents / options->rows;
    while ((document + 1) * options->rows / options->documents <= at)
        document++;
    return document * options->rows / options->documents;
}

static int64_t make_causal(const struct smelt__problem_options *options, int64_t query,
                           int32_t *row) {
    int64_t count = 0;
    if (options->rows > 0) {
        int64_t at = position(options, query);
        int64_t start = options->lists == SMELT__LISTS_PACKED ? equal_start(options, at)
                                                              : document_start(options, at);
        int64_t available = at - start + 1;
        struct permutation rows = permutation_make(
            smelt__random_at(options->seed, STREAM_ROWS, (uint64_t)query), available);
        for (; count < available && count < options->width; count++)
            row[count] = (int32_t)(start + permute(&rows, count));
    }
    for (int64_t i = count; i < options->width; i++)
        row[i] = -1;
    return count;
}

/* The number of rows is limited by the width and the table; log(number + 1) is uniform, rounded
 * down, so 0 is possible. */
static int64_t make_log(const struct smelt__problem_options *options, int64_t query, int32_t *row) {
    const int64_t most = options->width < options->rows ? options->width : options->rows;
    struct smelt__random random = smelt__random_at(options->seed, STREAM_COUNT, (uint64_t)query);
    const double share = (double)(smelt__random_next(&random) >> 11) * 0x1p-53;
    const int64_t count = (int64_t)exp(share * log((double)most + 2)) - 1;
    struct permutation rows = permutation_make(
        smelt__random_at(options->seed, STREAM_ROWS, (uint64_t)query), options->rows);
    for (int64_t i = 0; i < options->width; i++)
        row[i] = i < count ? (int32_t)permute(&rows, i) : -1;
    return count;
}

/* A window that slides over a random order of the batch's rows by a tenth of its length per query.
 * A row's number in this order determines its slot, so that rows that remain keep their slots. */
static void make_drift(const struct smelt__problem_options *options, int64_t query, int32_t *row) {
    enum { RENEWED = 10 }; /* one slot in so many changes per query */
    const int64_t count = options->width < options->rows ? options->width : options->rows;
    const int64_t first = query % options->tokens * count / RENEWED;
    struct permutation rows = permutation_make(
        smelt__random_at(options->seed, STREAM_DRIFT, (uint64_t)(query / options->tokens)),
        options->rows);
    for (int64_t i = 0; i < options->width; i++)
        row[i] = -1;
    for (int64_t number = first; number < first + count; number++)
        row[number % count] = (int32_t)permute(&rows, number % options->rows);
}

static void make_window(const struct smelt__problem_options *options, int64_t query, int32_t *row) {
    int64_t first = position(options, query) - options->width + 1;
    for (int64_t i = 0; i < options->width; i++)
        row[i] = first + i >= 0 && options->rows > 0 ? (int32_t)(first + i) : -1;
}

static void make_full(const struct smelt__problem_options *options, int32_t *row) {
    for (int64_t i = 0; i < options->width; i++)
        row[i] = i < options->rows ? (int32_t)i : -1;
}

int smelt__lists_avoids(const struct smelt__problem_options *options, int64_t row) {
    return options->lists == SMELT__LISTS_ADVERSARIAL && options->rows >= 3 &&
           (row == 0 || row == options->rows - 1);
}

enum pattern {
    ALL_MASKED,
    ONE_ROW_REPEATED,
    VALID_LAST,
    LAST_SLOT_ONLY,
    HALF_SCATTERED,
    FIRST_SLOT_ONLY,
    THREE_ROWS_REPEATED,
    FEW_SCATTERED,
    ALL_VALID,
    MIDDLE_MASKED,
    PATTERNS
};

static int slot_valid(enum pattern pattern, int64_t slot, int64_t width,
                      struct smelt__random *random) {
    switch (pattern) {
    case ALL_MASKED:
        return 0;
    case VALID_LAST:
        return slot >= width - (width + 3) / 4;
    case LAST_SLOT_ONLY:
        return slot == width - 1;
    case FIRST_SLOT_ONLY:
        return slot == 0;
    case HALF_SCATTERED:
        return smelt__random_below(random, 2) == 0;
    case FEW_SCATTERED:
        return smelt__random_below(random, 16) == 0;
    case MIDDLE_MASKED:
        return slot < width / 3 || slot >= width - width / 3;
    default:
        return 1;
    }
}

static int32_t masked_value(const struct smelt__problem_options *options,
                            struct smelt__random *random) {
    const int32_t values[] = {-1, (int32_t)options->rows, INT32_MAX, INT32_MIN, -2};
    return values[smelt__random_below(random, 5)];
}

static void make_adversarial(const struct smelt__problem_options *options, int64_t query,
                             int32_t *row) {
    struct smelt__random random = smelt__random_at(options->seed, STREAM_PATTERN, (uint64_t)query);
    enum pattern pattern = (enum pattern)(((uint64_t)query + options->seed) % PATTERNS);
    int64_t first = options->rows >= 3 ? 1 : 0;
    int64_t count = options->rows >= 3 ? options->rows - 2 : options->rows;
    int64_t favourite = count > 0 ? smelt__random_below(&random, count) : 0;
    for (int64_t i = 0; i < options->width; i++) {
        if (count == 0 || !slot_valid(pattern, i, options->width, &random)) {
            row[i] = masked_value(options, &random);
            continue;
        }
        int64_t chosen = smelt__random_below(&random, count);
        if (pattern == ONE_ROW_REPEATED)
            chosen = favourite;
        else if (pattern == THREE_ROWS_REPEATED)
            chosen = (favourite + smelt__random_below(&random, 3)) % count;
        row[i] = (int32_t)(first + chosen);
    }
}

int64_t smelt__lists_make(const struct smelt__problem_options *options, int64_t query,
                          int32_t *row) {
    switch (options->lists) {
    case SMELT__LISTS_CAUSAL:
    case SMELT__LISTS_PACKED:
        return make_causal(options, query, row);
    case SMELT__LISTS_LOG:
        return make_log(options, query, row);
    case SMELT__LISTS_DRIFT:
        make_drift(options, query, row);
        break;
    case SMELT__LISTS_WINDOW:
        make_window(options, query, row);
        break;
    case SMELT__LISTS_ADVERSARIAL:
        make_adversarial(options, query, row);
        break;
    case SMELT__LISTS_FULL:
        make_full(options, row);
        break;
    case SMELT__LISTS_RANDOM:
    case SMELT__LISTS_KINDS:
        make_random(options, query, row);
        break;
    }
    return options->width;
}

int smelt__lists_counted(const struct smelt__problem_options *options) {
    return options->lists == SMELT__LISTS_CAUSAL || options->lists == SMELT__LISTS_PACKED ||
           options->lists == SMELT__LISTS_LOG;
}

int32_t smelt__lists_length(const struct smelt__problem_options *options, int64_t query) {
    struct smelt__random random = smelt__random_at(options->seed, STREAM_LENGTH, (uint64_t)query);
    switch (smelt__random_below(&random, 8)) {
    case 0:
        return 0;
    case 1:
        return -3;
    case 2:
        return (int32_t)options->width + 7;
    case 3:
        return (int32_t)options->width;
    default:
        return (int32_t)smelt__random_below(&random, options->width + 1);
    }
}

static const char *const limits_names[] = {"none", "causal", "odd", NULL};
const struct smelt__option smelt__limits_option = {
    "limits",
    SMELT__OPTION_CHOICE,
    offsetof(struct smelt__problem_options, own[SMELT__LIMITS]),
    0,
    SMELT__LIMITS_KINDS - 1,
    limits_names,
    "the rows that a query may read. `none`: all; `causal`: up to its own; `odd`: any number, also "
    "out of range.",
    SMELT__OPTION_INPUTS};

/* Causal: rows up to the query's own. Odd: any number, usually in the middle of an entry, sometimes out of
 * range. */
int32_t smelt__lists_limit(const struct smelt__problem_options *options, int64_t query) {
    enum { STREAM_LIMITS = 4 }; /* recorded comparisons depend on the number */
    struct smelt__random random = smelt__random_at(options->seed, STREAM_LIMITS, (uint64_t)query);
    const int64_t odd[] = {-1, INT32_MAX, INT32_MIN, 1}, rows = options->rows;
    const int64_t kind = smelt__random_below(&random, 12);
    return (int32_t)(options->own[SMELT__LIMITS] == SMELT__LIMITS_CAUSAL
                         ? query % options->tokens * rows / options->tokens + 1
                     : kind < 4 ? odd[kind]
                     : kind < 8 ? rows - smelt__random_below(&random, rows / 2 + 1)
                                : smelt__random_below(&random, rows + 1));
}
