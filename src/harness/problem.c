/* See problem.h. */
#include "harness/problem.h"
#include "harness/defaults.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/layout.h"

enum {
    GAP = 0xff
}; /* byte of gaps: NaN in every floating format, so that a read of a gap shows in
                        the results */

void *smelt__host_allocate(size_t bytes, int far) {
    if (!far)
        return malloc(bytes);
    void *pointer = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pointer == MAP_FAILED ? NULL : pointer;
}

void smelt__host_free(void *pointer, size_t bytes, int far) {
    if (pointer && far)
        munmap(pointer, bytes);
    else
        free(pointer);
}

size_t smelt__problem_bytes(const struct smelt__problem *problem, int tensor) {
    return problem->buffers[tensor].elements *
           smelt__element_bytes(problem->pass->tensors->rows[tensor].element);
}

int64_t smelt__problem_at(const struct smelt__problem *problem, int tensor, int64_t i, int64_t k,
                          int64_t l) {
    const int64_t indices[] = {i, k, l};
    const int strides = problem->pass->tensors->rows[tensor].dimensions - 1;
    int64_t at = 0;
    for (int n = 0; n < strides && n < 3; n++)
        at += indices[n] * problem->layout[tensor].strides[n];
    return at;
}

int64_t smelt__problem_of_group(const struct smelt__problem *problem, int tensor, int64_t query,
                                int64_t group) {
    return problem->pass->tensors->rows[tensor].dimensions == 1
               ? query
               : smelt__problem_at(problem, tensor, query, 0, 0) + group;
}

int64_t smelt__problem_rows(const struct smelt__problem *problem, int tensor) {
    const struct smelt__tensor_row *const row = &problem->pass->tensors->rows[tensor];
    int64_t rows = 1;
    for (int n = 0; n < row->dimensions - 1; n++)
        rows *= problem->extents[row->shape[n]];
    return rows;
}

int64_t smelt__problem_row(const struct smelt__problem *problem, int tensor, int64_t number) {
    const struct smelt__tensor_row *const row = &problem->pass->tensors->rows[tensor];
    int64_t at = 0;
    for (int n = row->dimensions - 2; n >= 0; n--) {
        const int64_t extent = problem->extents[row->shape[n]];
        at += number % extent * problem->layout[tensor].strides[n];
        number /= extent;
    }
    return at;
}

void smelt__problem_arguments(const struct smelt__problem *problem, void *args) {
    const struct smelt__args_table *table = problem->pass->tensors;
    memcpy(args, problem->args, table->bytes);
    for (int i = 0; i < table->count; i++)
        memcpy(smelt__tensor_of(&table->rows[i], args)->strides, problem->layout[i].strides,
               sizeof problem->layout[i].strides);
}

/* Gaps hold NaN. Far ones stay zero; the emulator detects accesses to them. */
static int allocate_all(struct smelt__problem *problem) {
    const struct smelt__args_table *table = problem->pass->tensors;
    const int far = problem->options.far;
    for (int i = 0; i < table->count; i++) {
        struct smelt__buffer *buffer = &problem->buffers[i];
        const size_t bytes = smelt__problem_bytes(problem, i);
        if (bytes == 0 || table->rows[i].role == SMELT__OUTPUT)
            continue;
        buffer->host = smelt__host_allocate(bytes, far);
        if (!buffer->host)
            return -1;
        if ((problem->options.strided || problem->options.odd) && !far)
            memset(buffer->host, GAP, bytes);
        if (table->rows[i].role == SMELT__INPUT)
            smelt__tensor_of(&table->rows[i], problem->args)->data = buffer->host;
    }
    return 0;
}

static int copy_spec(struct smelt__problem *problem, const void *spec) {
    problem->spec = malloc(problem->op->spec_bytes + 1);
    if (problem->spec && problem->op->spec_bytes)
        memcpy(problem->spec, spec, problem->op->spec_bytes);
    return problem->spec ? 0 : -1;
}

static int64_t key_of(const struct smelt__problem *problem, const char *name) {
    return smelt__harness_key_of(problem->op, problem->spec, name);
}

