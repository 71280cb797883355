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

static const char *folder, *only;
static int renew;

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
        bench_step(bench, piece->tensor, element, 1);
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
                bench_is_float(bench, bench->pieces[i].tensor) &&
                !is_exact(bench, &bench->pieces[i]))
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

/* ---- a pass ---------------------------------------------------------------------------------- */

static void each_bench(const struct compared_pass *about, unsigned *rows) {
    unsigned outputs = 0;
    const struct smelt__args_table *tensors = NULL;
    memset(&found, 0, sizeof found);
    for (int i = 0; i < about->spec_count; i++)
        for (int k = 0; k < about->problem_count; k++) {
            struct smelt__problem_options options = about->problems[k];
            struct bench bench;
            options.seed += 1 + (uint64_t)(i % 2);
            bench_open(&bench, about->pass, about->specs[i], &options);
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
                    note_tensor(&bench, n);
            for (int n = 0; n < tensors->count; n++)
                if (bench.right[n]) {
                    outputs |= SMELT__OF(n);
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
    compared_each(folder, only, errors_of);
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors_are_seen)};
    renew = count > 1 && strcmp(arguments[count - 1], "--renew") == 0;
    if (count - renew < 2)
        return 2;
    folder = arguments[1];
    only = count - renew > 2 ? arguments[2] : NULL;
    return cmocka_run_group_tests_name("comparisons", tests, compared_begin, compared_end);
}
