/* Wrong numbers in results, and changed inputs: see test_comparisons.c. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "found.h"
#include "harness/random.h"
#include "reference/bf16.h"

enum { SAMPLES = 3, SAMPLES_OF_INTEGERS = 10 };

enum plant {
    A_NAN,
    AN_INF,
    A_MINUS_INF,
    LOWEST,
    NEGATIVE,
    MINUS_0, /* instead of -0: 0 */
    NEGATED,
    UP,
    DOWN,
    OTHER, /* another element's number */
    SWAP,  /* with the next element */
    MINUS_1,
    LARGE,
    SHIFT, /* this element and all after it increased by 1; SHIFT_2: by 2 */
    SHIFT_2,
    GAP, /* replaced by the 1st (4th, 9th, 16th) of the numbers that the list lacks */
    GAP_4,
    GAP_9,
    GAP_16,
    CHANGED, /* all numbers of an input */
    PLANTS
};
const char *const plant_names[] = {"nan",     "inf",     "-inf",   "lowest", "negative", "-0",
                                   "negated", "up",      "down",   "other",  "swap",     "-1",
                                   "large",   "shift",   "shift2", "gap1",   "gap4",     "gap9",
                                   "gap16",   "changed", NULL};

static const char *kind_of(const struct bench *bench, int tensor, int64_t element) {
    const double expected = bench->expected[tensor][element];
    return isnan(expected)                                  ? "nan"
           : isinf(expected)                                ? (expected > 0 ? "inf" : "-inf")
           : expected == 0 && bench_is_float(bench, tensor) ? "0"
           : expected == -1 && bench_type(bench, tensor) == SMELT__INT32 ? "-1"
                                                                         : "n";
}

void bench_step(const struct bench *bench, int tensor, int64_t element, int up) {
    unsigned char *at = bench_at(bench, tensor, element);
    const enum smelt__element type = bench_type(bench, tensor);
    const int bits = type == SMELT__BF16 ? 16 : 32;
    uint32_t number = 0;
    if (type == SMELT__E4M3) {
        *at = (unsigned char)(*at + (up ? 1 : 255));
        return;
    }
    if (type == SMELT__INT32) {
        bench_set(bench, tensor, element, bench_get(bench, tensor, element) + (up ? 1 : -1));
        return;
    }
    memcpy(&number, at, (size_t)bits / 8); /* little-endian */
    const uint32_t sign = UINT32_C(1) << (bits - 1);
    if ((number & ~sign) == 0)
        number = (up ? 0 : sign) | 1;
    else
        number += (number & sign ? !up : up) ? 1U : UINT32_MAX;
    memcpy(at, &number, (size_t)bits / 8);
}

static int is_for(const struct bench *bench, int tensor, enum plant plant) {
    if (plant == CHANGED || (plant >= UP && plant <= SWAP))
        return plant != CHANGED;
    return plant < UP ? bench_is_float(bench, tensor) : bench_type(bench, tensor) == SMELT__INT32;
}

static int is_in(const struct bench *bench, const struct piece *piece, int64_t number) {
    for (int64_t i = piece->first; i < piece->first + piece->count; i++)
        if (bench->expected[piece->tensor][i] == (double)number)
            return 1;
    return 0;
}

/* Replaces an element of a list by number `which` of the numbers that the list lacks, counted from its least
 * element on. An ascending list stays ascending. */
static void set_gap(const struct bench *bench, const struct piece *piece, int64_t element,
                    int which) {
    const double *const list = bench->expected[piece->tensor];
    int64_t begin = piece->first, end = piece->first, number;
    int ascending = 1;
    if (list[element] < 0)
        return;
    for (; end < piece->first + piece->count && list[end] >= 0; end++)
        ascending = ascending && (end == begin || list[end] > list[end - 1]);
    number = (int64_t)list[begin];
    for (int64_t i = begin; i < end; i++)
        number = list[i] < (double)number ? (int64_t)list[i] : number;
    for (; which > 0 && number < INT32_MAX; number++)
        which -= is_in(bench, piece, number) ? 0 : 1;
    number--;
    for (; ascending && element + 1 < end && list[element + 1] < (double)number; element++)
        bench_set(bench, piece->tensor, element, list[element + 1]);
    for (; ascending && element > begin && list[element - 1] > (double)number; element--)
        bench_set(bench, piece->tensor, element, list[element - 1]);
    bench_set(bench, piece->tensor, element, (double)number);
}

