/*
 * What every comparison accepts and refuses: see compared.h.
 *
 *     test_comparisons FOLDER [OPERATOR] [--renew]
 *
 * For each pass of the operators (of OPERATOR only) the program writes correct results into the outputs, which
 * must pass. Then it makes changes of three kinds.
 *
 * Errors: an element, a piece or a whole output is multiplied by 1 + e. For each metric the program finds
 * the largest e that passes and the smallest that fails because of this metric.
 *
 * Inputs: all numbers of one input are changed, so that the correct results must no longer pass.
 *
 * Wrong numbers: elements of each output and kind of expected value (0, -inf, inf, nan, -1, n: any other
 * number) are replaced by NaN, infinities, the adjacent numbers, others of the output and so on.
 *
 * The file FOLDER/OPERATOR.txt records, after the specs and problems:
 *
 *     footprint TENSOR N/M...    bytes that a kernel may access, and a sum of where they begin and end
 *     values OUTPUT              two sums over the correct results of the reference
 *     rule NAME                  how often it was checked in the correct results
 *     bar METRIC                 its bar, for each spec and problem
 *     error METRIC of a SHAPE    the smallest e that fails, likewise; - where another metric or rule fails first
 *     sum METRIC                 for metrics of integers: the sum of its finite values with all wrong numbers
 *     input NAME: ...            with how many specs and problems the results then fail, and pass
 *     OUTPUT KIND REASON COUNT   how many wrong numbers fail for this reason, and which; REASON pass: pass
 *
 * The test fails if this differs from what is recorded, if no error and no wrong number makes a metric or rule fail,
 * and if an output has neither. --renew records what was found: read its diff.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "compared.h"
#include "harness/defaults.h"
#include "harness/random.h"
#include "reference/bf16.h"

enum {
    MOST_BENCHES = MOST_SPECS * MOST_PROBLEMS,
    MOST_OUTCOMES = 256,
    SAMPLES = 3,
    SAMPLES_OF_INTEGERS = 10
};

static smelt_context *context;
static const char *folder, *only;
static int renew;
static uint64_t seed; /* of `variations` */

static int open_context(void **state) {
    (void)state;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    options.cache_disable = 1;
    return smelt_context_create(&context, &options) == SMELT_OK ? 0 : -1;
}

static int close_context(void **state) {
    (void)state;
    smelt_context_destroy(&context);
    return 0;
}

/* ---- what was found -------------------------------------------------------------------------- */

enum shape { ELEMENT, PIECE, ALL, SHAPES };
static const char *const shape_names[] = {"an element", "a piece", "an output"};

static struct found {
    int benches;
    struct found_rule {
        const char *name;
        int64_t applied;
        int refused;
    } rules[SMELT__MOST_RULES];
    int rule_count;
    struct found_metric {
        const char *name;
        double bars[MOST_BENCHES], errors[SHAPES][MOST_BENCHES], sum;
        int refused, of_integers;
    } metrics[SMELT__MOST_METRICS];
    int metric_count;
    struct outcome {
        const char *output, *kind, *reason;
        unsigned plants;
        int count;
    } outcomes[MOST_OUTCOMES];
    int outcome_count;
    struct found_values {
        const char *output;
        double sum, size;
    } values[SMELT__MOST_TENSORS];
    int value_count;
    struct found_footprint {
        const char *tensor;
        int64_t bytes, ends;
    } footprints[SMELT__MOST_TENSORS];
    int footprint_count;
} found;

static struct found_rule *rule_named(const char *name) {
    for (int i = 0; i < found.rule_count; i++)
        if (strcmp(found.rules[i].name, name) == 0)
            return &found.rules[i];
    return NULL;
}

static struct found_metric *metric_named(const char *name) {
    for (int i = 0; i < found.metric_count; i++)
        if (strcmp(found.metrics[i].name, name) == 0)
            return &found.metrics[i];
    return NULL;
}

