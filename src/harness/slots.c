/* See slots.h. */
#include "harness/slots.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "harness/parallel.h"

/* The number of the first element of a query's row of a tensor. */
static int64_t row_of(const struct smelt__problem *problem, int tensor, int64_t query) {
    return smelt__problem_at(problem, tensor, query, 0, 0);
}

/* Rows of an entry. */
static int64_t size_of(const struct smelt__problem *problem, const struct smelt__slots *slots) {
    return slots->granularity ? slots->granularity(problem->spec) : 1;
}

int64_t smelt__slots_count(const struct smelt__problem *problem, const struct smelt__slots *slots) {
    return problem->options.width * size_of(problem, slots);
}

struct fill {
    struct smelt__problem *problem;
    const struct smelt__slots *slots;
    struct smelt__problem_options options; /* whose rows are entries */
};

static void fill_rows(void *user, int64_t begin, int64_t end) {
    const struct fill *fill = user;
    const struct smelt__problem_options *options = &fill->options;
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

static void fill_limits(struct smelt__problem *problem, int tensor) {
    int32_t *const limits = smelt__problem_data(problem, tensor);
    const int64_t queries = problem->options.batches * problem->options.tokens;
    for (int64_t query = 0; limits && query < queries; query++)
        limits[row_of(problem, tensor, query)] = smelt__lists_limit(&problem->options, query);
}

void smelt__slots_fill(struct smelt__problem *problem, const struct smelt__slots *slots) {
    const int64_t size = size_of(problem, slots);
    struct fill fill = {problem, slots, problem->options};
    fill.options.rows = (problem->options.rows + size - 1) / size;
    smelt__parallel_for(problem->options.batches * problem->options.tokens, 16, fill_rows, &fill);
    if (slots->limit)
        fill_limits(problem, slots->limit);
}

/* How many of a query's entries are below its topk_length: 0 to width, or negative. */
static int64_t slots_counted(const struct smelt__problem *problem, const struct smelt__slots *slots,
                             int64_t query) {
    const int32_t *const lengths = smelt__problem_data(problem, slots->topk_length);
    const int64_t width = problem->options.width;
    const int64_t length = lengths ? lengths[row_of(problem, slots->topk_length, query)] : width;
    return length < width ? length : width;
}

/* The rows that a query may read: those below it. */
static int64_t rows_below(const struct smelt__problem *problem, const struct smelt__slots *slots,
                          int64_t query) {
    const int32_t *const limits = slots->limit ? smelt__problem_data(problem, slots->limit) : NULL;
    const int64_t limit = limits ? limits[row_of(problem, slots->limit, query)] : INT64_MAX;
    return limit < problem->options.rows ? limit : problem->options.rows;
}

int64_t smelt__slots_row(const struct smelt__problem *problem, const struct smelt__slots *slots,
                         int64_t query, int64_t i) {
    const int64_t size = size_of(problem, slots);
    const int32_t *const rows = smelt__problem_data(problem, slots->indices);
    if (i / size >= slots_counted(problem, slots, query))
        return -1;
    const int64_t entry = rows[row_of(problem, slots->indices, query) + i / size];
    const int64_t row = entry * size + i % size;
    return entry >= 0 && row < rows_below(problem, slots, query) ? row : -1;
}

struct mark {
    const struct smelt__problem *problem;
    const struct smelt__slots *slots;
    atomic_uchar *marks; /* [rows] */
    _Atomic int64_t valid;
};

static void mark_rows(void *user, int64_t begin, int64_t end) {
    struct mark *mark = user;
    const int32_t *const rows = smelt__problem_data(mark->problem, mark->slots->indices);
    int64_t valid = 0;
    for (int64_t query = begin; query < end; query++) {
        const int32_t *const own = rows + row_of(mark->problem, mark->slots->indices, query);
        const int64_t size = size_of(mark->problem, mark->slots);
        const int64_t count = slots_counted(mark->problem, mark->slots, query) * size;
        const int64_t below = rows_below(mark->problem, mark->slots, query);
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = own[i / size] * size + i % size;
            if (own[i / size] < 0 || row >= below)
                continue;
            if (!atomic_load_explicit(&mark->marks[row], memory_order_relaxed))
                atomic_store_explicit(&mark->marks[row], 1, memory_order_relaxed);
            valid++;
        }
    }
    atomic_fetch_add(&mark->valid, valid);
}

int smelt__slots_mark(struct smelt__problem *problem, const struct smelt__slots *slots,
                      uint8_t *used) {
    const size_t rows = (size_t)problem->options.rows;
    struct mark mark = {.problem = problem, .slots = slots};
    mark.marks = calloc(rows + 1, sizeof *mark.marks);
    if (!mark.marks)
        return -1;
    smelt__parallel_for(problem->options.batches * problem->options.tokens, 64, mark_rows, &mark);
    for (size_t row = 0; row < rows; row++)
        used[row] = mark.marks[row];
    problem->valid_slots = atomic_load(&mark.valid);
    free(mark.marks);
    return 0;
}

int smelt__slots_valid(const struct smelt__problem *problem, const struct smelt__slots *slots,
                       int64_t query) {
    for (int64_t i = 0; i < smelt__slots_count(problem, slots); i++)
        if (smelt__slots_row(problem, slots, query, i) >= 0)
            return 1;
    return 0;
}

void smelt__slots_footprint(const struct smelt__problem *problem, const struct smelt__slots *slots,
                            int keys, int grad, struct smelt__footprints *footprints) {
    const int64_t queries = problem->options.batches * problem->options.tokens;
    for (int64_t query = 0; query < queries && footprints->inputs; query++) {
        smelt__touch(footprints, slots->indices, row_of(problem, slots->indices, query),
                     slots_counted(problem, slots, query));
        for (int64_t i = 0; i < smelt__slots_count(problem, slots); i++) {
            const int64_t row = smelt__slots_row(problem, slots, query, i);
            if (row < 0)
                continue;
            smelt__touch_row(footprints, keys, row, 0, 0);
            if (grad)
                smelt__touch(footprints, grad, row_of(problem, grad, query) + i, 1);
        }
    }
}
