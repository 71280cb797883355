/* Compares sparse_attn's backward pass with the reference: dq by query, dkv by key, dsink by
 * head. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/attention.h"
#include "harness/parallel.h"
#include "harness/random.h"
#include "harness/sparse_attn.h"
#include "reference/bf16.h"
#include "reference/operators.h"

#define TENSOR(name) SMELT__SPARSE_ATTN_GRAD_##name

enum { STREAM_KEYS = 202 };

#define DQ SMELT__OF(TENSOR(DQ))
#define DKV SMELT__KEY_ROWS(TENSOR(DKV), TENSOR(DKV_FP32), TENSOR(DKV_SUM))
#define DSINK SMELT__OF(TENSOR(DSINK))

static const struct smelt__metric dq_metrics[SMELT__GRAD_SCORE_METRICS] = {
    SMELT__GRAD_SCORE_ROWS("dq", DQ)};
static const struct smelt__metric dkv_metrics[SMELT__GRAD_SCORE_METRICS] = {
    SMELT__GRAD_SCORE_ROWS("dkv", DKV)};
static const struct smelt__metric dsink_metrics[] = SMELT__DSINK_METRIC(DSINK);

static const struct smelt__rule dq_rules[SMELT__GRAD_RULES] = {
    SMELT__GRAD_RULE_ROWS("dq", DQ, "a query without a valid slot, or without weight, is not 0")};

static const struct smelt__rule dkv_rules[SMELT__GRAD_RULES] = {SMELT__GRAD_RULE_ROWS(
    "dkv", DKV, "a row that no query selects, or without weight, is not 0 or its previous value")};

static const struct smelt__rule dsink_rules[] = SMELT__DSINK_RULE_ROWS(DSINK);

/* ---- dq, by query ---------------------------------------------------------------------------- */

static int64_t count_queries(const struct smelt__problem *problem) {
    return problem->options.batches * problem->options.tokens;
}

/* `got`: [dqk], scratch. */
static void compare_heads(const struct smelt__placed *placed, int64_t query,
                          const struct smelt__sparse_attn_row_grads *expected, double *got,
                          struct smelt__finding *finding) {
    const struct smelt__sparse_attn_spec *spec = placed->problem->spec;
    const int64_t tokens = placed->problem->options.tokens;
    for (int head = 0; head < spec->heads && !finding->broken; head++) {
        const struct smelt__expected_row row =
            smelt__grad_expected(expected->grads + (int64_t)head * spec->dqk, spec->dqk,
                                 expected->spread[head], expected->cancelled[head]);
        const uint16_t *const dq = smelt__compared_row(
            placed, finding, TENSOR(DQ),
            smelt__problem_at(placed->problem, TENSOR(DQ), query / tokens, query % tokens, head),
            spec->dqk, row.grads);
        for (int d = 0; d < spec->dqk; d++)
            got[d] = (double)smelt__bf16_to_float(dq[d]);
        smelt__grad_row_compare(got, &row, head, finding);
    }
    smelt__finding_enlarge(finding, SMELT__GRAD_SCORE, expected->max_abs[0], 0);
}

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__sparse_attn_spec *spec = placed->problem->spec;
    const size_t heads = (size_t)spec->heads, dqk = (size_t)spec->dqk;
    double max_abs = 0, *memory = malloc((heads * (dqk + 2) + dqk) * sizeof *memory);
    (void)prepared;
    finding->failed = 1;
    if (memory) {
        struct smelt__sparse_attn_row_grads expected = {memory, memory + heads * dqk,
                                                        memory + heads * (dqk + 1), &max_abs};
        if (smelt__sparse_attn_dq(spec, placed->problem->args, &query, 1, &expected) == 0) {
            finding->failed = 0;
            compare_heads(placed, query, &expected, memory + heads * (dqk + 2), finding);
        }
    }
    free(memory);
}

/* ---- dkv, by key ----------------------------------------------------------------------------- */

static int64_t count_keys(const struct smelt__problem *problem) {
    return problem->options.batches * problem->options.rows;
}

