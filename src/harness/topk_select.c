/* The harness's row of topk_select. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/footprint.h"
#include "harness/operator.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "harness/topk_select_data.h"
#include "ops/topk_select_table.h"
#include "reference/operators.h"
#include "smelt/kernels.h"
#include "smelt/topk_select.h"

#define TENSOR(name) SMELT__TOPK_SELECT_##name

/* ---- options --------------------------------------------------------------------------------- */

enum { DATA, WINDOWS, VALUES }; /* own options by number */
enum windows { WHOLE, CAUSAL, RANDOM };

static const char *const window_kinds[] = {"whole", "causal", "random", NULL};
static const char *const options[] = {NULL};

#define OWN(number) offsetof(struct smelt__problem_options, own[number])
static const struct smelt__option own_options[] = {
    {"data", SMELT__OPTION_CHOICE, OWN(DATA), 0, 0, smelt__topk_data_names,
     "kind of the scores to select from", SMELT__OPTION_INPUTS},
    {"windows", SMELT__OPTION_CHOICE, OWN(WINDOWS), 0, 0, window_kinds, "windows of the rows",
     SMELT__OPTION_INPUTS},
    {"values", SMELT__OPTION_FLAG, OWN(VALUES), 0, 0, NULL, "request the values too", 0},
};

static int64_t count_tokens(const struct smelt__problem_options *given) {
    return given->batches * given->tokens;
}

static void draw(const void *spec, struct smelt__random *random,
                 struct smelt__problem_options *given) {
    enum { SHORT = 300, LONG = 9000, MANY_PARTS = 40000 };
    (void)spec;
    given->rows = 1 + smelt__random_below(random, smelt__random_below(random, 2) ? SHORT : LONG);
    if (smelt__random_below(random, 8) == 0) {
        given->rows = MANY_PARTS - smelt__random_below(random, SHORT);
        given->batches = given->tokens = 1;
    }
}

static const struct smelt__problem_options kinds[] = {
    {.own = {[DATA] = SMELT__TOPK_GAUSSIAN}},
    {.own = {[DATA] = SMELT__TOPK_LEVELS}},
    {.own = {[DATA] = SMELT__TOPK_EQUAL, [WINDOWS] = CAUSAL, [VALUES] = 1}},
    {.own = {[DATA] = SMELT__TOPK_BF16, [WINDOWS] = RANDOM}},
    {.own = {[DATA] = SMELT__TOPK_ZEROS, [WINDOWS] = RANDOM}},
    {.own = {[DATA] = SMELT__TOPK_SPECIAL, [WINDOWS] = RANDOM, [VALUES] = 1}},
};

static const char *inputs(const struct smelt__problem_options *given) {
    return given->own[WINDOWS] == CAUSAL ? "causal" : smelt__topk_data_names[given->own[DATA]];
}

/* ---- problems -------------------------------------------------------------------------------- */

static void shape(struct smelt__problem *problem) {
    const struct smelt__topk_select_spec *spec = problem->spec;
    smelt_topk_select_args *args = problem->args;
    args->index_offset = problem->options.own[WINDOWS] == RANDOM ? 1000 : 0;
    if (spec->expand > 1) /* a list may be wider than it must be */
        args->width = (int64_t)spec->topk * spec->expand + spec->tail * (spec->expand - 1) +
                      (problem->options.strided ? 5 : 0);
    if (problem->options.strided && !problem->options.own[VALUES])
        args->values.strides[0] = spec->topk; /* ignored for an absent tensor */
}

static int64_t width_of(const struct smelt__problem *problem) {
    const struct smelt__topk_select_spec *spec = problem->spec;
    const smelt_topk_select_args *args = problem->args;
    return spec->expand > 1 ? args->width : spec->topk;
}

