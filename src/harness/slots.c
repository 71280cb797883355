/* See slots.h. */
#include "harness/slots.h"

#include "harness/parallel.h"

/* The element at which a query's row of a tensor begins. */
static int64_t row_of(const struct smelt__problem *problem, int tensor, int64_t query) {
    const int64_t tokens = problem->options.tokens;
    if (problem->pass->tensors->rows[tensor].dimensions == 2)
        return smelt__problem_at(problem, tensor, query, 0, 0);
    return smelt__problem_at(problem, tensor, query / tokens, query % tokens, 0);
}

struct fill {
    struct smelt__problem *problem;
    const struct smelt__slots *slots;
};

static void fill_rows(void *user, int64_t begin, int64_t end) {
    const struct fill *fill = user;
    const struct smelt__problem_options *options = &fill->problem->options;
    const int indices = fill->slots->indices, topk_length = fill->slots->topk_length;
    int32_t *const rows = smelt__problem_data(fill->problem, indices);
    int32_t *const lengths = smelt__problem_data(fill->problem, topk_length);
    for (int64_t query = begin; query < end; query++) {
        const int64_t count =
            smelt__lists_make(options, query, rows + row_of(fill->problem, indices, query));
        if (lengths)
            lengths[row_of(fill->problem, topk_length, query)] =
                smelt__lists_counted(options) ? (int32_t)count
                                              : smelt__lists_length(options, query);
    }
}

void smelt__slots_fill(struct smelt__problem *problem, const struct smelt__slots *slots) {
    struct fill fill = {problem, slots};
    smelt__parallel_for(problem->options.batches * problem->options.tokens, 16, fill_rows, &fill);
}

int64_t smelt__slots_counted(const struct smelt__problem *problem, const struct smelt__slots *slots,
                             int64_t query) {
    const int32_t *const lengths = smelt__problem_data(problem, slots->topk_length);
    const int64_t width = problem->options.width;
    const int64_t length = lengths ? lengths[row_of(problem, slots->topk_length, query)] : width;
    return length < width ? length : width;
}

int64_t smelt__slots_row(const struct smelt__problem *problem, const struct smelt__slots *slots,
                         int64_t query, int64_t i) {
    const int32_t *const rows = smelt__problem_data(problem, slots->indices);
    if (i >= smelt__slots_counted(problem, slots, query))
        return -1;
    const int32_t row = rows[row_of(problem, slots->indices, query) + i];
    return row >= 0 && row < problem->options.rows ? row : -1;
}

void smelt__slots_mark(struct smelt__problem *problem, const struct smelt__slots *slots,
                       uint8_t *used) {
    const int64_t queries = problem->options.batches * problem->options.tokens;
    problem->valid_slots = 0;
    for (int64_t query = 0; query < queries; query++)
        for (int64_t i = 0; i < problem->options.width; i++) {
            const int64_t row = smelt__slots_row(problem, slots, query, i);
            if (row < 0)
                continue;
            used[row] = 1;
            problem->valid_slots++;
        }
}

void smelt__slots_touch(const struct smelt__problem *problem, const struct smelt__slots *slots,
                        int64_t query, struct smelt__footprints *footprints) {
    smelt__touch(footprints, slots->topk_length, row_of(problem, slots->topk_length, query), 1);
    smelt__touch(footprints, slots->indices, row_of(problem, slots->indices, query),
                 smelt__slots_counted(problem, slots, query));
}
