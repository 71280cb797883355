/* The harness's row of indexer_topk. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "harness/footprint.h"
#include "harness/indexer.h"
#include "harness/operator.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "harness/windows.h"
#include "ops/indexer_topk_table.h"
#include "reference/operators.h"
#include "smelt/indexer_topk.h"

#define TENSOR(name) SMELT__INDEXER_TOPK_##name

enum { STREAM_OFFSET = 31 };

/* ---- options --------------------------------------------------------------------------------- */

static const char *const options[] = {"width",      "documents",       "lists", "topk-length",
                                      "max-logits", "workspace-limit", NULL};

static void draw(const void *spec, struct smelt__random *random,
                 struct smelt__problem_options *given) {
    smelt__indexer_draw(spec, random, given);
    given->topk_length = smelt__random_below(random, 2) == 0;
    given->max_logits = smelt__random_below(random, 2) == 0;
}

/* The last two use all optional tensors. */
static int variation(int number, struct smelt__problem_options *given) {
    enum { PLAIN = SMELT__INDEXER_VARIATIONS };
    if (number < PLAIN)
        return smelt__indexer_variation(number, given);
    given->topk_length = given->max_logits = 1;
    given->lists = number == PLAIN ? SMELT__LISTS_LOG : SMELT__LISTS_ADVERSARIAL;
    return number < PLAIN + 2;
}

static int trial(const void *spec, int number, struct smelt__problem_options *given) {
    given->max_logits = 1;
    return smelt__indexer_trial(spec, number, given);
}

/* ---- problems -------------------------------------------------------------------------------- */

static int is_bf16(const void *spec) {
    return ((const struct smelt__indexer_topk_spec *)spec)->dtype == SMELT__DTYPE_BF16;
}

static int is_fp8(const void *spec) {
    return !is_bf16(spec);
}

/* Splits small problems into chunks of about a fifth of the queries, unless windows are full. */
static size_t limit_of(const struct smelt__problem_options *given) {
    enum { SMALL = 1 << 22, ALIGNMENT = 1024, LONG = 32768 }; /* longer rows need workspace */
    const size_t queries = (size_t)(given->batches * given->tokens);
    const size_t row = ((size_t)given->rows + 3) * sizeof(float);
    if (given->workspace_limit)
        return (size_t)given->workspace_limit;
    if (given->lists == SMELT__LISTS_FULL || queries * row > SMALL || given->rows >= LONG)
        return 0;
    return (queries / 5 + 1) * row + ALIGNMENT;
}

static void shape(struct smelt__problem *problem) {
    smelt_indexer_topk_args *args = problem->args;
    args->index_offset = problem->options.topk_length ? 1000 : 0;
    args->workspace_limit = limit_of(&problem->options);
    args->causal_limit = smelt__windows_causal_limit(&problem->options);
}

static int given(const struct smelt__problem *problem, int tensor) {
    switch (tensor) {
    case TENSOR(KEY_SCALE):
        return is_fp8(problem->spec);
    case TENSOR(VALUES):
        return problem->options.max_logits;
    default: /* offset, lengths */
        return problem->options.topk_length;
    }
}

static int fill(struct smelt__problem *problem) {
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    const struct smelt__indexer_inputs inputs = {
        .heads = spec->heads,
        .dim = spec->dim,
        .dtype = spec->dtype,
        .q = TENSOR(QUERY),
        .k = TENSOR(KEY),
        .weights = TENSOR(WEIGHTS),
        .k_scale = TENSOR(KEY_SCALE),
        .window_begin = TENSOR(WINDOW_BEGIN),
        .window_end = TENSOR(WINDOW_END),
    };
    int32_t *const offsets = smelt__problem_data(problem, TENSOR(OFFSET));
    struct smelt__random random = smelt__random_at(problem->options.seed, STREAM_OFFSET, 0);
    for (int64_t t = 0; offsets && t < problem->extents[TENSOR(T)]; t++)
        offsets[t] = (int32_t)smelt__random_below(&random, 1 << 20);
    return smelt__indexer_fill(problem, &inputs);
}