static int given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__topk_select_spec *spec = problem->spec;
    const int64_t windows = problem->options.own[WINDOWS];
    switch (tensor) {
    case TENSOR(LIMIT):
        return spec->tail || (spec->expand > 1 && windows != WHOLE);
    case TENSOR(OFFSET):
        return windows == RANDOM;
    case TENSOR(VALUES):
        return problem->options.own[VALUES] != 0;
    default: /* windows, lengths */
        return windows != WHOLE;
    }
}

/* Windows of any kind; most are within the row and longer than topk. */
static void draw_window(const struct smelt__problem *problem, int64_t row, int32_t *begin,
                        int32_t *end) {
    const struct smelt__topk_select_spec *spec = problem->spec;
    const int64_t columns = problem->options.rows;
    struct smelt__random random = smelt__random_at(problem->options.seed, 1, (uint64_t)row);
    const int64_t first = smelt__random_below(&random, columns / 4 + 1);
    *begin = (int32_t)first;
    *end = (int32_t)(columns - smelt__random_below(&random, columns / 4 + 1));
    switch (smelt__random_below(&random, 10)) {
    case 0: /* ends before it begins */
        *end = (int32_t)first - 1;
        break;
    case 1:
        *begin = INT32_MIN;
        *end = INT32_MAX;
        break;
    case 2: /* about topk keys */
        *end = (int32_t)(first + spec->topk + smelt__random_below(&random, 5) - 2);
        break;
    case 3:
        *end = (int32_t)(first + smelt__random_below(&random, 3));
        break;
    case 4: /* outside */
        *begin = (int32_t)columns;
        *end = (int32_t)columns + 5;
        break;
    case 5:
        *begin = INT32_MIN;
        *end = -3;
        break;
    default:
        break;
    }
}

/* The rows of a query, of which its window has the complete entries; with random windows any number,
 * too. */
static int32_t draw_limit(const struct smelt__problem *problem, int64_t row, int32_t end) {
    const struct smelt__topk_select_spec *spec = problem->spec;
    const int64_t rows = problem->options.rows, most = rows * spec->expand;
    struct smelt__random random = smelt__random_at(problem->options.seed, 3, (uint64_t)row);
    const int64_t entries = end < 0 ? 0 : end > rows ? rows : end;
    const int64_t usual = entries * spec->expand + smelt__random_below(&random, spec->expand);
    if (problem->options.own[WINDOWS] != RANDOM)
        return (int32_t)usual;
    switch (smelt__random_below(&random, 8)) {
    case 0:
        return INT32_MAX;
    case 1:
        return INT32_MIN;
    case 2:
        return (int32_t)smelt__random_below(&random, most + spec->expand);
    case 3: /* within the last entries */
        return (int32_t)(usual - smelt__random_below(&random, 3 * spec->expand));
    case 4:
        return 1;
    default:
        return (int32_t)usual;
    }
}

static void fill_windows(struct smelt__problem *problem) {
    int32_t *begin = smelt__problem_data(problem, TENSOR(BEGIN));
    int32_t *end = smelt__problem_data(problem, TENSOR(END));
    int32_t *offset = smelt__problem_data(problem, TENSOR(OFFSET));
    int32_t *limit = smelt__problem_data(problem, TENSOR(LIMIT));
    const int64_t tokens = count_tokens(&problem->options), columns = problem->options.rows;
    for (int64_t row = 0; !begin && limit && row < tokens; row++)
        limit[row] = draw_limit(problem, row, (int32_t)columns);
    for (int64_t row = 0; begin && row < tokens; row++) {
        begin[row] = 0;
        end[row] = (int32_t)((row + 1) * columns / tokens);
        if (problem->options.own[WINDOWS] == RANDOM)
            draw_window(problem, row, &begin[row], &end[row]);
        if (offset)
            offset[row] = (int32_t)(row * 7 - 3);
        if (limit)
            limit[row] = draw_limit(problem, row, end[row]);
    }
}