static void set_plant(const struct bench *bench, const struct piece *piece, int64_t element,
                      enum plant plant) {
    static const double numbers[] = {(double)NAN, INFINITY, -INFINITY, -(double)FLT_MAX, -1e-38};
    const int tensor = piece->tensor;
    const int64_t end = piece->first + piece->count,
                  elements = (int64_t)bench->problem.buffers[tensor].elements;
    const double before = bench_get(bench, tensor, element);
    int64_t other = element;
    switch (plant) {
    case UP:
    case DOWN:
        bench_step(bench, tensor, element, plant == UP);
        return;
    case MINUS_0:
        bench_set(bench, tensor, element, before == 0 && signbit(before) ? 0.0 : -0.0);
        return;
    case NEGATED:
        bench_set(bench, tensor, element, -before);
        return;
    case OTHER: /* the next computed element of another value */
        for (int64_t i = 1; i < elements && (other = (element + i) % elements, 1); i++)
            if (bench->piece_of[tensor][other] >= 0 && bench_get(bench, tensor, other) != before)
                break;
        bench_set(bench, tensor, element, bench_get(bench, tensor, other));
        return;
    case SWAP:
        if (element + 1 == end)
            return;
        bench_set(bench, tensor, element, bench_get(bench, tensor, element + 1));
        bench_set(bench, tensor, element + 1, before);
        return;
    case SHIFT:
    case SHIFT_2:
        for (int64_t i = element; i < end && bench_get(bench, tensor, i) >= 0; i++)
            bench_set(bench, tensor, i, bench_get(bench, tensor, i) + (plant == SHIFT ? 1 : 2));
        return;
    case GAP:
    case GAP_4:
    case GAP_9:
    case GAP_16:
        set_gap(bench, piece, element, ((int)plant - GAP + 1) * ((int)plant - GAP + 1));
        return;
    default:
        bench_set(bench, tensor, element,
                  plant == MINUS_1 ? -1
                  : plant == LARGE ? INT32_MAX
                                   : numbers[plant]);
    }
}

static int is_changed(const struct bench *bench, int tensor) {
    const struct smelt__device_buffer *buffer = &bench->placed.buffers[tensor];
    return memcmp(buffer->host, bench->right[tensor], buffer->front + buffer->bytes) != 0;
}

static void try_plant(struct bench *bench, const struct piece *piece, int64_t element,
                      enum plant plant) {
    const char *const kind = kind_of(bench, piece->tensor, element);
    if (!is_for(bench, piece->tensor, plant))
        return;
    set_plant(bench, piece, element, plant);
    if (is_changed(bench, piece->tensor)) {
        const struct smelt__check_result *result = bench_compare_unit(bench, piece);
        note_outcome(bench, piece->tensor, kind, (int)plant,
                     result->culprit ? result->culprit : "pass");
        if (result->culprit)
            expect_unit_named(bench, piece);
        for (int i = 0; i < result->metric_count; i++) {
            struct found_metric *metric = metric_named(result->metrics[i].metric->name);
            if (!metric || !isfinite(result->metrics[i].value))
                continue;
            metric->sum += result->metrics[i].value;
            metric->of_integers |=
                (result->metrics[i].metric->outputs & SMELT__OF(piece->tensor)) &&
                !bench_is_float(bench, piece->tensor);
        }
        for (int i = 0; result->culprit && i < found.rule_count; i++)
            found.rules[i].refused += strcmp(found.rules[i].name, result->culprit) == 0;
        for (int i = 0; result->culprit && i < found.metric_count; i++)
            found.metrics[i].refused += strcmp(found.metrics[i].name, result->culprit) == 0;
    }
    bench_restore(bench);
}

/* Elements of each kind: the first, the last, and random ones. */
void plant_in(struct bench *bench, int tensor) {
    static const char *const kinds[] = {"n", "0", "-1", "-inf", "inf", "nan"};
    struct smelt__random random = smelt__random_at(1, 1, (uint64_t)tensor);
    const int64_t elements = (int64_t)bench->problem.buffers[tensor].elements;
    const int samples = bench_is_float(bench, tensor) ? SAMPLES : SAMPLES_OF_INTEGERS;
    for (int k = 0; k < 6; k++) {
        int64_t *const all = malloc((size_t)(elements + 1) * sizeof *all), count = 0;
        assert_non_null(all);
        for (int64_t i = 0; i < elements; i++)
            if (bench->piece_of[tensor][i] >= 0 && strcmp(kind_of(bench, tensor, i), kinds[k]) == 0)
                all[count++] = i;
        for (int i = 0; i < samples && i < count; i++) {
            const int64_t element = all[i == 0   ? 0
                                        : i == 1 ? count - 1
                                                 : smelt__random_below(&random, count)];
            for (int plant = 0; plant < PLANTS; plant++)
                try_plant(bench, &bench->pieces[bench->piece_of[tensor][element]], element,
                          (enum plant)plant);
        }
        free(all);
    }
}

void change_input(struct bench *bench, int tensor) {
    unsigned char *const data = smelt__problem_data(&bench->problem, tensor);
    const size_t bytes = smelt__problem_bytes(&bench->problem, tensor);
    unsigned char *const kept = malloc(bytes);
    assert_non_null(kept);
    memcpy(kept, data, bytes);
    for (size_t i = 0; i < bench->problem.buffers[tensor].elements; i++) {
        uint16_t *const half = (uint16_t *)(void *)data + i;
        float *const number = (float *)(void *)data + i;
        int32_t *const integer = (int32_t *)(void *)data + i;
        if (bench_type(bench, tensor) == SMELT__BF16)
            *half = smelt__bf16_from_float(1.5F * smelt__bf16_to_float(*half) + 0.25F);
        else if (bench_type(bench, tensor) == SMELT__FP32)
            *number = 1.5F * *number + 0.25F;
        else if (bench_type(bench, tensor) == SMELT__INT32)
            *integer += *integer < INT32_MAX;
        else
            data[i] ^= 0x10;
    }
    const struct smelt__check_result *result = bench_compare(bench);
    note_outcome(bench, tensor, "input", CHANGED, result->culprit ? "refused" : "pass");
    bench_restore(bench);
    memcpy(data, kept, bytes);
    free(kept);
}