/* Notes how often each rule was checked in correct results, and the bars. */
static void note_result(const struct smelt__check_result *result) {
    for (int i = 0; i < result->rule_count; i++) {
        const char *name = result->rules[i].rule->name;
        struct found_rule *rule = rule_named(name);
        if (!rule)
            *(rule = &found.rules[found.rule_count++]) = (struct found_rule){.name = name};
        rule->applied += result->rules[i].applied;
    }
    for (int i = 0; i < result->metric_count; i++) {
        const char *name = result->metrics[i].metric->name;
        if (result->metrics[i].bar < 0)
            continue;
        struct found_metric *metric = metric_named(name);
        if (!metric) {
            *(metric = &found.metrics[found.metric_count++]) = (struct found_metric){.name = name};
            for (int n = 0; n < MOST_BENCHES; n++) {
                metric->bars[n] = (double)NAN;
                for (int shape = 0; shape < SHAPES; shape++)
                    metric->errors[shape][n] = (double)NAN;
            }
        }
        metric->bars[found.benches] = result->metrics[i].bar;
    }
}

/* Two sums over the reference's results, so that any change of a result shows. */
static void note_values(const struct bench *bench, int tensor) {
    const char *const name = bench->pass.tensors->rows[tensor].name;
    int n = 0;
    while (n < found.value_count && strcmp(found.values[n].output, name) != 0)
        n++;
    found.values[n].output = name;
    found.value_count += n == found.value_count;
    for (int64_t i = 0; i < (int64_t)bench->problem.buffers[tensor].elements; i++)
        if (fabs(bench->expected[tensor][i]) < 1e30) {
            found.values[n].sum += (double)(1 + i % 7) * bench->expected[tensor][i];
            found.values[n].size += fabs(bench->expected[tensor][i]);
        }
}

/* The memory that a kernel may access: its bytes, and a sum that depends on where they are. */
static void note_footprint(const struct bench *bench, int tensor) {
    const struct smelt__footprint *footprint = &bench->placed.footprints.tensors[tensor];
    const char *const name = bench->pass.tensors->rows[tensor].name;
    int n = 0;
    while (n < found.footprint_count && strcmp(found.footprints[n].tensor, name) != 0)
        n++;
    found.footprints[n].tensor = name;
    found.footprint_count += n == found.footprint_count;
    for (size_t i = 0; i < footprint->count; i++) {
        found.footprints[n].bytes += footprint->intervals[i].end - footprint->intervals[i].begin;
        found.footprints[n].ends += footprint->intervals[i].begin + 2 * footprint->intervals[i].end;
    }
}

/* ---- wrong numbers --------------------------------------------------------------------------- */

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
    SHIFT, /* all from here on increased by 1; by 2 */
    SHIFT_2,
    GAP, /* a number that the list lacks instead, in order: the 1st, 4th, 9th and 16th one */
    GAP_4,
    GAP_9,
    GAP_16,
    CHANGED, /* all numbers of an input */
    PLANTS
};
static const char *const plant_names[PLANTS] = {
    "nan",  "inf", "-inf",  "lowest", "negative", "-0",   "negated", "up",   "down",  "other",
    "swap", "-1",  "large", "shift",  "shift2",   "gap1", "gap4",    "gap9", "gap16", "changed"};

static enum smelt__element type_of(const struct bench *bench, int tensor) {
    return bench->pass.tensors->rows[tensor].element;
}

static int is_float(const struct bench *bench, int tensor) {
    return type_of(bench, tensor) == SMELT__BF16 || type_of(bench, tensor) == SMELT__FP32;
}

static const char *kind_of(const struct bench *bench, int tensor, int64_t element) {
    const double expected = bench->expected[tensor][element];
    return isnan(expected)                            ? "nan"
           : isinf(expected)                          ? (expected > 0 ? "inf" : "-inf")
           : expected == 0 && is_float(bench, tensor) ? "0"
           : expected == -1 && type_of(bench, tensor) == SMELT__INT32 ? "-1"
                                                                      : "n";
}

/* Moves an element to the adjacent number of its type, towards either infinity. */
static void step(const struct bench *bench, int tensor, int64_t element, int up) {
    unsigned char *at = bench_at(bench, tensor, element);
    const enum smelt__element type = type_of(bench, tensor);
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
    return plant < UP ? is_float(bench, tensor) : type_of(bench, tensor) == SMELT__INT32;
}

static int is_in(const struct bench *bench, const struct piece *piece, int64_t number) {
    for (int64_t i = piece->first; i < piece->first + piece->count; i++)
        if (bench->expected[piece->tensor][i] == (double)number)
            return 1;
    return 0;
}

/* Takes an element out of a list and inserts gap number `which` of the numbers from the list's least one on,
 * at the same place or, in an ascending list, where it belongs. */
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
        step(bench, tensor, element, plant == UP);
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

