#include "reference/operators.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct element {
    float score;
    int pinned;
    int64_t column;
};

/* Pinned ones first, then descending, equal scores in the order of their columns, as by a stable
 * sort. */
static int by_score(const void *a, const void *b) {
    const struct element *x = a, *y = b;
    if (x->pinned != y->pinned)
        return y->pinned - x->pinned;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

static int by_column(const void *a, const void *b) {
    const struct element *x = a, *y = b;
    return x->column < y->column ? -1 : x->column > y->column;
}

static int64_t clip(int64_t value, int64_t most) {
    return value < 0 ? 0 : value > most ? most : value;
}

void smelt__topk_select_window(const smelt_topk_select_args *args, int64_t query, int64_t *begin,
                               int64_t *end) {
    const int32_t *begins = args->window_begin.data, *ends = args->window_end.data;
    *begin = begins ? clip(begins[query], args->rows) : 0;
    *end = ends ? clip(ends[query], args->rows) : args->rows;
    if (*end < *begin)
        *end = *begin;
}

static float score_at(const struct smelt__topk_select_spec *spec, const void *logits,
                      int64_t column) {
    float score = 0;
    if (spec->bf16) {
        const uint32_t bits = (uint32_t)((const uint16_t *)logits)[column] << 16;
        memcpy(&score, &bits, sizeof score);
    } else {
        score = ((const float *)logits)[column];
    }
    return isnan(score) ? -INFINITY : score + 0.0F; /* -0 + 0 is +0 */
}

/* The list of rows of `selected` entries, and its length. */
static int64_t list_rows(const struct smelt__topk_select_spec *spec,
                         const smelt_topk_select_args *args, int64_t query,
                         const struct element *elements, int64_t selected, uint32_t offset,
                         int32_t *indices) {
    const int64_t each = spec->expand;
    const int32_t *limits = args->limit.data, *ends = args->window_end.data;
    const int64_t limit =
        limits ? clip(limits[query], args->rows * each + each - 1) : args->rows * each;
    const int64_t complete = (ends ? clip(ends[query], args->rows) : args->rows) * each;
    int64_t length = 0, tail = limit / each * each;
    for (int64_t i = 0; i < selected * each; i++) {
        const int64_t row = elements[i / each].column * each + i % each;
        if (row < limit)
            indices[length++] = (int32_t)((uint32_t)row + offset);
    }
    if (tail < complete)
        tail = complete;
    for (int64_t row = tail; spec->tail && row < limit; row++)
        indices[length++] = (int32_t)((uint32_t)row + offset);
    for (int64_t i = length; i < args->width; i++)
        indices[i] = -1;
    return length;
}

int64_t smelt__topk_select_reference(const struct smelt__topk_select_spec *spec,
                                     const smelt_topk_select_args *args, int64_t query,
                                     const void *logits, int32_t *indices, float *values) {
    const int32_t *offsets = args->offset.data;
    const uint32_t offset = (uint32_t)args->index_offset + (offsets ? (uint32_t)offsets[query] : 0);
    int64_t begin, end;
    smelt__topk_select_window(args, query, &begin, &end);
    const int64_t length = end - begin, selected = length < spec->topk ? length : spec->topk;
    struct element *elements = malloc((size_t)(length + 1) * sizeof *elements);
    if (!elements)
        return -1;
    for (int64_t i = 0; i < length; i++)
        elements[i] = (struct element){score_at(spec, logits, begin + i),
                                       begin + i >= end - spec->pinned, begin + i};
    qsort(elements, (size_t)length, sizeof *elements, by_score);
    if (spec->order == SMELT__ORDER_INDEX)
        qsort(elements, (size_t)selected, sizeof *elements, by_column);
    for (int64_t i = 0; i < spec->topk; i++)
        values[i] = i < selected ? elements[i].score : -INFINITY;
    for (int64_t i = 0; spec->expand <= 1 && i < spec->topk; i++)
        indices[i] = i < selected ? (int32_t)((uint32_t)elements[i].column + offset) : -1;
    const int64_t found = spec->expand > 1
                              ? list_rows(spec, args, query, elements, selected, offset, indices)
                              : selected;
    free(elements);
    return found;
}