static void footprint(const struct smelt__problem *problem, struct smelt__footprints *footprints) {
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    const int64_t tokens = problem->extents[TENSOR(T)], rows = problem->extents[TENSOR(S)];
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t h = 0; h < spec->heads; h++)
            smelt__touch_row(footprints, TENSOR(QUERY), t, h, 0);
        smelt__touch_row(footprints, TENSOR(WEIGHTS), t, 0, 0);
        smelt__touch_row(footprints, TENSOR(INDICES), t, 0, 0);
        smelt__touch_row(footprints, TENSOR(VALUES), t, 0, 0);
    }
    for (int64_t s = 0; s < rows; s++)
        smelt__touch_row(footprints, TENSOR(KEY), s, 0, 0);
    smelt__touch(footprints, TENSOR(KEY_SCALE), 0, rows);
    smelt__touch(footprints, TENSOR(WINDOW_BEGIN), 0, tokens);
    smelt__touch(footprints, TENSOR(WINDOW_END), 0, tokens);
    smelt__touch(footprints, TENSOR(OFFSET), 0, tokens);
    smelt__touch(footprints, TENSOR(LENGTHS), 0, tokens);
}

/* ---- figures --------------------------------------------------------------------------------- */

/* The logits' multiplications, and a few instructions per element for the selection. */
static double multiplications(const void *spec, const struct smelt__problem_options *settings) {
    const struct smelt__indexer_topk_spec *indexer = spec;
    return (double)(settings->batches * settings->tokens) * (double)settings->rows *
           (indexer->heads * indexer->dim + 100);
}

/* Measured on one H200: large matrix products under sustained load, bf16 and e4m3. */
static const double TFLOPS_CEILING[] = {690, 1494};

/* Arithmetic: all keys in windows, including those whose logits are not computed. */
static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    found[0] = SMELT__TFLOPS(2 * (double)problem->valid_slots * spec->heads * spec->dim / 1e12,
                             TFLOPS_CEILING[is_fp8(spec)]);
    return 1;
}

/* ---- comparison ------------------------------------------------------------------------------ */

enum { CHOICE, VALUES, METRICS };

static const struct smelt__metric metrics[METRICS] = {
    [CHOICE] =
        {"relative_error", "choice", "choice, relative",
         "the excess of an unselected key's logit over a selected one's, relative to their terms,",
         SMELT__LARGEST, SMELT__OF(TENSOR(INDICES))},
    [VALUES] = {"relative_error", "values", "values, relative",
                "error of a value, relative to the sum of its terms' sizes,", SMELT__LARGEST,
                SMELT__OF(TENSOR(VALUES))},
};

enum {
    INDEX_BEHIND,
    VALUE_BEHIND,
    IN_WINDOW,
    DISTINCT,
    ASCENDING,
    LENGTH,
    VALUE_NUMBER,
    DESCENDING,
    VALUE_INFINITE,
    INFINITE_CHOICE,
    RULES
};