static int64_t spec_extent(const struct smelt__problem *problem,
                           const struct smelt__symbol *symbol) {
    return smelt__symbol_extent(symbol, key_of(problem, symbol->key),
                                symbol->when ? key_of(problem, symbol->when) : 1);
}

/* Finds the extents that the pass's `shape` has not set. */
static void find_extents(struct smelt__problem *problem) {
    const struct smelt__args_table *table = problem->pass->tensors;
    int64_t found[SMELT__MOST_SYMBOLS];
    for (int i = 0; i < table->symbol_count; i++)
        found[i] = table->symbols[i].key ? spec_extent(problem, &table->symbols[i]) : 0;
    smelt__args_extents(table, problem->args, found);
    for (int i = 0; i < table->symbol_count; i++)
        if (problem->extents[i] == 0)
            problem->extents[i] = found[i];
}

/* The multiprocessors that a problem's call leaves free: none, or for every fourth seed nearly all,
 * so that a thread block processes several items. */
static int multiprocessors_left_free(const struct smelt__problem_options *options) {
    enum { EACH = 4, NEARLY_ALL = 1 << 20 };
    return options->seed % EACH == EACH - 1 ? NEARLY_ALL : 0;
}

/* Sets the numbers of *args for which there is an option of the same name. */
static void set_numbers(struct smelt__problem *problem) {
    const struct smelt__args_table *table = problem->pass->tensors;
    const struct smelt__problem_options *options = &problem->options;
    const int free_multiprocessors = multiprocessors_left_free(options);
    const size_t limit = (size_t)options->workspace_limit;
    int batched = 0;
    for (int i = 0; i < table->scalar_count; i++)
        batched |= strcmp(table->scalars[i].name, "batches") == 0;
    const int64_t tokens = (batched ? 1 : options->batches) * options->tokens;
    const struct {
        const char *name;
        const void *value;
        size_t bytes;
    } numbers[] = {
        {"batches", &options->batches, sizeof options->batches},
        {"tokens", &tokens, sizeof tokens},
        {"rows", &options->rows, sizeof options->rows},
        {"width", &options->width, sizeof options->width},
        {"documents", &options->documents, sizeof options->documents},
        {"scale", &options->scale, sizeof options->scale},
        {"workspace_limit", &limit, sizeof limit},
        {"free_multiprocessors", &free_multiprocessors,
         problem->pass->leaves_free ? sizeof free_multiprocessors : 0},
    };
    memcpy(problem->args, &table->bytes, sizeof table->bytes); /* the first field, `size` */
    for (int i = 0; i < table->scalar_count; i++)
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            if (strcmp(table->scalars[i].name, numbers[k].name) == 0)
                memcpy((char *)problem->args + table->scalars[i].field, numbers[k].value,
                       numbers[k].bytes);
}

/* The part that needs no memory for tensors: all extents, also in *args. */
static int begin(struct smelt__problem *problem, const struct smelt__harness_operator *op,
                 const struct smelt__harness_pass *pass, const void *spec,
                 const struct smelt__problem_options *options) {
    memset(problem, 0, sizeof *problem);
    problem->op = op;
    problem->pass = pass;
    problem->options = *options;
    problem->args = calloc(1, pass->tensors->bytes);
    if (!problem->args || copy_spec(problem, spec) != 0)
        return -1;
    smelt__options_default(op, spec, &problem->options);
    set_numbers(problem);
    if (pass->shape)
        pass->shape(problem);
    find_extents(problem);
    return 0;
}

int smelt__problem_create(struct smelt__problem *problem, const struct smelt__harness_operator *op,
                          const struct smelt__harness_pass *pass, const void *spec,
                          const struct smelt__problem_options *options) {
    if (begin(problem, op, pass, spec, options) == 0) {
        smelt__layout_make(problem);
        if (allocate_all(problem) == 0 && pass->fill(problem) == 0)
            return 0;
    }
    smelt__problem_destroy(problem);
    return -1;
}

/* The multiplications with whole tiles: lists are padded to KEYS keys, a group's heads to HEADS and products
 * to COLUMNS columns. */