static int fill(struct smelt__problem *problem) {
    const struct smelt__topk_select_spec *spec = problem->spec;
    problem->computed = count_tokens(&problem->options);
    fill_windows(problem);
    for (int64_t row = 0; row < problem->computed; row++) {
        int64_t begin, end;
        smelt__topk_select_window(problem->args, row, &begin, &end);
        problem->valid_slots += end - begin < spec->topk ? end - begin : spec->topk;
    }
    smelt__topk_data_fill(problem, TENSOR(LOGITS), spec->groups,
                          (enum smelt__topk_data)problem->options.own[DATA],
                          smelt__topk_select_window);
    return 0;
}

/* Whether the kernel must read the elements of a window of this length. */
static int is_read(const struct smelt__problem *problem, int64_t length) {
    const struct smelt__topk_select_spec *spec = problem->spec;
    return length > spec->topk || problem->options.own[VALUES] || spec->order == SMELT__ORDER_SCORE;
}

static void footprint(const struct smelt__problem *problem, struct smelt__footprints *footprints) {
    const struct smelt__topk_select_spec *spec = problem->spec;
    const int64_t tokens = count_tokens(&problem->options);
    for (int64_t row = 0; row < tokens * spec->groups; row++) {
        const int64_t query = row / spec->groups, group = row % spec->groups;
        int64_t begin, end;
        smelt__topk_select_window(problem->args, query, &begin, &end);
        if (is_read(problem, end - begin))
            smelt__touch(footprints, TENSOR(LOGITS),
                         smelt__problem_at(problem, TENSOR(LOGITS), query, group, 0) + begin,
                         end - begin);
    }
}

/* The number of elements; each takes the emulator as long as several multiplications. */
static double multiplications(const void *spec, const struct smelt__problem_options *given) {
    const struct smelt__topk_select_spec *select = spec;
    return (double)(count_tokens(given) * select->groups) *
           (20.0 * (double)given->rows + 200.0 * select->topk * select->expand);
}

/* ---- comparison ------------------------------------------------------------------------------ */

enum { INDICES, VALUES_EXACT, LENGTHS, RULES };

static const struct smelt__rule rules[RULES] = {
    [INDICES] =
        {"indices", SMELT__OF(TENSOR(INDICES)),
         "a wrong index: expected are the best in order, ties to the lowest index, then -1"},
    [VALUES_EXACT] = {"values", SMELT__OF(TENSOR(VALUES)),
                      "a value differs from the selected element"},
    [LENGTHS] = {"lengths", SMELT__OF(TENSOR(LENGTHS)), "the length is wrong"},
};

/* A reference row, [topk] each; `numbers`: indices or values as doubles, for smelt__compared_row. */
struct expected {
    int32_t *indices;
    float *values;
    double *numbers;
};

static void compare_row(const struct smelt__placed *placed, int64_t row, int64_t selected,
                        const struct expected *expected, struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__topk_select_spec *spec = problem->spec;
    const int64_t query = row / spec->groups, group = row % spec->groups;
    const int64_t topk = spec->topk, width = width_of(problem);
    const double length = (double)selected;
    for (int64_t i = 0; i < width; i++)
        expected->numbers[i] = expected->indices[i];
    const int32_t *const indices = smelt__compared_at(placed, finding, TENSOR(INDICES), query,
                                                      group, width, expected->numbers);
    for (int64_t i = 0; i < topk; i++)
        expected->numbers[i] = (double)expected->values[i];
    const float *const values =
        smelt__compared_at(placed, finding, TENSOR(VALUES), query, group, topk, expected->numbers);
    const int32_t *const lengths = smelt__compared_row(
        placed, finding, TENSOR(LENGTHS),
        smelt__problem_of_group(problem, TENSOR(LENGTHS), query, group), 1, &length);
    for (int64_t i = 0; i < width; i++)
        smelt__finding_rule(finding, INDICES, indices[i] == expected->indices[i], i);
    for (int64_t i = 0; values && i < topk; i++) /* -0 is not 0 */
        smelt__finding_rule(finding, VALUES_EXACT,
                            memcmp(&values[i], &expected->values[i], sizeof *values) == 0, i);
    if (lengths)
        smelt__finding_rule(finding, LENGTHS, *lengths == selected, 0);
}

