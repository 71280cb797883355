/* The harness's row of quantize. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "harness/footprint.h"
#include "harness/normal.h"
#include "harness/operator.h"
#include "harness/parallel.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "harness/windows.h"
#include "ops/quantize_table.h"
#include "reference/bf16.h"
#include "reference/operators.h"
#include "smelt/quantize.h"

#define TENSOR(name) SMELT__QUANTIZE_##name

/* ---- problems -------------------------------------------------------------------------------- */

/* Rows are batches * tokens. */
static const char *const options[] = {"lists", NULL};

/* With adversarial lists, rows of all magnitudes alternate with normal ones. */
static void draw(const void *spec, struct smelt__random *random,
                 struct smelt__problem_options *given) {
    (void)spec;
    given->tokens = 1 + smelt__random_below(random, 400);
    given->lists = smelt__random_below(random, 2) ? SMELT__LISTS_ADVERSARIAL : SMELT__LISTS_RANDOM;
}

static const struct smelt__problem_options kinds[] = {{.lists = SMELT__LISTS_RANDOM},
                                                      {.lists = SMELT__LISTS_ADVERSARIAL}};

static void shape(struct smelt__problem *problem) {
    smelt_quantize_args *args = problem->args;
    args->rows = problem->options.batches * problem->options.tokens;
}

/* Which optional tensors are given depends on the number of rows, which stays the same if a call is
 * replayed on other data. A multiple of 4, as in timed calls, gives codes and scales only. */
static int given(const struct smelt__problem *problem, int tensor) {
    const int64_t rows = problem->extents[TENSOR(N)];
    switch (tensor) {
    case TENSOR(FACTOR):
        return rows % 2 == 1;
    case TENSOR(DEQUANTIZED):
        return rows % 4 != 0;
    case TENSOR(Y):
        return rows % 8 != 6;
    default:
        return rows % 16 != 4;
    }
}

enum { STREAM_ROWS = 1, STREAM_KINDS, STREAM_FACTOR };

/* Rows that are not normally distributed. */
enum kind {
    ZEROS,
    MINUS_ZEROS,
    SUBNORMAL,
    ANY_BITS,
    HUGE_ONES,
    ONE_INFINITE,
    ONE_NAN,
    ALL_NAN,
    TIES,
    NORMAL,
    KINDS
};

/* The scale of a group of ties is 2^-3 or close to it: its largest element is 56 = 448 / 8. The
 * others are half way between two codes, or next to that. */
static uint16_t tie(struct smelt__random *random, int d) {
    const float steps = (float)(2 * smelt__random_below(random, 16) + 1); /* of half a unit */
    const float unit = ldexpf(1, (int)smelt__random_below(random, 16) - 14);
    const uint16_t bits = smelt__bf16_from_float(steps * unit);
    return d == 0 ? smelt__bf16_from_float(56)
                  : (uint16_t)(bits + smelt__random_below(random, 3) - 1);
}

static uint16_t odd_element(enum kind kind, struct smelt__random *random, int d) {
    const uint16_t any = (uint16_t)smelt__random_next(random);
    switch (kind) {
    case ZEROS:
        return 0;
    case MINUS_ZEROS:
        return 0x8000;
    case SUBNORMAL:
        return any & 0x807f;
    case HUGE_ONES:
        return (any & 0x81ff) | 0x7e00;
    case ALL_NAN:
        return 0x7fff;
    case TIES:
        return tie(random, d);
    default:
        return any;
    }
}

static void make_odd(const struct smelt__problem *problem, int64_t row, uint16_t *to) {
    const int dim = (int)problem->extents[TENSOR(D)];
    struct smelt__random random =
        smelt__random_at(problem->options.seed, STREAM_KINDS, (uint64_t)row);
    const enum kind kind = (enum kind)(((uint64_t)row + problem->options.seed) % KINDS);
    if (kind == ONE_INFINITE)
        to[smelt__random_below(&random, dim)] = row % 2 ? 0x7f80 : 0xff80;
    if (kind == ONE_NAN)
        to[smelt__random_below(&random, dim)] = row / KINDS % 2 ? 0x7f81 : 0xffc1;
    if (kind == NORMAL || kind == ONE_INFINITE || kind == ONE_NAN)
        return;
    for (int d = 0; d < dim; d++) {
        to[d] = odd_element(kind, &random, d % (dim / (int)problem->extents[TENSOR(G)]));
        if (kind != ALL_NAN && (to[d] & 0x7f80) == 0x7f80)
            to[d] &= 0xfff0 ^ 0x0080; /* makes NaN and infinities finite */
    }
}

static void make_rows_odd(void *user, int64_t begin, int64_t end) {
    struct smelt__problem *problem = user;
    for (int64_t row = begin; row < end; row++) {
        uint16_t *to = smelt__problem_data(problem, TENSOR(X));
        to += smelt__problem_at(problem, TENSOR(X), row, 0, 0);
        make_odd(problem, row, to);
    }
}

static int fill(struct smelt__problem *problem) {
    float *const factors = smelt__problem_data(problem, TENSOR(FACTOR));
    struct smelt__random random = smelt__random_at(problem->options.seed, STREAM_FACTOR, 0);
    problem->computed = problem->extents[TENSOR(N)];
    for (int64_t row = 0; factors && row < problem->computed; row++)
        factors[row] = ((float)smelt__random_below(&random, 2000) - 999.5F) / 77.0F;
    smelt__normals_fill(problem, TENSOR(X), STREAM_ROWS);
    if (problem->options.lists == SMELT__LISTS_ADVERSARIAL)
        smelt__parallel_for(problem->computed, 256, make_rows_odd, problem);
    return 0;
}

