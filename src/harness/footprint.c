/* See footprint.h. */
#include "harness/footprint.h"

#include <stdlib.h>
#include <string.h>

void smelt__touch(struct smelt__footprints *footprints, int tensor, int64_t first, int64_t count) {
    const struct smelt__tensor_row *row = &footprints->problem->pass->tensors->rows[tensor];
    struct smelt__footprint *footprint = &footprints->tensors[tensor];
    const int64_t bytes = (int64_t)smelt__element_bytes(row->element);
    if (count <= 0 || footprints->problem->buffers[tensor].elements == 0 ||
        (row->role == SMELT__INPUT && !footprints->inputs))
        return;
    struct smelt__interval *last =
        footprint->count ? footprint->intervals + footprint->count - 1 : NULL;
    if (last && last->end == first * bytes) { /* usually it continues the last interval */
        last->end += count * bytes;
        return;
    }
    if (footprint->count == footprint->capacity) {
        const size_t capacity = footprint->capacity ? 2 * footprint->capacity : 64;
        void *larger = realloc(footprint->intervals, capacity * sizeof footprint->intervals[0]);
        if (!larger) {
            footprints->failed = 1;
            return;
        }
        footprint->intervals = larger;
        footprint->capacity = capacity;
    }
    footprint->intervals[footprint->count++] =
        (struct smelt__interval){first * bytes, (first + count) * bytes};
}

void smelt__touch_row(struct smelt__footprints *footprints, int tensor, int64_t i, int64_t k,
                      int64_t l) {
    const struct smelt__problem *problem = footprints->problem;
    const struct smelt__tensor_row *row = &problem->pass->tensors->rows[tensor];
    smelt__touch(footprints, tensor, smelt__problem_at(problem, tensor, i, k, l),
                 problem->extents[row->shape[row->dimensions - 1]]);
}

/* Whether the tensor has rows of queries that are listed: it begins with B and T. */
static int is_listed(const struct smelt__problem *problem, const struct smelt__tensor_row *row) {
    const struct smelt__symbol *const symbols = problem->pass->tensors->symbols;
    return problem->listed && row->dimensions > 2 &&
           strcmp(symbols[row->shape[0]].letter, "B") == 0 &&
           strcmp(symbols[row->shape[1]].letter, "T") == 0;
}

void smelt__touch_whole(struct smelt__footprints *footprints, int tensor) {
    const struct smelt__problem *const problem = footprints->problem;
    const struct smelt__tensor_row *const row = &problem->pass->tensors->rows[tensor];
    if (problem->buffers[tensor].elements == 0 ||
        (row->role == SMELT__INPUT && !footprints->inputs))
        return;
    const int64_t columns = problem->extents[row->shape[row->dimensions - 1]];
    const int64_t rows = smelt__problem_rows(problem, tensor);
    const int64_t queries = problem->options.batches * problem->options.tokens;
    const int64_t each = is_listed(problem, row) ? rows / queries : 0;
    for (int64_t number = 0; number < rows; number++)
        if (each == 0 || problem->listed[number / each])
            smelt__touch(footprints, tensor, smelt__problem_row(problem, tensor, number), columns);
}

static int by_begin(const void *a, const void *b) {
    const struct smelt__interval *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Sorts the intervals and merges those that overlap or touch. */
static void join(struct smelt__footprint *footprint) {
    struct smelt__interval *intervals = footprint->intervals;
    size_t kept = 0;
    if (footprint->count == 0)
        return;
    qsort(intervals, footprint->count, sizeof intervals[0], by_begin);
    for (size_t i = 1; i < footprint->count; i++) {
        if (intervals[i].begin > intervals[kept].end)
            intervals[++kept] = intervals[i];
        else if (intervals[i].end > intervals[kept].end)
            intervals[kept].end = intervals[i].end;
    }
    footprint->count = kept + 1;
}

int smelt__footprints_make(struct smelt__footprints *footprints,
                           const struct smelt__problem *problem, int inputs) {
    memset(footprints, 0, sizeof *footprints);
    footprints->problem = problem;
    footprints->inputs = inputs;
    if (problem->pass->footprint)
        problem->pass->footprint(problem, footprints);
    for (int i = 0; i < problem->pass->tensors->count; i++) {
        if (!(problem->pass->partly & SMELT__OF(i)))
            smelt__touch_whole(footprints, i);
        join(&footprints->tensors[i]);
    }
    return footprints->failed ? -1 : 0;
}

void smelt__footprints_free(struct smelt__footprints *footprints) {
    for (int i = 0; i < SMELT__MOST_TENSORS; i++)
        free(footprints->tensors[i].intervals);
    memset(footprints, 0, sizeof *footprints);
}