static void note_outcome(const struct bench *bench, int tensor, const char *kind, enum plant plant,
                         const char *reason) {
    const char *output = bench->pass.tensors->rows[tensor].name;
    int i = 0;
    for (; i < found.outcome_count; i++)
        if (strcmp(found.outcomes[i].output, output) == 0 &&
            strcmp(found.outcomes[i].kind, kind) == 0 &&
            strcmp(found.outcomes[i].reason, reason) == 0)
            break;
    assert_in_range(i, 0, MOST_OUTCOMES - 1);
    if (i == found.outcome_count)
        found.outcomes[found.outcome_count++] = (struct outcome){output, kind, reason, 0, 0};
    found.outcomes[i].plants |= 1U << plant;
    found.outcomes[i].count++;
}

/* A refusal by a rule, or by a metric that is a maximum, names the unit. */
static void expect_unit_named(const struct bench *bench, const struct piece *piece) {
    const struct smelt__check_result *result = &bench->result;
    char unit[128];
    snprintf(unit, sizeof unit, "%s %lld ", bench->comparisons[piece->comparison].unit,
             (long long)piece->unit);
    for (int i = 0; i < result->metric_count; i++)
        if (strcmp(result->metrics[i].metric->name, result->culprit) == 0 &&
            result->metrics[i].metric->gathering == SMELT__OVERALL)
            return;
    if ((rule_named(result->culprit) || metric_named(result->culprit)) &&
        strncmp(result->message, unit, strlen(unit)) != 0)
        fail_msg("%s: '%s' does not name %s", bench->spec_text, result->message, unit);
}

static void try_plant(struct bench *bench, const struct piece *piece, int64_t element,
                      enum plant plant) {
    const char *const kind = kind_of(bench, piece->tensor, element);
    if (!is_for(bench, piece->tensor, plant))
        return;
    set_plant(bench, piece, element, plant);
    if (is_changed(bench, piece->tensor)) {
        const struct smelt__check_result *result = bench_compare_unit(bench, piece);
        note_outcome(bench, piece->tensor, kind, plant, result->culprit ? result->culprit : "pass");
        if (result->culprit)
            expect_unit_named(bench, piece);
        for (int i = 0; i < result->metric_count; i++) {
            struct found_metric *metric = metric_named(result->metrics[i].metric->name);
            if (!metric || !isfinite(result->metrics[i].value))
                continue;
            metric->sum += result->metrics[i].value;
            metric->of_integers |=
                (result->metrics[i].metric->outputs & SMELT__OF(piece->tensor)) &&
                !is_float(bench, piece->tensor);
        }
        for (int i = 0; result->culprit && i < found.rule_count; i++)
            found.rules[i].refused += strcmp(found.rules[i].name, result->culprit) == 0;
        for (int i = 0; result->culprit && i < found.metric_count; i++)
            found.metrics[i].refused += strcmp(found.metrics[i].name, result->culprit) == 0;
    }
    bench_restore(bench);
}