static const struct smelt__rule rules[RULES] = {
    [INDEX_BEHIND] = {"index_behind", SMELT__OF(TENSOR(INDICES)),
                      "an index after the last selected one is not -1"},
    [VALUE_BEHIND] = {"value_behind", SMELT__OF(TENSOR(VALUES)),
                      "a value after the last selected one is not -inf"},
    [IN_WINDOW] = {"in_window", SMELT__OF(TENSOR(INDICES)), "an index is outside the window"},
    [DISTINCT] = {"distinct", SMELT__OF(TENSOR(INDICES)), "an index occurs twice"},
    [ASCENDING] = {"ascending", SMELT__OF(TENSOR(INDICES)), "indices do not ascend"},
    [LENGTH] = {"length", SMELT__OF(TENSOR(LENGTHS)), "the length is wrong"},
    [VALUE_NUMBER] = {"value_number", SMELT__OF(TENSOR(VALUES)), "a value is NaN"},
    [DESCENDING] = {"descending", SMELT__OF(TENSOR(INDICES)) | SMELT__OF(TENSOR(VALUES)),
                    "values do not descend, or equal ones' indices do not ascend"},
    [VALUE_INFINITE] = {"value_infinite", SMELT__OF(TENSOR(VALUES)),
                        "a value of infinities or NaN is wrong, or a finite one infinite"},
    [INFINITE_CHOICE] = {"infinite_choice", SMELT__OF(TENSOR(INDICES)),
                         "the wrong key is selected: +inf comes first, then finite logits, "
                         "then -inf; ties go to the lowest index"},
};

/* The tolerance of a logit, as in indexer_logits. */
static const double TOLERANCE[] = {SMELT__LOGITS_TOLERANCE, SMELT__E4M3_SUM_TOLERANCE};

/* A query's results, and the data for their comparison. */
struct row {
    const struct smelt__indexer_topk_spec *spec;
    const int32_t *indices, *length; /* length NULL: not given */
    const float *values;             /* or NULL */
    int64_t added;                   /* to indices */
    int32_t begin, end;              /* its window */
    double *logits, *terms;          /* [rows] */
    uint8_t *chosen;                 /* [rows] */
};

/* The key in a slot; -1 if it is outside the window. */
static int64_t key_in(const struct row *row, int64_t slot) {
    const int64_t key = row->indices[slot] - row->added;
    return key >= row->begin && key < row->end ? key : -1;
}

/* After the last wanted key, indices are -1 and values -inf. */
static int obeys_behind(const struct row *row, int64_t i, struct smelt__finding *finding) {
    return smelt__finding_rule(finding, INDEX_BEHIND, row->indices[i] == -1, i) &&
           (!row->values || smelt__finding_rule(finding, VALUE_BEHIND,
                                                isinf(row->values[i]) && row->values[i] < 0, i));
}

/* There are `wanted` keys, each once, then -1. */
static void look_at_indices(const struct row *row, int64_t wanted, struct smelt__finding *finding) {
    for (int64_t i = 0; i < row->spec->topk; i++) {
        const int64_t key = key_in(row, i);
        if (i >= wanted) {
            if (!obeys_behind(row, i, finding))
                return;
            continue;
        }
        if (!smelt__finding_rule(finding, IN_WINDOW, key >= 0, i) ||
            !smelt__finding_rule(finding, DISTINCT, !row->chosen[key], i))
            return;
        row->chosen[key] = 1;
        if (row->spec->order == SMELT__ORDER_INDEX && i > 0 &&
            !smelt__finding_rule(finding, ASCENDING, row->indices[i] > row->indices[i - 1], i))
            return;
    }
    if (row->length)
        smelt__finding_rule(finding, LENGTH, *row->length == wanted, row->spec->topk);
}

/* Whether two neighbours are ordered by value, and equal values by key. */
static int are_in_order(const struct row *row, int64_t i) {
    return row->values[i] < row->values[i - 1] ||
           (row->values[i] == row->values[i - 1] && row->indices[i] > row->indices[i - 1]);
}

static void look_at_values(const struct row *row, int64_t wanted, struct smelt__finding *finding) {
    for (int64_t i = 0; row->values && i < wanted; i++) {
        const int64_t key = key_in(row, i);
        const double got = (double)row->values[i], expected = row->logits[key];
        if (!smelt__finding_rule(finding, VALUE_NUMBER, !isnan(got), i) ||
            (row->spec->order == SMELT__ORDER_SCORE && i > 0 &&
             !smelt__finding_rule(finding, DESCENDING, are_in_order(row, i), i)) ||
            !smelt__finding_rule(finding, VALUE_INFINITE,
                                 smelt__indexer_logit_fits(got, expected, row->terms[key]), i))
            return;
        if (!isfinite(expected)) { /* an ambiguous logit is taken as the kernel computed it, and the
                                      selection must agree with it */
            row->logits[key] = got;
            row->terms[key] = INFINITY;
        }
        if (!isfinite(expected) || !isfinite(row->terms[key]))
            continue;
        const double error = smelt__logits_error(got, expected);
        smelt__finding_enlarge(finding, VALUES, error > 0 ? error / row->terms[key] : 0, i);
    }
}