static int is_untouched(const struct smelt__placed *placed, int64_t key) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    const struct smelt__key_rows rows = smelt__sparse_attn_dkv_rows(problem);
    const void *row = smelt__key_row(placed, &rows, key);
    const float *before = smelt__key_row_before(problem, &rows, key), *single = row;
    const uint16_t *half = row;
    int nonzero = 0;
    if (before)
        return memcmp(row, before, (size_t)spec->dqk * sizeof *before) == 0;
    for (int d = 0; d < spec->dqk; d++)
        nonzero |= problem->options.dkv == SMELT__DKV_BF16 ? (half[d] & 0x7fff) != 0
                                                           : !(single[d] == 0.0F);
    return !nonzero;
}

struct survey {
    const struct smelt__placed *placed;
    smelt_sparse_attn_args inputs;
    _Atomic uint32_t *selections; /* [keys] slots that name them */
    uint8_t *chosen;              /* [keys] */
    _Atomic int64_t wrong;        /* a key that no query selects but that has a gradient; or -1 */
    _Atomic int failed;
};

static void count_selections(void *user, int64_t begin, int64_t end) {
    struct survey *survey = user;
    const struct smelt__problem *problem = survey->placed->problem;
    int64_t *rows = malloc((size_t)survey->inputs.width * sizeof *rows);
    if (!rows)
        atomic_store(&survey->failed, 1);
    for (int64_t query = begin; query < end && rows; query++) {
        const int64_t first = query / problem->options.tokens * problem->options.rows;
        const int64_t valid =
            smelt__query_is_computed(problem, query)
                ? smelt__sparse_attn_valid_rows(problem->spec, &survey->inputs, query, rows)
                : 0;
        for (int64_t i = 0; i < valid; i++)
            atomic_fetch_add_explicit(&survey->selections[first + rows[i]], 1,
                                      memory_order_relaxed);
    }
    free(rows);
}

static void look_at_unselected(void *user, int64_t begin, int64_t end) {
    struct survey *survey = user;
    for (int64_t key = begin; key < end; key++)
        if (survey->selections[key] == 0 && !is_untouched(survey->placed, key))
            atomic_store(&survey->wrong, key);
}

static void take(struct survey *survey, int64_t key, int64_t most, int64_t *units, int64_t *count) {
    if (key < 0 || survey->chosen[key] || *count == most)
        return;
    survey->chosen[key] = 1;
    units[(*count)++] = key;
}

/* The next selected (or unselected) key that was not taken; -1: none. */
static int64_t next_key(const struct survey *survey, int64_t total, int64_t from, int selected) {
    for (int64_t i = 0; i < total; i++) {
        const int64_t key = (from + i) % total;
        if ((survey->selections[key] > 0) == selected && !survey->chosen[key])
            return key;
    }
    return -1;
}

static int64_t most_selected(const struct survey *survey, int64_t total) {
    int64_t most = 0;
    for (int64_t key = 1; key < total; key++)
        if (survey->selections[key] > survey->selections[most])
            most = key;
    return most;
}

/* Takes a key that has a gradient although no query selects it; the last key, the most selected one
 * and the first; then selected and unselected keys alternately. */
static int64_t take_keys(struct survey *survey, int64_t total, int64_t most, int64_t *units) {
    struct smelt__random random =
        smelt__random_at(survey->placed->problem->options.seed, STREAM_KEYS, 0);
    int64_t count = 0;
    take(survey, atomic_load(&survey->wrong), most, units, &count);
    take(survey, total - 1, most, units, &count);
    take(survey, most_selected(survey, total), most, units, &count);
    take(survey, 0, most, units, &count);
    for (int round = 0; count < most && count < total; round++)
        take(survey, next_key(survey, total, smelt__random_below(&random, total), round % 4 != 3),
             most, units, &count);
    return count;
}

