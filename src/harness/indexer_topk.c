/* The harness's row of indexer_topk. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "harness/footprint.h"
#include "harness/indexer.h"
#include "harness/indexer_selection.h"
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

static const struct smelt__problem_options kinds[] = {
    {.lists = SMELT__LISTS_RANDOM},
    {.lists = SMELT__LISTS_CAUSAL},
    {.lists = SMELT__LISTS_WINDOW},
    {.lists = SMELT__LISTS_ADVERSARIAL},
    {.lists = SMELT__LISTS_FULL},
    {.lists = SMELT__LISTS_LOG, .topk_length = 1, .max_logits = 1},
    {.lists = SMELT__LISTS_ADVERSARIAL, .topk_length = 1, .max_logits = 1},
};

/* ---- problems -------------------------------------------------------------------------------- */

static int is_bf16(const void *spec) {
    return ((const struct smelt__indexer_topk_spec *)spec)->dtype == SMELT__DTYPE_BF16;
}

static int is_fp8(const void *spec) {
    return !is_bf16(spec);
}

/* Splits small problems into chunks of about a fifth of the queries, unless windows are full. */
static size_t limit_of(const struct smelt__indexer_topk_spec *spec,
                       const struct smelt__problem_options *given) {
    enum { SMALL = 1 << 22, ALIGNMENT = 1024, LONG = 32768 }; /* longer rows need workspace */
    const size_t queries = (size_t)(given->batches * given->tokens);
    const size_t row = ((size_t)given->rows + 3) * sizeof(float) * (size_t)spec->groups;
    if (given->workspace_limit)
        return (size_t)given->workspace_limit;
    if (given->lists == SMELT__LISTS_FULL || queries * row > SMALL || given->rows >= LONG)
        return 0;
    return (queries / 5 + 1) * row + ALIGNMENT;
}

static int64_t width_needed(const struct smelt__indexer_topk_spec *spec) {
    return (int64_t)spec->topk * spec->expand + spec->tail * (spec->expand - 1);
}

static int64_t width_of(const struct smelt__problem *problem) {
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    return spec->expand > 1 ? ((const smelt_indexer_topk_args *)problem->args)->width : spec->topk;
}

static void shape(struct smelt__problem *problem) {
    smelt_indexer_topk_args *args = problem->args;
    args->index_offset = problem->options.topk_length ? 1000 : 0;
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    args->workspace_limit = limit_of(spec, &problem->options);
    if (!spec->weights)
        args->scale = 0.09F;
    /* A list of rows may be wider than it must be. */
    args->candidate_count = smelt__candidates_default(spec->candidate_block, problem->options.rows);
    args->width = spec->expand > 1 ? width_needed(spec) + (problem->options.strided ? 3 : 0) : 0;
    args->causal_limit = smelt__windows_causal_limit(&problem->options);
}

static int given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    switch (tensor) {
    case TENSOR(KEY_SCALE):
        return is_fp8(spec);
    case TENSOR(WEIGHTS):
        return spec->weights;
    case TENSOR(PUBLISHED):
        return spec->publish > 0;
    case TENSOR(CANDIDATES):
        return spec->candidate_block > 0;
    case TENSOR(LIMIT):
        return spec->tail || (spec->expand > 1 && problem->options.topk_length);
    case TENSOR(VALUES):
        return problem->options.max_logits;
    default: /* offset, lengths */
        return problem->options.topk_length;
    }
}

/* A query's window in blocks of `block` keys. */
static void entries_of(const struct smelt__problem *problem, int64_t query, int block,
                       int32_t *begin, int32_t *end) {
    smelt__windows_of(problem, TENSOR(WINDOW_BEGIN), TENSOR(WINDOW_END), query, begin, end);
    *end = *end > *begin ? (*end + block - 1) / block : *begin / block;
    *begin /= block;
}

/* The entries of `block` keys of a query's window in its candidate number `c`, [*first, result). */
static int64_t candidate_entries(const struct smelt__problem *problem, int64_t query, int64_t c,
                                 int block, int64_t *first) {
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    const int32_t *const data = smelt__problem_data(problem, TENSOR(CANDIDATES));
    const int64_t number = data[smelt__problem_at(problem, TENSOR(CANDIDATES), query, 0, 0) + c];
    const int64_t each = spec->candidate_block / block;
    int32_t begin, end;
    entries_of(problem, query, block, &begin, &end);
    *first = number * each;
    const int64_t past = number < 0 ? 0 : *first + each;
    *first = *first < begin ? begin : *first;
    return past > end ? end : past;
}