/* Checks the selection among infinite logits. */
static void look_at_choice(const struct row *row, int64_t wanted, struct smelt__finding *finding) {
    const int64_t key =
        smelt__indexer_topk_misplaced(row->logits, row->terms, row->chosen, row->begin, row->end);
    int64_t slot = 0;
    while (key >= 0 && slot < wanted && key_in(row, slot) != key)
        slot++;
    smelt__finding_rule(finding, INFINITE_CHOICE, key < 0, slot);
}

static void judge_row(const struct row *row, int64_t wanted, struct smelt__finding *finding) {
    look_at_indices(row, wanted, finding);
    if (!finding->broken)
        look_at_values(row, wanted, finding);
    if (!finding->broken)
        look_at_choice(row, wanted, finding);
    smelt__finding_enlarge(
        finding, CHOICE,
        smelt__indexer_topk_error(row->logits, row->terms, row->chosen, row->begin, row->end), 0);
}

/* The selection from logits rounded to fp32, one of several correct results, for `expected` of
 * smelt__compared_row: indices, then values, [2 * topk], malloc'd; NULL: out of memory. */
static double *make_answer(const struct row *row, int64_t rows) {
    const int topk = row->spec->topk;
    const int32_t begin = row->begin, end = row->end;
    float *const logits = malloc((size_t)rows * sizeof *logits);
    float *const values = malloc((size_t)topk * sizeof *values);
    int32_t *const indices = malloc((size_t)topk * sizeof *indices);
    double *answer = malloc(2 * (size_t)topk * sizeof *answer);
    const struct smelt__topk_select_spec select = {
        .topk = topk, .order = row->spec->order, .groups = 1, .expand = 1};
    const smelt_topk_select_args args = {.size = sizeof args,
                                         .tokens = 1,
                                         .rows = rows,
                                         .logits.data = logits,
                                         .window_begin.data = &begin,
                                         .window_end.data = &end,
                                         .index_offset = (int32_t)row->added};
    for (int64_t key = 0; logits && key < rows; key++)
        logits[key] = (float)row->logits[key];
    if (!logits || !values || !indices || !answer ||
        smelt__topk_select_reference(&select, &args, 0, logits, indices, values) < 0) {
        free(answer);
        answer = NULL;
    }
    for (int i = 0; answer && i < topk; i++) {
        answer[i] = indices[i];
        answer[topk + i] = indices[i] == -1 ? -INFINITY : row->logits[indices[i] - row->added];
    }
    free(logits);
    free(values);
    free(indices);
    return answer;
}

