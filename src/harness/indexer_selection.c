/* See indexer_selection.h. */
#include "harness/indexer_selection.h"

#include <math.h>
#include <stdlib.h>

#include "harness/indexer.h"
#include "reference/bf16.h"
#include "reference/operators.h"

/* The entry in a slot; -1 if it is outside the window. */
static int64_t key_in(const struct smelt__selection *row, int64_t slot) {
    const int64_t key = row->indices[slot] - row->added;
    int64_t low = row->begin, high = row->end;
    if (!row->keys)
        return key >= row->begin && key < row->end ? key : -1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (row->keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < row->end && row->keys[low] == key ? low : -1;
}

/* After the last wanted key, indices are -1 and values -inf. */
static int obeys_behind(const struct smelt__selection *row, int64_t i,
                        struct smelt__finding *finding) {
    return smelt__finding_rule(finding, SMELT__SELECTION_INDEX_BEHIND, row->indices[i] == -1, i) &&
           (!row->values || smelt__finding_rule(finding, SMELT__SELECTION_VALUE_BEHIND,
                                                isinf(row->values[i]) && row->values[i] < 0, i));
}

/* There are `wanted` keys, each once, then -1. */
static void look_at_indices(const struct smelt__selection *row, int64_t wanted,
                            struct smelt__finding *finding) {
    for (int64_t i = 0; i < row->topk; i++) {
        const int64_t key = key_in(row, i);
        if (i >= wanted) {
            if (!obeys_behind(row, i, finding))
                return;
            continue;
        }
        if (!smelt__finding_rule(finding, SMELT__SELECTION_IN_WINDOW, key >= 0, i) ||
            !smelt__finding_rule(finding, SMELT__SELECTION_DISTINCT, !row->chosen[key], i))
            return;
        row->chosen[key] = 1;
        if (row->order == SMELT__ORDER_INDEX && i > 0 &&
            !smelt__finding_rule(finding, SMELT__SELECTION_ASCENDING,
                                 row->indices[i] > row->indices[i - 1], i))
            return;
    }
    for (int64_t key = row->end - 1; key >= row->begin && key >= row->end - row->pinned; key--)
        smelt__finding_rule(finding, SMELT__SELECTION_PINNED, row->chosen[key], wanted - 1);
}

/* Whether two neighbours are ordered by value, and equal values by key. */
static int are_in_order(const struct smelt__selection *row, int64_t i) {
    return row->values[i] < row->values[i - 1] ||
           (row->values[i] == row->values[i - 1] && row->indices[i] > row->indices[i - 1]);
}

double smelt__selection_rounded(const struct smelt__selection *row, double logit) {
    return row->bf16 ? (double)smelt__bf16_to_float(smelt__bf16_from_float((float)logit)) : logit;
}

/* The next number of bf16 above (`up`) or below a finite one. */
static double next_bf16(double number, int up) {
    const uint16_t bits = smelt__bf16_from_float((float)number);
    const int away = (number > 0) == up;
    const uint16_t least = up ? 1 : 0x8001;
    return (double)smelt__bf16_to_float(number == 0 ? least
                                        : away      ? (uint16_t)(bits + 1)
                                                    : (uint16_t)(bits - 1));
}

/* The least error of a logit whose value is `got`, which must be a bf16 number if logits are rounded. */
static double value_error(const struct smelt__selection *row, double got, double expected) {
    if (!row->bf16)
        return smelt__logits_error(got, expected);
    if (smelt__selection_rounded(row, got) != got)
        return INFINITY;
    const double bound =
        (got + next_bf16(got, expected > got)) / 2; /* between what rounds to both */
    const int within = expected > got ? expected <= bound : expected >= bound;
    return within ? 0 : smelt__logits_error(bound, expected);
}

static void look_at_values(const struct smelt__selection *row, int64_t wanted,
                           struct smelt__finding *finding) {
    for (int64_t i = 0; row->values && i < wanted; i++) {
        const int64_t key = key_in(row, i);
        const double got = (double)row->values[i], expected = row->logits[key];
        if (!smelt__finding_rule(finding, SMELT__SELECTION_VALUE_NUMBER, !isnan(got), i) ||
            (row->order == SMELT__ORDER_SCORE && i > 0 &&
             !smelt__finding_rule(finding, SMELT__SELECTION_DESCENDING, are_in_order(row, i), i)) ||
            !smelt__finding_rule(finding, SMELT__SELECTION_VALUE_INFINITE,
                                 smelt__indexer_logit_fits(got, expected, row->terms[key]), i))
            return;
        if (!isfinite(expected) ||
            isinf(got)) { /* an ambiguous logit is taken as the kernel computed it, and the
                                      selection must agree with it */
            row->logits[key] = got;
            row->terms[key] = INFINITY;
        }
        if (!isfinite(row->logits[key]) || !isfinite(row->terms[key]))
            continue;
        const double error = value_error(row, got, expected);
        smelt__finding_enlarge(finding, SMELT__SELECTION_VALUES,
                               error > 0 ? error / fabs(row->terms[key]) : 0, i);
    }
}

/* Entries below this one are selected by their logits. */
static int64_t first_pinned(const struct smelt__selection *row) {
    return row->end - row->pinned > row->begin ? row->end - row->pinned : row->begin;
}

/* Checks the selection among infinite logits. */
static void look_at_choice(const struct smelt__selection *row, int64_t wanted,
                           struct smelt__finding *finding) {
    const int64_t key = smelt__indexer_topk_misplaced(row->logits, row->terms, row->chosen,
                                                      row->begin, first_pinned(row));
    int64_t slot = 0;
    while (key >= 0 && slot < wanted && key_in(row, slot) != key)
        slot++;
    smelt__finding_rule(finding, SMELT__SELECTION_INFINITE_CHOICE, key < 0, slot);
}

void smelt__selection_judge(const struct smelt__selection *row, int64_t wanted,
                            struct smelt__finding *finding) {
    look_at_indices(row, wanted, finding);
    if (!finding->broken)
        look_at_values(row, wanted, finding);
    if (!finding->broken)
        look_at_choice(row, wanted, finding);
    smelt__finding_enlarge(finding, SMELT__SELECTION_CHOICE,
                           smelt__indexer_topk_error(row->bf16, row->logits, row->terms,
                                                     row->chosen, row->begin, first_pinned(row)),
                           0);
}

int smelt__selection_make(const struct smelt__selection *row, int32_t *entries) {
    const struct smelt__topk_select_spec select = {.topk = (int)row->topk,
                                                   .order = (int)row->order,
                                                   .groups = 1,
                                                   .pinned = (int)row->pinned,
                                                   .expand = 1};
    float *const logits = malloc((size_t)(row->count + 1) * sizeof *logits);
    float *const scores = malloc((size_t)row->topk * sizeof *scores);
    const smelt_topk_select_args args = {.size = sizeof args,
                                         .tokens = 1,
                                         .rows = row->count,
                                         .logits.data = logits,
                                         .window_begin.data = &row->begin,
                                         .window_end.data = &row->end};
    for (int64_t key = 0; logits && key < row->count; key++)
        logits[key] = (float)smelt__selection_rounded(row, row->logits[key]);
    const int failed = !logits || !scores ||
                       smelt__topk_select_reference(&select, &args, 0, logits, entries, scores) < 0;
    free(logits);
    free(scores);
    return failed ? -1 : 0;
}

int64_t smelt__selection_wanted(const struct smelt__selection *row) {
    const int64_t window = row->end - row->begin;
    return window < row->topk ? window : row->topk;
}
