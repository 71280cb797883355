/* See compared.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compared.h"
#include "harness/guards.h"
#include "harness/option_text.h"
#include "reference/bf16.h"

/* ---- the operators' files --------------------------------------------------------------------- */

static void read_problem(struct compared_pass *pass, char *text) {
    struct smelt__problem_options *options = &pass->problems[pass->problem_count++];
    char message[256];
    assert_in_range(pass->problem_count, 1, MOST_PROBLEMS);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = 0;
        if (smelt__problem_option_set(pass->op, options, word, value, message, sizeof message) != 1)
            fail_msg("%s: %s", pass->op->name, message);
    }
}

int compared_read(const char *folder, const struct smelt__harness_operator *op,
                  struct compared_pass passes[2]) {
    char path[1024], line[1024];
    int count = 0;
    snprintf(path, sizeof path, "%s/%s.txt", folder, op->name);
    FILE *const file = fopen(path, "r");
    if (!file)
        fail_msg("%s: there is no such file, which has the operator's specs and problems", path);
    memset(passes, 0, 2 * sizeof *passes);
    while (fgets(line, sizeof line, file)) {
        struct compared_pass *const pass = &passes[count > 0 ? count - 1 : 0];
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "pass ", 5) == 0) {
            assert_in_range(++count, 1, 2);
            passes[count - 1].op = op;
            passes[count - 1].pass =
                strcmp(line + 5, "forward") == 0 ? SMELT_PASS_FORWARD : SMELT_PASS_BACKWARD;
        } else if (strncmp(line, "spec ", 5) == 0) {
            assert_in_range(pass->spec_count, 0, MOST_SPECS - 1);
            assert_in_range(strlen(line + 5), 1, sizeof pass->specs[0] - 1);
            strcpy(pass->specs[pass->spec_count++], line + 5);
        } else if (strncmp(line, "problem ", 8) == 0) {
            read_problem(pass, line + 8);
        }
    }
    fclose(file);
    assert_true(count > 0);
    return count;
}

void compared_each(const char *folder, const char *only,
                   void (*each)(const struct compared_pass *passes, int count)) {
    const struct smelt__harness_operator *const *const all = smelt__harness_operators;
    for (int i = 0; all[i]; i++) {
        struct compared_pass passes[2];
        if (!only || strcmp(only, all[i]->name) == 0)
            each(passes, compared_read(folder, all[i], passes));
    }
}

smelt_context *compared_context;

int compared_begin(void **state) {
    (void)state;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    options.cache_disable = 1;
    return smelt_context_create(&compared_context, &options) == SMELT_OK ? 0 : -1;
}

int compared_end(void **state) {
    (void)state;
    smelt_context_destroy(&compared_context);
    return 0;
}

/* ---- elements -------------------------------------------------------------------------------- */

enum smelt__element bench_type(const struct bench *bench, int tensor) {
    return bench->pass.tensors->rows[tensor].element;
}

int bench_is_float(const struct bench *bench, int tensor) {
    const enum smelt__element type = bench_type(bench, tensor);
    return type == SMELT__BF16 || type == SMELT__FP32;
}

unsigned char *bench_at(const struct bench *bench, int tensor, int64_t element) {
    const struct smelt__device_buffer *buffer = &bench->placed.buffers[tensor];
    return buffer->host + buffer->front +
           element * (int64_t)smelt__element_bytes(bench_type(bench, tensor));
}

double bench_get(const struct bench *bench, int tensor, int64_t element) {
    const unsigned char *at = bench_at(bench, tensor, element);
    uint16_t half;
    int32_t integer;
    float single;
    switch (bench_type(bench, tensor)) {
    case SMELT__BF16:
        memcpy(&half, at, sizeof half);
        return (double)smelt__bf16_to_float(half);
    case SMELT__FP32:
        memcpy(&single, at, sizeof single);
        return (double)single;
    case SMELT__INT32:
        memcpy(&integer, at, sizeof integer);
        return integer;
    default:
        return *at;
    }
}