static void compare_row(const struct smelt__placed *placed, int64_t query, struct row *row,
                        struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const int topk = row->spec->topk;
    const int64_t window = row->end - row->begin, wanted = window < topk ? window : topk;
    const double length = (double)wanted;
    double *const answer = placed->answer ? make_answer(row, problem->extents[TENSOR(S)]) : NULL;
    finding->failed = placed->answer && !answer;
    if (finding->failed)
        return;
    row->indices =
        smelt__compared_row(placed, finding, TENSOR(INDICES),
                            smelt__problem_at(problem, TENSOR(INDICES), query, 0, 0), topk, answer);
    row->values = smelt__compared_row(placed, finding, TENSOR(VALUES),
                                      smelt__problem_at(problem, TENSOR(VALUES), query, 0, 0), topk,
                                      answer ? answer + topk : NULL);
    row->length = smelt__compared_row(placed, finding, TENSOR(LENGTHS), query, 1, &length);
    judge_row(row, wanted, finding);
    free(answer);
}

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const size_t rows = (size_t)problem->extents[TENSOR(S)];
    smelt_indexer_topk_args args;
    double *const memory = calloc(rows * 2 + (rows + 7) / 8, sizeof *memory);
    (void)prepared;
    smelt__problem_arguments(problem, &args);
    finding->failed = !memory || smelt__indexer_topk_reference(problem->spec, &args, query, memory,
                                                               memory + rows) != 0;
    if (!finding->failed) {
        const int32_t *const offsets = args.offset.data;
        struct row row = {
            .spec = problem->spec,
            .added = args.index_offset + (offsets ? (int64_t)offsets[query] : 0),
            .logits = memory,
            .terms = memory + rows,
            .chosen = (uint8_t *)(memory + 2 * rows),
        };
        smelt__windows_of(problem, TENSOR(WINDOW_BEGIN), TENSOR(WINDOW_END), query, &row.begin,
                          &row.end);
        compare_row(placed, query, &row, finding);
    }
    free(memory);
}

static void judge(const struct smelt__problem *problem, int64_t compared,
                  struct smelt__metric_result *results) {
    (void)compared;
    results[CHOICE].bar = TOLERANCE[is_fp8(problem->spec)];
    results[VALUES].bar = TOLERANCE[is_fp8(problem->spec)];
}

static const struct smelt__comparison comparisons[] = {
    {
        SMELT__UNITS("query", "slot", TENSOR(T)),
        SMELT__METRICS(metrics),
        SMELT__RULES(rules),
        .compare = compare_query,
        .judge = judge,
    },
};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct smelt__harness_key keys[] = {
    SMELT__SPEC_KEY(indexer_topk, heads), SMELT__SPEC_KEY(indexer_topk, dim),
    SMELT__SPEC_KEY(indexer_topk, topk),  SMELT__SPEC_KEY(indexer_topk, dtype),
    SMELT__SPEC_KEY(indexer_topk, order), {NULL, 0, 0},
};

#define PASS(dtype, takes_)                                                                        \
    {                                                                                              \
        SMELT__PASS(FORWARD, "forward", &smelt__indexer_topk_table[dtype]),                        \
            .takes = (takes_), .given = given, .shape = shape,                                     \
    }

static const struct smelt__harness_pass passes[] = {
    PASS(SMELT__DTYPE_BF16, is_bf16),
    PASS(SMELT__DTYPE_FP8, is_fp8),
};

/* Shapes for comparison with DeepGEMM or cuDNN, each followed by cuDNN's top-k. */
#define CAUSAL(dtype, heads, T)                                                                    \
    {                                                                                              \
        .spec = "indexer_topk:heads=" #heads ",dim=128,dtype=" #dtype ",topk=2048", .tokens = T,   \
        .rows = T, .lists = SMELT__LISTS_CAUSAL, .documents = 1                                    \
    }
#define PEERS(dtype, heads)                                                                        \
    CAUSAL(dtype, heads, 16384), CAUSAL(dtype, heads, 32768), CAUSAL(dtype, heads, 65536)

static const struct smelt__harness_shape peers[] = {PEERS(fp8, 64), PEERS(fp8, 32), PEERS(bf16, 64),
                                                    PEERS(bf16, 32)};

const struct smelt__harness_operator smelt__harness_indexer_topk = {
    SMELT__HARNESS_ROW(indexer_topk),
    SMELT__HARNESS_KEYS(indexer_topk),
    .defaults = smelt__indexer_defaults,
    .small = smelt__indexer_small,
    .draw = draw,
    .variation = variation,
    .trial = trial,
    .bench = {.tokens = 4096, .rows = 8192, .lists = SMELT__LISTS_FULL},
};