static double multiplications(const void *spec, const struct smelt__problem_options *given) {
    return 20 * (double)(given->batches * given->tokens) *
           ((const struct smelt__quantize_spec *)spec)->dim;
}

/* The bytes read and written. The ceiling: copying in an H200's memory. */
static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const double dim = (double)problem->extents[TENSOR(D)];
    double bytes = 2 * dim;
    if (given(problem, TENSOR(Y)))
        bytes += dim;
    if (given(problem, TENSOR(DEQUANTIZED)))
        bytes += 2 * dim;
    if (given(problem, TENSOR(SCALE)))
        bytes += 4 * (double)problem->extents[TENSOR(G)];
    found[0] = SMELT__TBS("memory", 2, (double)problem->extents[TENSOR(N)] * bytes / 1e12, 4.1);
    return 1;
}

/* ---- comparison ------------------------------------------------------------------------------ */

enum { CODES, VALUES, SCALES, RULES };

static const struct smelt__rule rules[RULES] = {
    [CODES] = {"codes", SMELT__OF(TENSOR(Y)), "an element has another code"},
    [VALUES] = {"values", SMELT__OF(TENSOR(DEQUANTIZED)), "a dequantized element has other bits"},
    [SCALES] = {"scales", SMELT__OF(TENSOR(SCALE)), "a scale has other bits"},
};

/* Bits of bf16, of which every NaN is the same. */
static uint16_t one_nan(uint16_t bits) {
    return (bits & 0x7fff) > 0x7f80 ? 0x7fff : bits;
}

static void compare(const struct smelt__placed *placed, const void *prepared, int64_t row,
                    struct smelt__finding *finding) {
    enum { WIDEST = 1024 };
    const struct smelt__problem *problem = placed->problem;
    const int64_t dim = problem->extents[TENSOR(D)], groups = problem->extents[TENSOR(G)];
    const uint16_t *const x = smelt__problem_data(problem, TENSOR(X));
    const float *const factors = smelt__problem_data(problem, TENSOR(FACTOR));
    uint8_t codes[WIDEST];
    uint16_t values[WIDEST];
    float scales[WIDEST];
    double expected[WIDEST];
    (void)prepared;
    smelt__quantize_reference(problem->spec, x + smelt__problem_at(problem, TENSOR(X), row, 0, 0),
                              codes, values, scales);
    for (int64_t d = 0; d < dim; d++)
        expected[d] = codes[d];
    const uint8_t *const y = smelt__compared_at(placed, finding, TENSOR(Y), row, 0, dim, expected);
    for (int64_t d = 0; y && d < dim; d++)
        smelt__finding_rule(finding, CODES, y[d] == codes[d], d);
    for (int64_t d = 0; d < dim; d++)
        expected[d] = (double)smelt__bf16_to_float(values[d]);
    const uint16_t *const dequantized =
        smelt__compared_at(placed, finding, TENSOR(DEQUANTIZED), row, 0, dim, expected);
    for (int64_t d = 0; dequantized && d < dim; d++)
        smelt__finding_rule(finding, VALUES, one_nan(dequantized[d]) == one_nan(values[d]), d);
    for (int64_t g = 0; g < groups; g++) {
        scales[g] *= factors ? factors[row] : 1;
        expected[g] = (double)scales[g];
    }
    const float *const got =
        smelt__compared_at(placed, finding, TENSOR(SCALE), row, 0, groups, expected);
    for (int64_t g = 0; got && g < groups; g++)
        smelt__finding_rule(finding, SCALES, memcmp(&got[g], &scales[g], sizeof *got) == 0, dim);
}

static const struct smelt__comparison comparisons[] = {
    {SMELT__UNITS("row", "element", TENSOR(N)), SMELT__RULES(rules), .compare = compare},
};

/* ---- the row --------------------------------------------------------------------------------- */

SMELT__KEY_TABLE(quantize, SMELT__QUANTIZE_KEYS)

static const struct smelt__harness_pass passes[] = {
    {SMELT__PASS(FORWARD, "forward", &smelt__quantize_table), .given = given, .shape = shape,
     .leaves_free = 1},
};

/* The keys of a batch, and the queries of as many tokens with 32 and 64 heads. */
static const struct smelt__harness_shape peers[] = {
    {.spec = "quantize:dim=128", .tokens = 16384},
    {.spec = "quantize:dim=128", .tokens = 16384 * 32},
    {.spec = "quantize:dim=128,scale=power_of_two", .tokens = 16384 * 64},
    {.spec = "quantize:dim=512,groups=8,scale=power_of_two", .tokens = 65539}, /* all outputs */
};

const struct smelt__harness_operator smelt__harness_quantize = {
    SMELT__HARNESS_ROW(quantize),
    SMELT__HARNESS_KEYS(quantize),
    .rows = 1,                /* it has none */
    .small = {.tokens = 301}, /* odd: with factors */
    .draw = draw,
    SMELT__KINDS(kinds),
    .bench = {.tokens = 16384 * 32},
};