/* The number of keys in all queries' candidates. */
static int64_t count_listed(const struct smelt__problem *problem) {
    int64_t keys = 0, first;
    for (int64_t t = 0; t < problem->extents[TENSOR(T)]; t++)
        for (int64_t c = 0; c < problem->extents[TENSOR(C)]; c++) {
            const int64_t past = candidate_entries(problem, t, c, 1, &first);
            keys += past > first ? past - first : 0;
        }
    return keys;
}

/* The rows of all of a query's entries, and some of an incomplete one. */
static void fill_limits(struct smelt__problem *problem, struct smelt__random *random) {
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    int32_t *const limits = smelt__problem_data(problem, TENSOR(LIMIT));
    for (int64_t t = 0; limits && t < problem->extents[TENSOR(T)]; t++) {
        int32_t begin, end;
        entries_of(problem, t, spec->block_max, &begin, &end);
        limits[t] = end * spec->expand + (int32_t)smelt__random_below(random, spec->expand);
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
        .weights = spec->weights ? TENSOR(WEIGHTS) : -1,
        .k_scale = TENSOR(KEY_SCALE),
        .window_begin = TENSOR(WINDOW_BEGIN),
        .window_end = TENSOR(WINDOW_END),
    };
    int32_t *const offsets = smelt__problem_data(problem, TENSOR(OFFSET));
    struct smelt__random random = smelt__random_at(problem->options.seed, STREAM_OFFSET, 0);
    for (int64_t t = 0; offsets && t < problem->extents[TENSOR(T)]; t++)
        offsets[t] = (int32_t)smelt__random_below(&random, 1 << 20);
    const int failed = smelt__indexer_fill(problem, &inputs);
    if (!failed) {
        fill_limits(problem, &random);
        smelt__candidates_fill(problem, TENSOR(CANDIDATES), spec->candidate_block, 0);
        if (spec->candidate_block)
            problem->valid_slots = count_listed(problem);
    }
    return failed;
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

static const struct smelt__metric metrics[SMELT__SELECTION_METRICS] = {
    [SMELT__SELECTION_CHOICE] =
        {"relative_error", "choice", "choice, relative",
         "the excess of an unselected key's logit over a selected one's, relative to their terms,",
         SMELT__LARGEST, SMELT__OF(TENSOR(INDICES))},
    [SMELT__SELECTION_VALUES] = {"relative_error", "values", "values, relative",
                                 "error of a value, relative to the sum of its terms' sizes,",
                                 SMELT__LARGEST, SMELT__OF(TENSOR(VALUES))},
};

enum { LIST_ROWS = SMELT__SELECTION_RULES, RULES };

static const struct smelt__rule rules[RULES] = {
    [SMELT__SELECTION_INDEX_BEHIND] = {"index_behind", SMELT__OF(TENSOR(INDICES)),
                                       "an index after the last selected one is not -1"},
    [SMELT__SELECTION_VALUE_BEHIND] = {"value_behind", SMELT__OF(TENSOR(VALUES)),
                                       "a value after the last selected one is not -inf"},
    [SMELT__SELECTION_IN_WINDOW] = {"in_window", SMELT__OF(TENSOR(INDICES)),
                                    "an index is outside the window"},
    [SMELT__SELECTION_DISTINCT] = {"distinct", SMELT__OF(TENSOR(INDICES)), "an index occurs twice"},
    [SMELT__SELECTION_ASCENDING] = {"ascending", SMELT__OF(TENSOR(INDICES)),
                                    "indices do not ascend"},
    [SMELT__SELECTION_LENGTH] = {"length", SMELT__OF(TENSOR(LENGTHS)), "the length is wrong"},
    [SMELT__SELECTION_VALUE_NUMBER] = {"value_number", SMELT__OF(TENSOR(VALUES)), "a value is NaN"},
    [SMELT__SELECTION_DESCENDING] = {"descending",
                                     SMELT__OF(TENSOR(INDICES)) | SMELT__OF(TENSOR(VALUES)),
                                     "values do not descend, or equal ones' indices do not ascend"},
    [SMELT__SELECTION_VALUE_INFINITE] =
        {"value_infinite", SMELT__OF(TENSOR(VALUES)),
         "a value of infinities or NaN is wrong, or a finite one infinite"},
    [SMELT__SELECTION_INFINITE_CHOICE] =
        {"infinite_choice", SMELT__OF(TENSOR(INDICES)),
         "the wrong key is selected: +inf comes first, then finite logits, "
         "then -inf; ties go to the lowest index"},
    [SMELT__SELECTION_PINNED] = {"pinned", SMELT__OF(TENSOR(INDICES)), "a pinned entry is missing"},
    [LIST_ROWS] = {"list_rows", SMELT__OF(TENSOR(INDICES)),
                   "the rows of an entry or of the tail are missing, or out of order"},
};

static const struct smelt__metric published_metrics[SMELT__SELECTION_VALUES] = {
    [SMELT__SELECTION_CHOICE] = {
        "relative_error", "published", NULL,
        "excess of the best unpublished block over the worst published one, relative to their "
        "terms,",
        SMELT__LARGEST, SMELT__OF(TENSOR(PUBLISHED))}};

#define PUBLISHED_RULE(name, what)                                                                 \
    { "published_" name, SMELT__OF(TENSOR(PUBLISHED)), what }
static const struct smelt__rule published_rules[SMELT__SELECTED_RULES] = {
    [SMELT__SELECTION_INDEX_BEHIND] =
        PUBLISHED_RULE("behind", "a block after the last published one is not -1"),
    [SMELT__SELECTION_IN_WINDOW] = PUBLISHED_RULE("in_window", "a block is outside the window"),
    [SMELT__SELECTION_DISTINCT] = PUBLISHED_RULE("distinct", "a block occurs twice"),
    [SMELT__SELECTION_ASCENDING] = PUBLISHED_RULE("ascending", "blocks do not ascend"),
    [SMELT__SELECTION_INFINITE_CHOICE] =
        PUBLISHED_RULE("infinite_choice", "the wrong block is published"),
    [SMELT__SELECTION_PINNED] = PUBLISHED_RULE("pinned", "a pinned block is missing"),
};

/* The tolerance of a logit, as in indexer_logits. */
static const double TOLERANCE[] = {SMELT__LOGITS_TOLERANCE, SMELT__E4M3_SUM_TOLERANCE};

/* ---- correct results -------------------------------------------------------------------------- */

/* Rows of a query's list: those of its entries below the limit, and those from `tail` on up to it. */
struct list_rows {
    int32_t limit, tail;
};

static struct list_rows list_rows_of(const struct smelt__problem *problem,
                                     const smelt_indexer_topk_args *args, int64_t query,
                                     const struct smelt__selection *row) {
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    const int32_t *const limits = args->limit.data;
    const int64_t all = (args->rows * spec->expand + spec->block_max - 1) / spec->block_max;
    const int64_t most = all + (spec->block_max > 1 ? 0 : spec->expand - 1);
    const int64_t given = limits ? limits[query] : all;
    struct list_rows rows = {(int32_t)(given > most ? most : given), 0};
    rows.tail = rows.limit - rows.limit % spec->expand;
    if (rows.tail < row->last * spec->expand)
        rows.tail = (int32_t)(row->last * spec->expand);
    return rows;
}

/* For `expected` of smelt__compared_row: a list, then values, [width + topk], malloc'd; NULL: out of
 * memory. */
static double *make_answer(const struct smelt__selection *row, int tail,
                           const struct list_rows *rows, int64_t width) {
    int32_t *const entries = malloc((size_t)row->topk * sizeof *entries);
    double *answer = malloc((size_t)(width + row->topk) * sizeof *answer);
    int64_t slot = 0;
    if (!answer || !entries || smelt__selection_make(row, entries) != 0) {
        free(answer);
        free(entries);
        return NULL;
    }
    for (int64_t i = 0; i < row->topk; i++) {
        answer[width + i] =
            entries[i] < 0 ? -INFINITY : smelt__selection_rounded(row, row->logits[entries[i]]);
        const int64_t key = entries[i] >= 0 && row->keys ? row->keys[entries[i]] : entries[i];
        for (int64_t n = key * row->expand; key >= 0 && n < (key + 1) * row->expand; n++)
            if (row->expand == 1 || n < rows->limit)
                answer[slot++] = (double)(n + row->added);
    }
    for (int64_t n = rows->tail; tail && n < rows->limit; n++)
        answer[slot++] = (double)(n + row->added);
    while (slot < width)
        answer[slot++] = -1;
    free(entries);
    return answer;
}

/* ---- a query and a group ---------------------------------------------------------------------- */

/* Reads the entries of a list of rows, and its valid slots into *length. */
static void read_list(const struct smelt__selection *row, const int32_t *list, int64_t width,
                      int tail, const struct list_rows *rows, int64_t wanted, int32_t *entries,
                      int64_t *length, struct smelt__finding *finding) {
    int64_t slot = 0;
    int ordered = 1;
    for (int64_t i = 0; i < wanted && ordered; i++) {
        const int64_t first = list[slot] - row->added;
        entries[i] = (int32_t)(first / row->expand);
        ordered = first >= 0 && first % row->expand == 0;
        for (int64_t n = first; ordered && n < first + row->expand && n < rows->limit; n++)
            ordered = list[slot++] == n + row->added;
    }
    for (int64_t n = rows->tail; tail && ordered && n < rows->limit; n++)
        ordered = list[slot++] == n + row->added;
    *length = slot;
    for (int64_t i = wanted; i < row->topk; i++)
        entries[i] = -1;
    if (smelt__finding_rule(finding, LIST_ROWS, ordered, slot))
        for (; slot < width; slot++)
            smelt__finding_rule(finding, SMELT__SELECTION_INDEX_BEHIND, list[slot] == -1, slot);
}

/* Leaves the logits of a query's candidates. -1: out of memory. */
static int keep_candidates(const struct smelt__problem *problem, int64_t query,
                           struct smelt__selection *row) {
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    int64_t count = 0, first;
    row->keys = malloc((size_t)(row->count + 1) * sizeof *row->keys);
    if (!row->keys)
        return -1;
    for (int64_t c = 0; c < problem->extents[TENSOR(C)]; c++) {
        const int64_t past = candidate_entries(problem, query, c, spec->block_max, &first);
        for (int64_t key = first; key < past; key++) {
            row->keys[count] = (int32_t)key;
            row->logits[count] = row->logits[key];
            row->terms[count++] = row->terms[key];
        }
    }
    row->begin = 0;
    row->end = (int32_t)count;
    row->count = count;
    return 0;
}

/* What a comparison of a unit begins with: its row of logits of blocks. -1: out of memory. */
static int open_row(const struct smelt__problem *problem, const smelt_indexer_topk_args *args,
                    int64_t unit, int block, struct smelt__selection *row) {
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    const int64_t query = unit / spec->groups, group = unit % spec->groups;
    const int64_t rows = args->rows, raw = ((const int32_t *)args->window_end.data)[query];
    const int64_t count = (rows + block - 1) / block, all = count * spec->groups;
    double *const memory = calloc((size_t)(all * 2 + (count + 7) / 8 + 1), sizeof *memory);
    row->count = count;
    row->logits = memory;
    if (!memory || smelt__indexer_topk_reference(spec, args, query, block, memory, memory + all))
        return -1;
    row->chosen = (uint8_t *)(memory + 2 * all);
    memmove(memory, memory + group * count, (size_t)count * sizeof *memory);
    row->terms = memory + all + group * count;
    entries_of(problem, query, block, &row->begin, &row->end);
    /* The tail begins there also where the window is empty. */
    row->last = ((raw < 0 ? 0 : raw > rows ? rows : raw) + block - 1) / block;
    return spec->candidate_block ? keep_candidates(problem, query, row) : 0;
}

/* The valid slots of a correct list. (A row is never -1: what is added is not negative.) */
static int64_t count_slots(const struct smelt__selection *row, int64_t wanted, int64_t width,
                           const double *answer) {
    int64_t slots = 0;
    if (row->expand == 1)
        return wanted;
    while (answer && slots < width && answer[slots] != -1)
        slots++;
    return slots;
}

static void compare_row(const struct smelt__placed *placed, const smelt_indexer_topk_args *args,
                        int64_t unit, struct smelt__selection *row, int32_t *entries,
                        struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    const int64_t query = unit / spec->groups, group = unit % spec->groups;
    const int64_t width = width_of(problem), wanted = smelt__selection_wanted(row);
    const struct list_rows rows = list_rows_of(problem, args, query, row);
    int64_t slots = wanted;
    double *const answer = placed->answer ? make_answer(row, spec->tail, &rows, width) : NULL;
    finding->failed = placed->answer && !answer;
    if (finding->failed)
        return;
    const double length = (double)count_slots(row, wanted, width, answer);
    const int32_t *const list =
        smelt__compared_at(placed, finding, TENSOR(INDICES), query, group, width, answer);
    row->values = smelt__compared_at(placed, finding, TENSOR(VALUES), query, group, row->topk,
                                     answer ? answer + width : NULL);
    row->length = smelt__compared_row(
        placed, finding, TENSOR(LENGTHS),
        smelt__problem_of_group(problem, TENSOR(LENGTHS), query, group), 1, &length);
    row->indices = list;
    if (spec->expand > 1) {
        read_list(row, list, width, spec->tail, &rows, wanted, entries, &slots, finding);
        row->indices = entries;
        row->added = 0;
    }
    if (row->length)
        smelt__finding_rule(finding, SMELT__SELECTION_LENGTH, *row->length == slots, row->topk);
    if (!finding->broken)
        smelt__selection_judge(row, wanted, finding);
    free(answer);
}

static void compare_choice(const struct smelt__placed *placed, const void *prepared, int64_t unit,
                           struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    smelt_indexer_topk_args args;
    int32_t *const entries = malloc((size_t)spec->topk * sizeof *entries);
    (void)prepared;
    smelt__problem_arguments(problem, &args);
    const int32_t *const offsets = args.offset.data;
    struct smelt__selection row = {
        .topk = spec->topk,
        .pinned = spec->pinned,
        .order = spec->order,
        .expand = spec->expand,
        .bf16 = spec->logits,
        .added = args.index_offset + (offsets ? (int64_t)offsets[unit / spec->groups] : 0),
    };
    finding->failed = !entries || open_row(problem, &args, unit, spec->block_max, &row) != 0;
    if (!finding->failed)
        compare_row(placed, &args, unit, &row, entries, finding);
    free(row.logits);
    free(row.keys);
    free(entries);
}

/* Blocks for other layers. */
static void compare_published(const struct smelt__placed *placed, const void *prepared,
                              int64_t unit, struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    smelt_indexer_topk_args args;
    double *answer = NULL;
    (void)prepared;
    smelt__problem_arguments(problem, &args);
    struct smelt__selection row = {
        .topk = spec->publish, .pinned = spec->publish_pinned, .expand = 1, .bf16 = spec->logits};
    finding->failed = open_row(problem, &args, unit, spec->publish_block, &row) != 0;
    if (!finding->failed && placed->answer) {
        const struct list_rows rows = {0, 0};
        answer = make_answer(&row, 0, &rows, row.topk);
        finding->failed = !answer;
    }
    if (!finding->failed) {
        const int64_t at = smelt__problem_at(problem, TENSOR(PUBLISHED), unit / spec->groups,
                                             unit % spec->groups, 0);
        row.indices = smelt__compared_row(placed, finding, TENSOR(PUBLISHED), at, row.topk, answer);
        smelt__selection_judge(&row, smelt__selection_wanted(&row), finding);
    }
    free(answer);
    free(row.logits);
}

static int64_t count_published(const struct smelt__problem *problem) {
    const struct smelt__indexer_topk_spec *spec = problem->spec;
    return spec->publish > 0 ? problem->extents[TENSOR(T)] * spec->groups : 0;
}

static void judge(const struct smelt__problem *problem, int64_t compared,
                  struct smelt__metric_result *results) {
    (void)compared;
    results[SMELT__SELECTION_CHOICE].bar = TOLERANCE[is_fp8(problem->spec)];
    results[SMELT__SELECTION_VALUES].bar = TOLERANCE[is_fp8(problem->spec)];
}

static void judge_published(const struct smelt__problem *problem, int64_t compared,
                            struct smelt__metric_result *results) {
    (void)compared;
    results[SMELT__SELECTION_CHOICE].bar = TOLERANCE[is_fp8(problem->spec)];
}

static const struct smelt__comparison comparisons[] = {
    {
        SMELT__UNITS("query", "slot", TENSOR(T), TENSOR(G)),
        SMELT__METRICS(metrics),
        SMELT__RULES(rules),
        .compare = compare_choice,
        .judge = judge,
    },
    {
        .unit = "query",
        .part = "slot",
        .count = count_published,
        SMELT__METRICS(published_metrics),
        SMELT__RULES(published_rules),
        .compare = compare_published,
        .judge = judge_published,
    },
};

/* ---- the row --------------------------------------------------------------------------------- */

SMELT__KEY_TABLE(indexer_topk, SMELT__INDEXER_TOPK_KEYS)

#define PASS(number)                                                                               \
    {                                                                                              \
        SMELT__PASS(FORWARD, "forward", &smelt__indexer_topk_table[number]),                       \
            .table = (number), .given = given, .shape = shape                                      \
    }
#define PASSES(n) PASS(n), PASS(n + 1), PASS(n + 2), PASS(n + 3)

static const struct smelt__harness_pass passes[] = {PASSES(0), PASSES(4), PASSES(8), PASSES(12)};

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
    SMELT__INDEXER_OPTIONS,
    SMELT__KINDS(kinds),
    .bench = {.tokens = 4096, .rows = 8192, .lists = SMELT__LISTS_FULL},
};