void bench_set(const struct bench *bench, int tensor, int64_t element, double value) {
    unsigned char *at = bench_at(bench, tensor, element);
    const float single = (float)value;
    const uint16_t half = smelt__bf16_from_float(single);
    const int32_t integer = bench_type(bench, tensor) == SMELT__INT32 ? (int32_t)value : 0;
    switch (bench_type(bench, tensor)) {
    case SMELT__BF16:
        memcpy(at, &half, sizeof half);
        break;
    case SMELT__FP32:
        memcpy(at, &single, sizeof single);
        break;
    case SMELT__INT32:
        memcpy(at, &integer, sizeof integer);
        break;
    default:
        *at = (unsigned char)value;
        break;
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void take_answer(void *user, const struct smelt__placed *placed, int tensor, int64_t first,
                        int64_t count, const double *expected) {
    struct bench *bench = user;
    (void)placed;
    assert_non_null(expected);
    if (bench->piece_count == bench->piece_room) {
        bench->piece_room = 2 * bench->piece_room + 64;
        bench->pieces = realloc(bench->pieces, (size_t)bench->piece_room * sizeof *bench->pieces);
        assert_non_null(bench->pieces);
    }
    bench->pieces[bench->piece_count] =
        (struct piece){tensor, first, count, bench->comparison, bench->unit, -1};
    for (int64_t i = 0; i < count; i++) {
        bench->expected[tensor][first + i] = expected[i];
        bench->piece_of[tensor][first + i] = bench->piece_count;
        bench_set(bench, tensor, first + i, expected[i]);
        if (expected[i] < 0 && bench_get(bench, tensor, first + i) == 0)
            bench_set(bench, tensor, first + i, 0); /* underflows to +0 */
    }
    bench->piece_count++;
}

/* Compares every unit, to get the answers of all computed elements. */
static void answer(struct bench *bench, int number) {
    const struct smelt__comparison *how = &bench->pass.comparisons[number];
    void *prepared = NULL;
    const int64_t count = smelt__comparison_count(how, &bench->problem);
    struct smelt__finding finding;
    if (how->prepare) {
        prepared = how->prepare(&bench->placed, NULL, 0);
        assert_non_null(prepared);
    }
    bench->comparison = number;
    for (bench->unit = 0; bench->unit < count; bench->unit++) {
        if (how->wanted && !how->wanted(&bench->problem, bench->unit))
            continue;
        memset(&finding, 0, sizeof finding);
        how->compare(&bench->placed, prepared, bench->unit, &finding);
        assert_int_equal(finding.failed, 0);
    }
    if (prepared)
        how->release(prepared);
}

static size_t all_bytes(const struct bench *bench, int tensor) {
    return bench->placed.buffers[tensor].front + bench->placed.buffers[tensor].bytes + SMELT__GUARD;
}

void bench_restore(struct bench *bench) {
    for (int i = 0; i < bench->pass.tensors->count; i++)
        if (bench->right[i])
            memcpy(bench->placed.buffers[i].host, bench->right[i], all_bytes(bench, i));
}

static void keep_answers(struct bench *bench) {
    for (int i = 0; i < bench->pass.tensors->count; i++) {
        if (!bench->placed.buffers[i].host)
            continue;
        bench->right[i] = malloc(all_bytes(bench, i));
        assert_non_null(bench->right[i]);
        memcpy(bench->right[i], bench->placed.buffers[i].host, all_bytes(bench, i));
    }
}

void bench_open(struct bench *bench, unsigned which, const char *spec,
                const struct smelt__problem_options *options) {
    memset(bench, 0, sizeof *bench);
    bench->spec_text = spec;
    if (smelt__harness_spec_parse(&bench->spec, spec) != SMELT_OK)
        fail_msg("%s: %s", spec, smelt_last_error());
    const struct smelt__harness_pass *pass = smelt__harness_spec_pass(&bench->spec, which);
    assert_non_null(pass);
    bench->pass = *pass;
    assert_int_equal(
        smelt__problem_create(&bench->problem, bench->spec.op, pass, bench->spec.spec, options), 0);
    assert_int_equal(smelt__placed_create(&bench->placed, compared_context, &bench->problem),
                     SMELT_OK);
    assert_int_equal(smelt__placed_poison(&bench->placed), SMELT_OK);
    assert_int_equal(smelt__placed_download(&bench->placed), SMELT_OK);
    for (int i = 0; i < pass->tensors->count; i++) {
        const size_t elements = bench->problem.buffers[i].elements;
        if (!bench->placed.buffers[i].host)
            continue;
        bench->expected[i] = malloc(elements * sizeof(double));
        bench->piece_of[i] = malloc(elements * sizeof(int32_t));
        for (size_t k = 0; k < elements; k++) {
            bench->expected[i][k] = (double)NAN;
            bench->piece_of[i][k] = -1;
        }
    }
    assert_in_range(pass->comparison_count, 1, 4);
    memcpy(bench->comparisons, pass->comparisons,
           (size_t)pass->comparison_count * sizeof *pass->comparisons);
    bench->pass.comparisons = bench->comparisons;
    bench->placed.answer = take_answer;
    bench->placed.answer_user = bench;
    for (int i = 0; i < pass->comparison_count; i++)
        answer(bench, i);
    bench->placed.answer = NULL;
    bench->placed.pass = &bench->pass;
    keep_answers(bench);
}

void bench_close(struct bench *bench) {
    for (int i = 0; i < bench->pass.tensors->count; i++) {
        free(bench->expected[i]);
        free(bench->piece_of[i]);
        free(bench->right[i]);
    }
    free(bench->pieces);
    smelt__placed_destroy(&bench->placed);
    smelt__problem_destroy(&bench->problem);
    smelt__harness_spec_free(&bench->spec);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void compare(struct bench *bench) {
    memset(&bench->result, 0, sizeof bench->result);
    const int failed = smelt__check_compare(&bench->placed, INT32_MAX, &bench->result);
    assert_int_equal(failed, bench->result.passed ? 0 : -1);
    assert_int_equal(failed, bench->result.culprit ? -1 : 0);
}

/* All units, although the harness would choose a sample. */
static _Thread_local int64_t only_unit; /* -1: all */

static int64_t choose_all(const struct smelt__placed *placed, int64_t most, int64_t *units) {
    (void)placed;
    for (int64_t i = 0; i < most; i++)
        units[i] = i;
    return most;
}

static int64_t choose_one(const struct smelt__placed *placed, int64_t most, int64_t *units) {
    (void)placed;
    *units = only_unit;
    return most > 0;
}

static int64_t choose_none(const struct smelt__placed *placed, int64_t most, int64_t *units) {
    (void)placed, (void)most, (void)units;
    return 0;
}

static void set_choices(struct bench *bench, const struct piece *piece) {
    const struct smelt__harness_pass *pass = bench->problem.pass;
    for (int i = 0; i < pass->comparison_count; i++) {
        bench->comparisons[i].choose = pass->comparisons[i].choose ? choose_all : NULL;
        if (piece)
            bench->comparisons[i].choose = i == piece->comparison ? choose_one : choose_none;
    }
    only_unit = piece ? piece->unit : -1;
}

const struct smelt__check_result *bench_compare(struct bench *bench) {
    set_choices(bench, NULL);
    compare(bench);
    return &bench->result;
}

const struct smelt__check_result *bench_compare_unit(struct bench *bench,
                                                     const struct piece *piece) {
    set_choices(bench, piece);
    compare(bench);
    if (bench->result.culprit && strcmp(bench->result.culprit, "not_compared") == 0) {
        bench->result.culprit = NULL; /* the outputs of other comparisons */
        bench->result.passed = 1;
    }
    return &bench->result;
}