static double tile_work(const struct smelt__problem *problem) {
    enum { KEYS = 64, HEADS = 16, COLUMNS = 64 };
    struct smelt__problem_options tiles = problem->options;
    const int64_t granularity = key_of(problem, "granularity"), heads = key_of(problem, "heads");
    const int64_t kv_heads = key_of(problem, "kv_heads");
    const int64_t group = heads && kv_heads ? heads / kv_heads : heads;
    const int64_t least = granularity ? (KEYS + granularity - 1) / granularity : KEYS;
    const int64_t dqk = key_of(problem, "dqk"), dim = dqk ? dqk : key_of(problem, "dim");
    const double padding = (group && group < HEADS ? (double)HEADS / (double)group : 1) *
                           (dim && dim < COLUMNS ? (double)COLUMNS / (double)dim : 1);
    tiles.width = tiles.width && tiles.width < least ? least : tiles.width;
    tiles.rows = tiles.rows && tiles.rows < KEYS ? KEYS : tiles.rows;
    return padding * problem->pass->multiplications(problem->spec, &tiles);
}

struct smelt__problem_cost smelt__problem_cost(const struct smelt__harness_operator *op,
                                               const struct smelt__harness_pass *pass,
                                               const void *spec,
                                               const struct smelt__problem_options *options) {
    enum { ACCESS = 10 }; /* multiplications that take the emulator as long as an access */
    struct smelt__problem_options packed = *options;
    struct smelt__problem problem;
    struct smelt__problem_cost cost = {-1, -1};
    packed.strided = packed.far = 0;
    packed.odd = 0;
    if (begin(&problem, op, pass, spec, &packed) == 0) {
        double elements = 0;
        smelt__layout_make(&problem);
        cost.bytes = 0;
        for (int i = 0; i < pass->tensors->count; i++) {
            cost.bytes += (double)smelt__problem_bytes(&problem, i);
            elements += (double)problem.buffers[i].elements;
        }
        cost.work = tile_work(&problem) + ACCESS * elements;
    }
    smelt__problem_destroy(&problem);
    return cost;
}

static int valid_refused(const struct smelt__problem_options *options, char *message, size_t size) {
    const int64_t most = options->width < options->rows ? options->width : options->rows;
    if (options->valid <= most || options->lists != SMELT__LISTS_RANDOM)
        return 0;
    snprintf(message, size,
             "valid = %" PRId64 " is out of range; legal: 1..%" PRId64 ", what %" PRId64
             " slots (--width) can name of %" PRId64 " rows",
             options->valid, most, options->width, options->rows);
    return 1;
}

/* Whether a call's error is about extents, judged by its text. */
static int is_about_extents(const char *error) {
    return strstr(error, " is out of range") || strstr(error, " exceed");
}

int smelt__problem_refused(const struct smelt__harness_operator *op,
                           const struct smelt__harness_pass *pass, const void *spec,
                           const struct smelt__problem_options *options,
                           const smelt_operator *object, char *message, size_t size) {
    struct smelt__problem problem;
    int refused = 0;
    if (begin(&problem, op, pass, spec, options) == 0) {
        refused = valid_refused(&problem.options, message, size);
        /* Calls check extents before tensors. No tensor has memory here, so any later error is
         * about a missing tensor and does not count. */
        if (!refused &&
            smelt__harness_calls->launch(object, pass->pass, problem.args, NULL) ==
                SMELT_ERROR_INVALID_ARGUMENT &&
            is_about_extents(smelt_last_error())) {
            snprintf(message, size, "%s", smelt_last_error());
            refused = 1;
        }
    }
    smelt__problem_destroy(&problem);
    return refused;
}

void smelt__problem_destroy(struct smelt__problem *problem) {
    for (int i = 0; problem->pass && i < problem->pass->tensors->count; i++)
        smelt__host_free(problem->buffers[i].host, smelt__problem_bytes(problem, i),
                         problem->options.far);
    free(problem->listed);
    free(problem->args);
    free(problem->spec);
    memset(problem, 0, sizeof *problem);
}