static void compare(const struct smelt__placed *placed, const void *prepared, int64_t row,
                    struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__topk_select_spec *spec = problem->spec;
    const size_t topk = (size_t)spec->topk, width = (size_t)width_of(problem);
    const struct expected expected = {malloc(width * sizeof *expected.indices),
                                      malloc(topk * sizeof *expected.values),
                                      malloc(width * sizeof *expected.numbers)};
    const char *const logits = smelt__problem_data(problem, TENSOR(LOGITS));
    const int64_t at =
        smelt__problem_at(problem, TENSOR(LOGITS), row / spec->groups, row % spec->groups, 0);
    (void)prepared;
    const int64_t selected =
        expected.indices && expected.values && expected.numbers
            ? smelt__topk_select_reference(spec, problem->args, row / spec->groups,
                                           logits ? logits + at * (spec->bf16 ? 2 : 4) : NULL,
                                           expected.indices, expected.values)
            : -1;
    finding->failed = selected < 0;
    if (selected >= 0)
        compare_row(placed, row, selected, &expected, finding);
    free(expected.indices);
    free(expected.values);
    free(expected.numbers);
}

static const struct smelt__comparison comparisons[] = {
    {SMELT__UNITS("row", "slot", TENSOR(T), TENSOR(G)), SMELT__RULES(rules), .compare = compare},
};

/* ---- figures --------------------------------------------------------------------------------- */

/* The windows are read once. The ceiling: reading from an H200's memory. */
static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__topk_select_spec *spec = problem->spec;
    double elements = 0;
    for (int64_t row = 0; row < problem->computed; row++) {
        int64_t begin, end;
        smelt__topk_select_window(problem->args, row, &begin, &end);
        elements += is_read(problem, end - begin) ? (double)(end - begin) : 0;
    }
    elements *= (spec->bf16 ? 0.5 : 1) * spec->groups;
    found[0] = SMELT__TBS("read", 2, elements * 4 / 1e12, 4.26);
    return 1;
}

#define AT(topk, T, S)                                                                             \
    { .spec = "topk_select:topk=" #topk, .tokens = T, .rows = S }

static const struct smelt__harness_shape peers[] = {AT(2048, 4096, 32768), AT(512, 8192, 8192),
                                                    AT(2048, 512, 131072), AT(2048, 1, 1048576)};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct smelt__harness_key keys[] = {
    SMELT__SPEC_KEY(topk_select, topk),
    SMELT__SPEC_KEY(topk_select, order),
    {"dtype", offsetof(struct smelt__topk_select_spec, bf16), 0},
    SMELT__SPEC_KEY(topk_select, groups),
    SMELT__SPEC_KEY(topk_select, pinned),
    SMELT__SPEC_KEY(topk_select, expand),
    SMELT__SPEC_KEY(topk_select, tail),
    {NULL, 0, 0},
};

#define PASS(number)                                                                               \
    {                                                                                              \
        SMELT__PASS(FORWARD, "forward", &smelt__topk_select_table[number]),                        \
            .table = (number), .given = given, .shape = shape,                                     \
            SMELT__PARTLY(SMELT__OF(TENSOR(LOGITS)))                                               \
    }
static const struct smelt__harness_pass passes[] = {PASS(0), PASS(1), PASS(2), PASS(3),
                                                    PASS(4), PASS(5), PASS(6), PASS(7)};

const struct smelt__harness_operator smelt__harness_topk_select = {
    SMELT__HARNESS_ROW(topk_select),
    SMELT__HARNESS_KEYS(topk_select),
    .own_options = own_options,
    .own_option_count = sizeof own_options / sizeof own_options[0],
    .rows = 16384,
    .small = {.tokens = 3,
              .rows = 6700}, /* more than a block's list, so that the kernel draws a sample */
    .draw = draw,
    SMELT__KINDS(kinds),
    .inputs = inputs,
    .bench = {.tokens = 4096, .rows = 32768},
};
