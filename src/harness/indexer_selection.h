/*
 * A selection of the largest logits of a query, and the test whether it is correct, which indexer_topk's
 * comparisons have in common.
 */
#pragma once

#include "harness/placed.h"

/* Metrics: by how much an unselected entry's logit exceeds a selected one's, and the values' error. */
enum { SMELT__SELECTION_CHOICE, SMELT__SELECTION_VALUES, SMELT__SELECTION_METRICS };

/* Rules. Those before SMELT__SELECTED_RULES need no values, list of rows or lengths; published blocks have
 * only these. */
enum {
    SMELT__SELECTION_INDEX_BEHIND,
    SMELT__SELECTION_IN_WINDOW,
    SMELT__SELECTION_DISTINCT,
    SMELT__SELECTION_ASCENDING,
    SMELT__SELECTION_INFINITE_CHOICE,
    SMELT__SELECTION_PINNED,
    SMELT__SELECTED_RULES,
    SMELT__SELECTION_VALUE_BEHIND = SMELT__SELECTED_RULES,
    SMELT__SELECTION_LENGTH,
    SMELT__SELECTION_VALUE_NUMBER,
    SMELT__SELECTION_DESCENDING,
    SMELT__SELECTION_VALUE_INFINITE,
    SMELT__SELECTION_RULES
};

/* A selection of a query and group, and the data for its comparison. */
struct smelt__selection {
    int64_t topk, pinned, order;
    int expand;                      /* rows of an entry in the list */
    int bf16;                        /* 1: logits are rounded to bf16 */
    const int32_t *indices, *length; /* length NULL: not given. Of lists: entries, then -1 */
    const float *values;             /* or NULL */
    int64_t added;                   /* to indices */
    int32_t begin, end;              /* its window, in entries */
    int64_t count;                   /* entries of all keys */
    int64_t last;                    /* the window's end in entries, of candidates too */
    int32_t *keys; /* of candidates: entry i of the window is key keys[i]; NULL: entries are keys */
    double *logits, *terms; /* [count] */
    uint8_t *chosen;        /* [count] */
};

/* How many entries are wanted. */
int64_t smelt__selection_wanted(const struct smelt__selection *row);

/* Judges indices and values, of which there are `wanted`. */
void smelt__selection_judge(const struct smelt__selection *row, int64_t wanted,
                            struct smelt__finding *finding);

/* The value of a logit, rounded as `bf16` says. */
double smelt__selection_rounded(const struct smelt__selection *row, double logit);

/* Makes one of the correct selections from the rounded logits: entries[topk], -1 past the last. -1: out of
 * memory. */
int smelt__selection_make(const struct smelt__selection *row, int32_t *entries);
