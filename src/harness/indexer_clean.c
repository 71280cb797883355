/* The harness's row of indexer_clean. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "harness/footprint.h"
#include "harness/operator.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "harness/windows.h"
#include "ops/indexer_clean_table.h"
#include "smelt/indexer_clean.h"

#define TENSOR(name) SMELT__INDEXER_CLEAN_##name

/* The definition: whether an element is filled. */
static int is_filled(const smelt_indexer_clean_args *args, int64_t query, int64_t key) {
    const int32_t *const begins = args->window_begin.data, *const ends = args->window_end.data;
    return !(begins[query] <= key && key < ends[query]);
}

/* ---- problems -------------------------------------------------------------------------------- */

static const char *const options[] = {"width", "documents", "lists", NULL};

static int fill(struct smelt__problem *problem) {
    problem->computed = problem->extents[TENSOR(T)];
    problem->valid_slots = smelt__windows_fill(problem, TENSOR(WINDOW_BEGIN), TENSOR(WINDOW_END));
    return 0;
}

/* What lies inside a window is not touched. */
static void footprint(const struct smelt__problem *problem, struct smelt__footprints *footprints) {
    const int64_t rows = problem->extents[TENSOR(S)];
    for (int64_t t = 0; t < problem->extents[TENSOR(T)]; t++) {
        const int64_t row = smelt__problem_at(problem, TENSOR(LOGITS), t, 0, 0);
        int32_t begin, end;
        smelt__windows_of(problem, TENSOR(WINDOW_BEGIN), TENSOR(WINDOW_END), t, &begin, &end);
        smelt__touch(footprints, TENSOR(LOGITS), row, begin);
        smelt__touch(footprints, TENSOR(LOGITS), row + end, rows - end);
    }
}

/* The number of stores, each of which takes the emulator as long as several multiplications. */
static double multiplications(const void *spec, const struct smelt__problem_options *given) {
    (void)spec;
    return 4 * (double)(given->batches * given->tokens) * (double)given->rows;
}

/* The bytes written. The ceiling: an H200's memory. */
static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const double all = (double)problem->extents[TENSOR(T)] * (double)problem->extents[TENSOR(S)];
    found[0] = SMELT__TBS("memory", 2, 4 * (all - (double)problem->valid_slots) / 1e12, 4.1);
    return 1;
}

/* ---- comparison ------------------------------------------------------------------------------ */

#define LOGITS SMELT__OF(TENSOR(LOGITS))

static const struct smelt__rule rules[] = {
    {"outside_window", LOGITS, "a logit outside the window is not -inf"}};

/* Whether the query has an element outside its window. */
static int wanted(const struct smelt__problem *problem, int64_t query) {
    int32_t begin, end;
    return smelt__windows_of(problem, TENSOR(WINDOW_BEGIN), TENSOR(WINDOW_END), query, &begin,
                             &end) < problem->extents[TENSOR(S)];
}

static void compare(const struct smelt__placed *placed, const void *prepared, int64_t query,
                    struct smelt__finding *finding) {
    static const double EXPECTED = -INFINITY;
    const struct smelt__problem *problem = placed->problem;
    const int64_t first = smelt__problem_at(problem, TENSOR(LOGITS), query, 0, 0);
    (void)prepared;
    for (int64_t key = 0; key < problem->extents[TENSOR(S)]; key++) {
        if (!is_filled(problem->args, query, key))
            continue;
        const float *const got =
            smelt__compared_row(placed, finding, TENSOR(LOGITS), first + key, 1, &EXPECTED);
        smelt__finding_rule(finding, 0, isinf(*got) && *got < 0, key);
    }
}

static const struct smelt__comparison comparisons[] = {
    {SMELT__UNITS("query", "key", TENSOR(T)), SMELT__RULES(rules), .wanted = wanted,
     .compare = compare},
};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct smelt__harness_pass passes[] = {
    {SMELT__PASS(FORWARD, "forward", &smelt__indexer_clean_table), .leaves_free = 1,
     SMELT__PARTLY(SMELT__OF(TENSOR(LOGITS)))},
};

#define AT(T, S)                                                                                   \
    {                                                                                              \
        .spec = "indexer_clean", .tokens = T, .rows = S, .lists = SMELT__LISTS_CAUSAL,             \
        .documents = 1                                                                             \
    }

static const struct smelt__harness_shape peers[] = {AT(16384, 16384), AT(4096, 8192)};

const struct smelt__harness_operator smelt__harness_indexer_clean = {
    SMELT__HARNESS_ROW(indexer_clean),
    .rows = 20000,
    .small = {.tokens = 13, .rows = 8192 + 1}, /* two items of a row, the last of one key */
    .most = {.rows = 9000, .width = 9000},
    .bench = {.tokens = 16384, .rows = 16384, .lists = SMELT__LISTS_CAUSAL, .documents = 1},
};