static int64_t choose_keys(const struct smelt__placed *placed, int64_t most, int64_t *units) {
    const int64_t total = count_keys(placed->problem);
    struct survey survey = {.placed = placed, .inputs = smelt__sparse_attn_inputs(placed->problem)};
    int64_t count = -1;
    atomic_init(&survey.wrong, -1);
    atomic_init(&survey.failed, 0);
    survey.selections = calloc((size_t)total + 1, sizeof *survey.selections);
    survey.chosen = calloc((size_t)total + 1, 1);
    if (survey.selections && survey.chosen && total > 0) {
        smelt__parallel_for(count_queries(placed->problem), 64, count_selections, &survey);
        smelt__parallel_for(total, 256, look_at_unselected, &survey);
        if (!atomic_load(&survey.failed))
            count = take_keys(&survey, total, most, units);
    }
    free((void *)survey.selections);
    free(survey.chosen);
    return count;
}

static void compare_key(const struct smelt__placed *placed, const void *prepared, int64_t key,
                        struct smelt__finding *finding) {
    const struct smelt__listed_queries *queries = prepared;
    const struct smelt__sparse_attn_spec *spec = placed->problem->spec;
    double spread, cancelled, max_abs, *memory = malloc(2 * (size_t)spec->dqk * sizeof *memory);
    finding->failed = 1;
    if (memory) {
        double *const got = memory + spec->dqk;
        const struct smelt__sparse_attn_row_grads expected = {memory, &spread, &cancelled,
                                                              &max_abs};
        if (smelt__sparse_attn_dkv(spec, placed->problem->args, queries->numbers, queries->count,
                                   &key, 1, &expected) == 0) {
            const struct smelt__key_rows rows = smelt__sparse_attn_dkv_rows(placed->problem);
            struct smelt__expected_row row =
                smelt__grad_expected(memory, spec->dqk, spread, cancelled);
            finding->failed = smelt__key_row_read(placed, &rows, key, &row, got, finding) != 0;
            if (!finding->failed)
                smelt__grad_row_compare(got, &row, 0, finding);
            smelt__finding_enlarge(finding, SMELT__GRAD_SCORE, max_abs, 0);
        }
    }
    free(memory);
}

/* ---- dsink, by head -------------------------------------------------------------------------- */

static int64_t count_heads(const struct smelt__problem *problem) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    return problem->buffers[TENSOR(DSINK)].elements > 0 ? spec->heads : 0;
}

static void compare_head(const struct smelt__placed *placed, const void *prepared, int64_t head,
                         struct smelt__finding *finding) {
    const struct smelt__listed_queries *queries = prepared;
    double expected, terms;
    if (smelt__sparse_attn_dsink(placed->problem->spec, placed->problem->args, queries->numbers,
                                 queries->count, (int)head, &expected, &terms) != 0) {
        finding->failed = 1;
        return;
    }
    smelt__dsink_compare(placed, TENSOR(DSINK), head, expected, terms, finding);
}

/* ---- the three ------------------------------------------------------------------------------- */

const struct smelt__comparison
    smelt__sparse_attn_grad_comparisons[SMELT__SPARSE_ATTN_GRAD_COMPARISONS] = {
        {
            SMELT__UNITS("query", "head", SMELT__SPARSE_ATTN_B, SMELT__SPARSE_ATTN_T),
            SMELT__METRICS(dq_metrics),
            SMELT__RULES(dq_rules),
            .wanted = smelt__query_is_computed,
            .compare = compare_query,
            .judge = smelt__grad_score_judge,
        },
        {
            SMELT__UNITS("key", "part", SMELT__SPARSE_ATTN_B, SMELT__SPARSE_ATTN_S),
            SMELT__METRICS(dkv_metrics),
            SMELT__RULES(dkv_rules),
            .choose = choose_keys,
            .prepare = smelt__listed_queries,
            .release = free,
            .compare = compare_key,
            .judge = smelt__grad_score_judge,
        },
        {
            .unit = "head",
            .part = "part",
            SMELT__METRICS(dsink_metrics),
            SMELT__RULES(dsink_rules),
            .count = count_heads,
            .prepare = smelt__listed_queries,
            .release = free,
            .compare = compare_head,
            .bars = SMELT__DSINK_BARS,
        },
};
