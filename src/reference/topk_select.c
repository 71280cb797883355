#include "reference/operators.h"

#include <math.h>
#include <stdlib.h>

struct element {
    float score;
    int64_t column;
};

/* Descending, equal scores in the order of their columns, as by a stable sort. */
static int by_score(const void *a, const void *b) {
    const struct element *x = a, *y = b;
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

void smelt__topk_select_window(const smelt_topk_select_args *args, int64_t row, int64_t *begin,
                               int64_t *end) {
    const int32_t *begins = args->window_begin.data, *ends = args->window_end.data;
    *begin = begins ? clip(begins[row], args->rows) : 0;
    *end = ends ? clip(ends[row], args->rows) : args->rows;
    if (*end < *begin)
        *end = *begin;
}

int64_t smelt__topk_select_reference(const struct smelt__topk_select_spec *spec,
                                     const smelt_topk_select_args *args, int64_t row,
                                     int64_t logits_stride, int32_t *indices, float *values) {
    const float *logits = args->logits.data;
    const int32_t *offsets = args->offset.data;
    const uint32_t offset = (uint32_t)args->index_offset + (offsets ? (uint32_t)offsets[row] : 0);
    int64_t begin, end;
    smelt__topk_select_window(args, row, &begin, &end);
    const int64_t length = end - begin, selected = length < spec->topk ? length : spec->topk;
    struct element *elements = malloc((size_t)(length + 1) * sizeof *elements);
    if (!elements)
        return -1;
    for (int64_t i = 0; i < length; i++) {
        const float score = logits[row * logits_stride + begin + i];
        /* -0 + 0 is +0 */
        elements[i] = (struct element){isnan(score) ? -INFINITY : score + 0.0F, begin + i};
    }
    qsort(elements, (size_t)length, sizeof *elements, by_score);
    if (spec->order == SMELT__ORDER_INDEX)
        qsort(elements, (size_t)selected, sizeof *elements, by_column);
    for (int64_t i = 0; i < spec->topk; i++) {
        indices[i] = i < selected ? (int32_t)((uint32_t)elements[i].column + offset) : -1;
        values[i] = i < selected ? elements[i].score : -INFINITY;
    }
    free(elements);
    return selected;
}
