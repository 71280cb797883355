/* See layout.h. */
#include "harness/layout.h"

#include <string.h>

#include "harness/problem.h"

static int64_t extent(const struct smelt__problem *problem, const struct smelt__tensor_row *row,
                      int dimension) {
    return problem->extents[row->shape[dimension]];
}

/* The order of the dimensions that have strides, from the innermost. Far apart, the longest is
 * innermost: its stride is the shortest, so that the tensor, and the emulator's history of it, fit
 * the address space. Else outputs have heads outside tokens, as in other libraries. */
static void order_of(const struct smelt__problem *problem, const struct smelt__tensor_row *row,
                     int order[SMELT__MOST_DIMENSIONS]) {
    const int strides = row->dimensions - 1, far = problem->options.far;
    for (int i = 0; i < strides; i++) {
        int at = i;
        for (; far && !row->most_stride && at > 0 &&
               extent(problem, row, order[at - 1]) < extent(problem, row, strides - 1 - i);
             at--)
            order[at] = order[at - 1];
        order[at] = strides - 1 - i;
    }
    if (!far && row->role != SMELT__INPUT && strides >= 3) {
        order[0] = strides - 2;
        order[1] = strides - 1;
    }
}

/* Legal strides are multiples of this, in elements. */
static int64_t grain_of(const struct smelt__tensor_row *row) {
    return row->whole_rows ? SMELT__ROW_BYTES / (int64_t)smelt__element_bytes(row->element) : 1;
}

/* A stride, legal for every element type, at which index `last` is beyond 2^32 elements. */
static int64_t far_stride(int64_t last) {
    return ((INT64_C(1) << 32) / (last > 0 ? last : 1) / SMELT__ROW_BYTES + 1) * SMELT__ROW_BYTES;
}

/* A stride for a dimension of extent 1, where it is ignored: negative or beyond all memory, never
 * aligned. */
static int64_t meaningless_stride(int64_t number) {
    return (number % 2 ? INT64_MIN / 3 : INT64_MAX / 3) + 2 * number + 1;
}

/* Each dimension's stride is the span of the dimensions inside it plus a gap, which differs between
 * tensors. */
static void set_strides(const struct smelt__problem *problem, const struct smelt__tensor_row *row,
                        int64_t *strides) {
    const int far = problem->options.far;
    const int64_t grain = grain_of(row), number = row - problem->pass->tensors->rows;
    int order[SMELT__MOST_DIMENSIONS];
    int64_t span = extent(problem, row, row->dimensions - 1);
    order_of(problem, row, order);
    for (int i = 0; i < row->dimensions - 1; i++) {
        const int64_t count = extent(problem, row, order[i]);
        const int64_t gap =
            far ? far_stride(count - 1) : grain * ((grain > 1 ? 1 : 3) + 2 * i + number);
        int64_t stride = (span + grain - 1) / grain * grain + gap;
        if (row->most_stride && order[i] == row->dimensions - 2 && stride > row->most_stride)
            stride = row->most_stride / grain * grain; /* then the first rows are below 2^32 */
        if (count == 1) {
            strides[order[i]] = meaningless_stride(number + i);
            continue;
        }
        strides[order[i]] = stride;
        span = count * stride;
    }
}

static size_t count_elements(const struct smelt__problem *problem,
                             const struct smelt__tensor_row *row, const int64_t *strides) {
    int64_t last = extent(problem, row, row->dimensions - 1);
    if (last == 0)
        return 0;
    for (int i = 0; i < row->dimensions - 1; i++) {
        if (extent(problem, row, i) == 0)
            return 0;
        if (extent(problem, row, i) > 1)
            last += (extent(problem, row, i) - 1) * strides[i];
    }
    return (size_t)last;
}

void smelt__layout_make(struct smelt__problem *problem) {
    const struct smelt__harness_pass *pass = problem->pass;
    for (int i = 0; i < pass->tensors->count; i++) {
        const struct smelt__tensor_row *row = &pass->tensors->rows[i];
        smelt_tensor *layout = &problem->layout[i];
        if (smelt__may_be_absent(row) && !pass->given(problem, i))
            continue;
        if (problem->options.far || problem->options.strided || problem->options.odd == 2 + 2 * i)
            set_strides(problem, row, layout->strides);
        memcpy(smelt__tensor_of(row, problem->args)->strides, layout->strides,
               sizeof layout->strides);
        smelt__tensor_pack(row, problem->extents, layout);
        problem->buffers[i].elements = count_elements(problem, row, layout->strides);
    }
}