/* Elements of each kind: the first, the last, and random ones. */
static void plant_in(struct bench *bench, int tensor) {
    static const char *const kinds[] = {"n", "0", "-1", "-inf", "inf", "nan"};
    struct smelt__random random = smelt__random_at(1, 1, (uint64_t)tensor);
    const int64_t elements = (int64_t)bench->problem.buffers[tensor].elements;
    const int samples = is_float(bench, tensor) ? SAMPLES : SAMPLES_OF_INTEGERS;
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

/* Changes every number of an input, so that the correct results become wrong. */
static void change_input(struct bench *bench, int tensor) {
    unsigned char *const data = smelt__problem_data(&bench->problem, tensor);
    const size_t bytes = smelt__problem_bytes(&bench->problem, tensor);
    unsigned char *const kept = malloc(bytes);
    assert_non_null(kept);
    memcpy(kept, data, bytes);
    for (size_t i = 0; i < bench->problem.buffers[tensor].elements; i++) {
        uint16_t *const half = (uint16_t *)(void *)data + i;
        float *const number = (float *)(void *)data + i;
        int32_t *const integer = (int32_t *)(void *)data + i;
        if (type_of(bench, tensor) == SMELT__BF16)
            *half = smelt__bf16_from_float(1.5F * smelt__bf16_to_float(*half) + 0.25F);
        else if (type_of(bench, tensor) == SMELT__FP32)
            *number = 1.5F * *number + 0.25F;
        else if (type_of(bench, tensor) == SMELT__INT32)
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

/* ---- errors ---------------------------------------------------------------------------------- */

static int64_t largest_of(const struct bench *bench, const struct piece *piece) {
    int64_t largest = -1;
    double size = 0;
    for (int64_t i = piece->first; i < piece->first + piece->count; i++) {
        const double expected = fabs(bench->expected[piece->tensor][i]);
        if (isfinite(expected) && expected > size)
            size = expected, largest = i;
    }
    return largest;
}

/* Whether a rule forbids any error in the piece, or it has no number to change. */
static int is_exact(struct bench *bench, struct piece *piece) {
    const int64_t element = largest_of(bench, piece);
    if (piece->exact < 0 && element >= 0) {
        step(bench, piece->tensor, element, 1);
        const struct smelt__check_result *result = bench_compare_unit(bench, piece);
        piece->exact = result->culprit && rule_named(result->culprit);
        bench_restore(bench);
    }
    return element < 0 || piece->exact;
}

static void enlarge(const struct bench *bench, const struct piece *piece, int64_t element,
                    double error) {
    for (int64_t i = piece->first; i < piece->first + piece->count; i++)
        if ((element < 0 || i == element) && isfinite(bench->expected[piece->tensor][i]))
            bench_set(bench, piece->tensor, i, bench->expected[piece->tensor][i] * (1 + error));
}

/* Whether the metric is above its bar with this error. */
static int exceeds(struct bench *bench, int metric, enum shape shape, struct piece *piece,
                   double error) {
    bench_restore(bench);
    for (int i = 0; shape == ALL && i < bench->piece_count; i++)
        if ((bench->result.metrics[metric].metric->outputs & SMELT__OF(bench->pieces[i].tensor)) &&
            !bench->pieces[i].exact)
            enlarge(bench, &bench->pieces[i], -1, error);
    if (shape != ALL)
        enlarge(bench, piece, shape == ELEMENT ? largest_of(bench, piece) : -1, error);
    const struct smelt__metric_result *result =
        &(shape == ALL ? bench_compare(bench) : bench_compare_unit(bench, piece))->metrics[metric];
    return !(result->value <= result->bar);
}

/* The smallest error that fails, if it does so because of this metric; else NaN. */
static double find_error(struct bench *bench, int metric, enum shape shape, struct piece *piece) {
    double low = 0, high = 1e-7;
    for (; !exceeds(bench, metric, shape, piece, high); high *= 8) {
        if (high > 64)
            return (double)NAN;
        low = high;
    }
    while (high - low > 0.002 * high) {
        const double middle = low > 0 ? sqrt(low * high) : high / 8;
        if (exceeds(bench, metric, shape, piece, middle))
            high = middle;
        else
            low = middle;
        if (high < 1e-12)
            return (double)NAN;
    }
    exceeds(bench, metric, shape, piece, low);
    if (bench->result.culprit)
        return (double)NAN;
    exceeds(bench, metric, shape, piece, high);
    if (strcmp(bench->result.culprit, bench->result.metrics[metric].metric->name) != 0)
        return (double)NAN;
    if (shape != ALL)
        expect_unit_named(bench, piece);
    return high;
}

/* The geometric mean of two pieces' errors. */
static double mean_error(struct bench *bench, int metric, enum shape shape, const int *pieces,
                         int count) {
    struct smelt__random random = smelt__random_at(2, (uint64_t)metric, (uint64_t)shape);
    double logarithms = 0;
    int errors = 0;
    for (int i = 0; i < (shape == ALL ? 1 : 2) && count > 0; i++) {
        struct piece *piece = &bench->pieces[pieces[smelt__random_below(&random, count)]];
        if (shape == PIECE && piece->count == 1)
            continue;
        const double error = find_error(bench, metric, shape, piece);
        bench_restore(bench);
        if (!isnan(error))
            logarithms += log(error), errors++;
    }
    return errors ? exp(logarithms / errors) : (double)NAN;
}

static void find_errors(struct bench *bench) {
    const struct smelt__check_result right = bench->result;
    int *const pieces = malloc((size_t)(bench->piece_count + 1) * sizeof *pieces);
    assert_non_null(pieces);
    for (int m = 0; m < right.metric_count; m++) {
        struct found_metric *metric = metric_named(right.metrics[m].metric->name);
        int count = 0;
        if (right.metrics[m].bar < 0)
            continue;
        for (int i = 0; i < bench->piece_count; i++)
            if ((right.metrics[m].metric->outputs & SMELT__OF(bench->pieces[i].tensor)) &&
                is_float(bench, bench->pieces[i].tensor) && !is_exact(bench, &bench->pieces[i]))
                pieces[count++] = i;
        for (int shape = 0; shape < SHAPES; shape++) {
            const double error = mean_error(bench, m, (enum shape)shape, pieces, count);
            metric->errors[shape][found.benches] = error;
            metric->refused += !isnan(error);
        }
    }
    free(pieces);
}

/* ---- what is declared and compared ----------------------------------------------------------- */

static void expect_outputs_named(const struct smelt__harness_operator *op,
                                 const struct smelt__harness_pass *pass) {
    unsigned named = 0;
    for (int i = 0; i < pass->comparison_count; i++) {
        for (int k = 0; k < pass->comparisons[i].metric_count; k++)
            named |= pass->comparisons[i].metrics[k].outputs;
        for (int k = 0; k < pass->comparisons[i].rule_count; k++)
            named |= pass->comparisons[i].rules[k].outputs;
    }
    for (int i = 0; i < pass->tensors->count; i++) {
        const struct smelt__tensor_row *row = &pass->tensors->rows[i];
        const int output = row->role != SMELT__INPUT;
        if (output != (int)(named >> i & 1U))
            fail_msg("%s, %s: %s is %s", op->name, pass->name, row->name,
                     output ? "an output that no metric and no rule names"
                            : "no output, but a metric or a rule names it");
    }
}

static int64_t computed_elements(const struct bench *bench, int tensor) {
    const struct smelt__footprint *footprint = &bench->placed.footprints.tensors[tensor];
    int64_t bytes = 0;
    for (size_t i = 0; i < footprint->count; i++)
        bytes += footprint->intervals[i].end - footprint->intervals[i].begin;
    return bytes / (int64_t)smelt__element_bytes(bench->pass.tensors->rows[tensor].element);
}

/* Every computed element is compared once, and an output that is not compared is reported. */
static void outputs_of(struct bench *bench) {
    const struct smelt__check_result right = *bench_compare(bench);
    bench_restore(bench);
    for (int i = 0; i < bench->pass.tensors->count; i++)
        if (bench->right[i] && right.elements[i] != computed_elements(bench, i))
            fail_msg("%s: of %s %lld elements were compared, %lld are computed", bench->spec_text,
                     bench->pass.tensors->rows[i].name, (long long)right.elements[i],
                     (long long)computed_elements(bench, i));
    bench->pass.comparison_count--; /* the last one's outputs */
    const struct smelt__check_result *result = bench_compare(bench);
    const struct piece *last = &bench->pieces[bench->piece_count - 1];
    if (bench->pass.comparison_count > 0 && last->comparison == bench->pass.comparison_count &&
        (!result->culprit || strcmp(result->culprit, "not_compared") != 0 ||
         !strstr(result->message, bench->pass.tensors->rows[last->tensor].name)))
        fail_msg("%s: without its last comparison: %s", bench->spec_text, result->message);
    bench->pass.comparison_count++;
    bench_restore(bench);
}

/* The first and the last unit are in every sample. */
static void ends_of(struct bench *bench) {
    for (int i = 0; i < bench->piece_count; i++) {
        const struct piece *piece = &bench->pieces[i];
        const struct smelt__comparison *how = &bench->problem.pass->comparisons[piece->comparison];
        const int first = i == 0 || piece[-1].comparison != piece->comparison;
        const int last = i + 1 == bench->piece_count || piece[1].comparison != piece->comparison;
        if (!first && !last)
            continue;
        /* A wrong number, not NaN, which the search for unwritten elements would find. */
        for (int64_t k = piece->first; k < piece->first + piece->count; k++) {
            const double expected = bench->expected[piece->tensor][k];
            bench_set(bench, piece->tensor, k, isfinite(expected) ? 3 * expected + 100 : 5);
        }
        memset(&bench->result, 0, sizeof bench->result);
        for (int k = 0; k < bench->pass.comparison_count; k++)
            bench->comparisons[k].choose = bench->problem.pass->comparisons[k].choose;
        if (smelt__check_compare(&bench->placed, how->choose ? 4 : 2, &bench->result) == 0)
            fail_msg("%s: with a small sample %s of unit %lld was not compared", bench->spec_text,
                     bench->pass.tensors->rows[piece->tensor].name, (long long)piece->unit);
        bench_restore(bench);
    }
}

/* ---- the record ------------------------------------------------------------------------------ */

static void print_numbers(FILE *to, const double *numbers) {
    for (int i = 0; i < found.benches; i++)
        if (isnan(numbers[i]))
            fprintf(to, " -");
        else
            fprintf(to, " %.3g", numbers[i]);
    fprintf(to, "\n");
}

static int has_numbers(const double *numbers) {
    for (int i = 0; i < found.benches; i++)
        if (!isnan(numbers[i]))
            return 1;
    return 0;
}

static int by_output(const void *a, const void *b) {
    const struct outcome *x = a, *y = b;
    int order = strcmp(x->output, y->output);
    order = order ? order : strcmp(x->kind, y->kind);
    return order ? order : strcmp(x->reason, y->reason);
}

static void print_found(FILE *to) {
    for (int i = 0; i < found.footprint_count; i++)
        fprintf(to, "%s %s %lld/%lld", i ? "" : "footprint", found.footprints[i].tensor,
                (long long)found.footprints[i].bytes, (long long)found.footprints[i].ends);
    fprintf(to, "\n");
    for (int i = 0; i < found.value_count; i++)
        fprintf(to, "values %s %.7g %.7g\n", found.values[i].output, found.values[i].sum,
                found.values[i].size);
    for (int i = 0; i < found.rule_count; i++)
        fprintf(to, "rule %s %lld\n", found.rules[i].name, (long long)found.rules[i].applied);
    for (int i = 0; i < found.metric_count; i++) {
        const struct found_metric *metric = &found.metrics[i];
        fprintf(to, "bar %s", metric->name);
        print_numbers(to, metric->bars);
        for (int shape = 0; shape < SHAPES; shape++)
            if (has_numbers(metric->errors[shape])) {
                fprintf(to, "error %s of %s", metric->name, shape_names[shape]);
                print_numbers(to, metric->errors[shape]);
            }
        if (metric->of_integers)
            fprintf(to, "sum %s %.3g\n", metric->name, metric->sum);
    }
    qsort(found.outcomes, (size_t)found.outcome_count, sizeof *found.outcomes, by_output);
    for (int i = 0; i < found.outcome_count; i++) {
        const struct outcome *outcome = &found.outcomes[i];
        const int first = i == 0 || strcmp(outcome[-1].output, outcome->output) != 0;
        if (strcmp(outcome->kind, "input") == 0) { /* one line of each */
            if (first)
                fprintf(to, "input %s:", outcome->output);
            fprintf(to, " %s %d", outcome->reason, outcome->count);
            if (i + 1 == found.outcome_count || strcmp(outcome[1].output, outcome->output) != 0)
                fprintf(to, "\n");
            continue;
        }
        fprintf(to, "%s %s %s %d:", outcome->output, outcome->kind, outcome->reason,
                outcome->count);
        for (int plant = 0; plant < PLANTS; plant++)
            if (outcome->plants >> plant & 1U)
                fprintf(to, " %s", plant_names[plant]);
        fprintf(to, "\n");
    }
}

/* Whether two lines agree: words and footprints are equal; numbers may differ by 1 %, sums of results by less,
 * since another machine's exp() differs. */
static int is_same_line(const char *a, const char *b) {
    const double tolerance = strncmp(a, "values ", 7) == 0       ? 2e-6
                             : strncmp(a, "footprint ", 10) == 0 ? 0
                                                                 : 0.01;
    for (;;) {
        char *a_end, *b_end;
        const double x = strtod(a, &a_end), y = strtod(b, &b_end);
        if (a_end != a && b_end != b && isfinite(x) && isfinite(y)) {
            if (fabs(x - y) > tolerance * fabs(x))
                return 0;
            a = a_end, b = b_end;
        } else if (*a != *b) {
            return 0;
        } else if (!*a) {
            return 1;
        } else {
            a++, b++;
        }
    }
}

static void expect_same(const char *path, char *was, char *is) {
    char *was_next, *is_next;
    char *old = strtok_r(was, "\n", &was_next), *line = strtok_r(is, "\n", &is_next);
    for (; line || old;
         old = strtok_r(NULL, "\n", &was_next), line = strtok_r(NULL, "\n", &is_next))
        if (!line || !old || !is_same_line(old, line))
            fail_msg("%s: recorded\n%s\nfound\n%s\n(--renew records it)", path,
                     old ? old : "nothing", line ? line : "nothing");
}

/* ---- a pass ---------------------------------------------------------------------------------- */

static void expect_complete(const struct compared_pass *about, unsigned outputs,
                            const struct smelt__args_table *tensors) {
    for (int i = 0; i < found.rule_count; i++)
        if (!found.rules[i].refused)
            fail_msg("%s: nothing that was tried breaks the rule %s", about->op->name,
                     found.rules[i].name);
    for (int i = 0; i < found.metric_count; i++)
        if (!found.metrics[i].refused)
            fail_msg("%s: nothing that was tried exceeds the bar of %s", about->op->name,
                     found.metrics[i].name);
    for (int i = 0; i < tensors->count; i++) {
        int refused = !(outputs & SMELT__OF(i));
        for (int k = 0; k < found.outcome_count; k++)
            refused |= strcmp(found.outcomes[k].output, tensors->rows[i].name) == 0 &&
                       strcmp(found.outcomes[k].reason, "pass") != 0;
        if (!refused)
            fail_msg("%s: no wrong number in %s is refused", about->op->name,
                     tensors->rows[i].name);
    }
}

static void each_bench(const struct compared_pass *about, unsigned *rows) {
    unsigned outputs = 0;
    const struct smelt__args_table *tensors = NULL;
    memset(&found, 0, sizeof found);
    for (int i = 0; i < about->spec_count; i++)
        for (int k = 0; k < about->problem_count; k++) {
            struct smelt__problem_options options = about->problems[k];
            struct bench bench;
            options.seed += 1 + (uint64_t)(i % 2);
            bench_open(&bench, context, about->pass, about->specs[i], &options);
            for (int p = 0; p < about->op->pass_count; p++) /* others differ in types and shapes */
                if (about->op->passes[p].comparisons == bench.problem.pass->comparisons)
                    *rows |= 1U << p;
            expect_outputs_named(about->op, bench.problem.pass);
            outputs_of(&bench);
            ends_of(&bench);
            const struct smelt__check_result *right = bench_compare(&bench);
            if (!right->passed)
                fail_msg("%s, problem %d: %s", bench.spec_text, k, right->message);
            note_result(right);
            bench_restore(&bench);
            find_errors(&bench);
            tensors = bench.pass.tensors;
            for (int n = 0; n < tensors->count; n++)
                if (tensors->rows[n].role == SMELT__INPUT && bench.problem.buffers[n].elements > 0)
                    change_input(&bench, n);
            for (int n = 0; n < tensors->count; n++)
                if (bench.placed.buffers[n].bytes > 0)
                    note_footprint(&bench, n);
            for (int n = 0; n < tensors->count; n++)
                if (bench.right[n]) {
                    outputs |= SMELT__OF(n);
                    note_values(&bench, n);
                    plant_in(&bench, n);
                }
            bench_close(&bench);
            found.benches++;
        }
    expect_complete(about, outputs, tensors);
}

/* The lines of a pass's specs and problems. */
static void print_head(FILE *to, const char *text, int pass) {
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        pass -= strncmp(line, "pass ", 5) == 0;
        if (pass == -1 && (strncmp(line, "pass ", 5) == 0 || strncmp(line, "spec ", 5) == 0 ||
                           strncmp(line, "problem ", 8) == 0))
            fprintf(to, "%.*s\n", (int)(strchr(line, '\n') - line), line);
    }
}

static char *read_text(const char *path) {
    char *text = calloc(1, 1 << 16);
    FILE *const file = fopen(path, "r");
    assert_true(text && file && fread(text, 1, (1 << 16) - 1, file) < (1 << 16) - 1);
    fclose(file);
    return text;
}

static void each_operator(void (*each)(const struct compared_pass *passes, int count)) {
    for (int i = 0; smelt__harness_operators[i]; i++) {
        struct compared_pass passes[2];
        if (!only || strcmp(only, smelt__harness_operators[i]->name) == 0)
            each(passes, compared_read(folder, smelt__harness_operators[i], passes));
    }
}

static void errors_of(const struct compared_pass *passes, int count) {
    char path[1024], *is;
    size_t size;
    unsigned rows = 0;
    snprintf(path, sizeof path, "%s/%s.txt", folder, passes->op->name);
    char *const was = read_text(path);
    FILE *to = open_memstream(&is, &size);
    for (int i = 0; i < count; i++) {
        each_bench(&passes[i], &rows);
        print_head(to, was, i);
        print_found(to);
    }
    fclose(to);
    if (rows != (1U << passes->op->pass_count) - 1)
        fail_msg("%s: a row of its passes has no spec", path);
    if (renew && (to = fopen(path, "w"))) {
        fputs(is, to);
        fclose(to);
    } else {
        expect_same(path, was, is);
    }
    free(was);
    free(is);
}

static void errors_are_seen(void **state) {
    (void)state;
    each_operator(errors_of);
}

/* How often check's small problems checked each rule of a pass and each output's elements. */
static struct looked {
    const struct smelt__harness_pass *pass;
    const struct smelt__rule *rules[SMELT__MOST_RULES];
    int rule_count;
    int64_t applied[SMELT__MOST_RULES], elements[SMELT__MOST_TENSORS];
} looked;

static void look_at_variation(const struct compared_pass *about, const char *text,
                              struct smelt__problem_options options, int kind) {
    struct bench bench;
    struct smelt__harness_spec spec;
    assert_int_equal(smelt__harness_spec_parse(&spec, text), SMELT_OK);
    smelt__options_small(about->op, spec.spec, &options);
    smelt__harness_spec_free(&spec);
    bench_open(&bench, context, about->pass, text, &options);
    const struct smelt__check_result *result = bench_compare(&bench);
    if (!result->passed)
        fail_msg("%s, kind %d, seed %llu: %s", text, kind, (unsigned long long)options.seed,
                 result->message);
    looked.pass = bench.problem.pass;
    looked.rule_count = result->rule_count;
    for (int k = 0; k < result->rule_count; k++) {
        looked.rules[k] = result->rules[k].rule;
        looked.applied[k] += result->rules[k].applied;
    }
    for (int k = 0; k < SMELT__MOST_TENSORS; k++)
        looked.elements[k] += result->elements[k];
    bench_close(&bench);
}

/* A rule or an output that none of them checked, or NULL. */
static const char *not_looked_at(void) {
    for (int i = 0; i < looked.rule_count; i++)
        if (looked.applied[i] == 0)
            return looked.rules[i]->name;
    for (int i = 0; looked.pass && i < looked.pass->tensors->count; i++) {
        const struct smelt__tensor_row *row = &looked.pass->tensors->rows[i];
        if (row->role != SMELT__INPUT && looked.elements[i] == 0)
            return row->name;
    }
    return NULL;
}

/* With a few seeds, the small problems of check's variations cover every rule and every output. */
static void variations_of(const struct compared_pass *passes, int count) {
    enum { SEEDS = 8 };
    for (const struct compared_pass *about = passes; about < passes + count; about++) {
        looked = (struct looked){0};
        for (uint64_t more = 0; more < SEEDS && (more == 0 || not_looked_at()); more++)
            for (int i = 0; i < about->spec_count; i++) {
                struct smelt__problem_options options = {.seed = seed + more};
                for (int kind = 0; smelt__options_kind(about->op, kind, &options); kind++) {
                    look_at_variation(about, about->specs[i], options, kind);
                    options = (struct smelt__problem_options){.seed = seed + more};
                }
            }
        if (not_looked_at())
            fail_msg("%s, seed %llu: what check tries by itself never looks at %s", about->op->name,
                     (unsigned long long)seed, not_looked_at());
    }
}

static void variations(void **state) {
    (void)state;
    each_operator(variations_of);
}

int main(int count, char **arguments) {
    const char *given = getenv("SMELT_TEST_SEED");
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors_are_seen),
                                       cmocka_unit_test(variations)};
    renew = count > 1 && strcmp(arguments[count - 1], "--renew") == 0;
    if (count - renew < 2)
        return 2;
    folder = arguments[1];
    only = count - renew > 2 ? arguments[2] : NULL;
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("SMELT_TEST_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests_name("comparisons", tests, open_context, close_context);
}
