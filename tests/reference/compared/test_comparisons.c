/* Every comparison rejects errors just above its bars and accepts errors just below: see
 * compared.h. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "compared.h"
#include "harness/random.h"
#include "tables.h"

static smelt_context *context;
static uint64_t seed;

static int open_context(void **state) {
    (void)state;
    if (compared_registry)
        smelt__harness_operators = compared_registry;
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

/* ---- going over the tables ------------------------------------------------------------------- */

static const struct compared *table_of(const struct smelt__harness_operator *op) {
    for (int i = 0; compared_operators[i]; i++)
        if (strcmp(compared_operators[i]->name, op->name) == 0)
            return compared_operators[i];
    fail_msg("no table says what the outputs of %s are held to: tests/reference/compared",
             op->name);
    return NULL;
}

static void each_bench(const struct compared_pass *about, void (*each)(struct bench *)) {
    for (int i = 0; about->specs[i]; i++)
        for (int k = 0; k < about->problem_count; k++) {
            struct smelt__problem_options options = about->problems[k];
            struct bench bench;
            options.seed += seed;
            bench_open(&bench, context, about, about->specs[i], &options);
            bench.seed = seed + (uint64_t)(16 * i + k);
            each(&bench);
            bench_close(&bench);
        }
}

/* Random problems may not cover all metrics and rules, so more are tried until they do. Returns the
 * name of a metric or rule that was not covered, or NULL. */
static const char *until_complete(const struct compared_pass *about, void (*each)(struct bench *),
                                  const char *(*missing)(const struct compared_pass *about)) {
    enum { ROUNDS = 16 };
    const uint64_t first = seed;
    for (int round = 0; round < ROUNDS && (round == 0 || missing(about)); round++) {
        seed = first + 1000 * (uint64_t)round + (uint64_t)round % 2; /* alternately odd and even */
        each_bench(about, each);
    }
    seed = first;
    return missing(about);
}

static void each_pass(void (*each)(const struct smelt__harness_operator *op,
                                   const struct compared_pass *about)) {
    for (int i = 0; smelt__harness_operators[i]; i++) {
        const struct compared *table = table_of(smelt__harness_operators[i]);
        for (int k = 0; k < table->pass_count; k++)
            each(smelt__harness_operators[i], &table->passes[k]);
    }
}

static const struct compared_metric *metric_of(const struct compared_pass *about,
                                               const char *name) {
    for (const struct compared_metric *one = about->metrics; one && one->name; one++)
        if (strcmp(one->name, name) == 0)
            return one;
    return NULL;
}

/* The number of the metric with that name in the result for correct outputs. */
static int judged(const struct smelt__check_result *result, const char *name) {
    for (int i = 0; i < result->metric_count; i++)
        if (result->metrics[i].bar >= 0 && strcmp(result->metrics[i].metric->name, name) == 0)
            return i;
    return -1;
}

/* ---- what is declared ------------------------------------------------------------------------ */

static const char *tensor_name(const struct smelt__harness_pass *pass, unsigned outputs) {
    for (int i = 0; i < pass->tensors->count; i++)
        if (outputs & SMELT__OF(i))
            return pass->tensors->rows[i].name;
    return "";
}

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

static void expect_in_table(const struct compared_pass *about, struct bench *bench) {
    const struct smelt__check_result *result = bench_compare(bench);
    for (int i = 0; i < result->metric_count; i++)
        if (result->metrics[i].bar >= 0 && !metric_of(about, result->metrics[i].metric->name))
            fail_msg("%s: the metric %s is judged, and no test says how", bench->spec_text,
                     result->metrics[i].metric->name);
    for (int i = 0; i < result->rule_count; i++) {
        const struct smelt__rule *rule = result->rules[i].rule;
        const struct compared_rule *tested = rule_of(about, rule->name);
        if (!tested)
            fail_msg("%s: the rule %s has no test", bench->spec_text, rule->name);
        if (!(rule->outputs & SMELT__OF(bench_tensor(bench, tested->outputs[0]))))
            fail_msg("%s: the rule %s is about %s, tested of %s", bench->spec_text, rule->name,
                     tensor_name(&bench->pass, rule->outputs), tested->outputs[0]);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(rule->name, result->rules[k].rule->name);
        if (judged(result, rule->name) >= 0)
            fail_msg("%s: %s is a metric and a rule", bench->spec_text, rule->name);
    }
    for (const struct compared_metric *one = about->metrics; one && one->name; one++)
        if (judged(result, one->name) < 0)
            fail_msg("%s: the metric %s is not judged", bench->spec_text, one->name);
    for (const struct compared_rule *one = about->rules; one && one->name; one++) {
        int found = 0;
        for (int i = 0; i < result->rule_count; i++)
            found |= strcmp(result->rules[i].rule->name, one->name) == 0;
        if (!found)
            fail_msg("%s: the rule %s is gone", bench->spec_text, one->name);
    }
    bench_restore(bench);
}

static void tables_are_complete(void **state) {
    (void)state;
    for (int i = 0; smelt__harness_operators[i]; i++) {
        const struct smelt__harness_operator *op = smelt__harness_operators[i];
        const struct compared *table = table_of(op);
        unsigned reached = 0;
        for (int k = 0; k < table->pass_count; k++)
            for (int n = 0; table->passes[k].specs[n]; n++) {
                struct bench bench;
                bench_open(&bench, context, &table->passes[k], table->passes[k].specs[n],
                           &table->passes[k].problems[0]);
                for (int p = 0; p < op->pass_count; p++) /* others differ in types and shapes */
                    if (op->passes[p].comparisons == bench.problem.pass->comparisons)
                        reached |= 1U << p;
                expect_outputs_named(op, bench.problem.pass);
                expect_in_table(&table->passes[k], &bench);
                bench_close(&bench);
            }
        if (reached != (1U << op->pass_count) - 1)
            fail_msg("%s: a row of its passes has no spec in tests/reference/compared", op->name);
    }
}

/* ---- metrics --------------------------------------------------------------------------------- */

struct measured {
    double value, bar;
};

static int names(const char *const outputs[MOST_OUTPUTS], const char *name) {
    for (int i = 0; i < MOST_OUTPUTS && outputs[i]; i++)
        if (strcmp(name, outputs[i]) == 0)
            return 1;
    return 0;
}

static int is_about(const struct bench *bench, const struct compared_metric *metric,
                    const struct piece *piece) {
    return names(metric->outputs, bench->pass.tensors->rows[piece->tensor].name);
}

static double error_of(const struct bench *bench, const struct compared_metric *metric, int tensor,
                       int64_t element) {
    const double expected = bench->expected[tensor][element];
    if (!isfinite(expected))
        return 0;
    return fmax(fabs(bench_get(bench, tensor, element) - expected) - metric->slack, 0);
}

/* Computes a metric's value and bar by the table. */
static struct measured measure(const struct bench *bench, const struct compared_metric *metric) {
    double value = 0, weight = 0, heaviest = 0;
    for (int i = 0; i < bench->piece_count; i++) {
        const struct piece *piece = &bench->pieces[i];
        double sizes[MOST_NUMBERS], squares = 0;
        if (!is_about(bench, metric, piece))
            continue;
        metric->size(bench, piece, sizes);
        for (int64_t k = 0; k < piece->count; k++) {
            const double error = error_of(bench, metric, piece->tensor, piece->first + k);
            squares += error * error;
            if (metric->kind == EACH_ELEMENT && error > 0 && sizes[k] != 0)
                value = fmax(value, error / fabs(sizes[k]));
        }
        if (metric->kind == EACH_PIECE)
            value = fmax(value, sqrt(squares) / sizes[0]);
        if (metric->kind == ALL_PIECES) {
            value += squares;
            weight += sizes[0] * sizes[0];
            heaviest = fmax(heaviest, sizes[0] * sizes[0]);
        }
    }
    if (metric->kind == ALL_PIECES)
        value = value > 0 ? sqrt(value / weight) : 0;
    return (struct measured){value, metric->bar(bench, heaviest > 0 ? weight / heaviest : 0)};
}

static int is_near(double got, double expected, double least) {
    return fabs(got - expected) <= 1e-6 * fabs(expected) + least;
}

/* The harness must compute each metric like the table and fail for the first one above its bar.
 * Returns this metric's name, or NULL. */
static const char *expect_as_measured(struct bench *bench, const char *what) {
    const char *culprit = NULL;
    struct measured found[SMELT__MOST_METRICS];
    const struct smelt__check_result *result;
    for (int i = 0; bench->about->metrics[i].name; i++)
        found[i] = measure(bench, &bench->about->metrics[i]);
    result = bench_compare(bench);
    for (int n = 0; n < result->metric_count; n++) {
        const struct smelt__metric_result *got = &result->metrics[n];
        const struct compared_metric *metric = metric_of(bench->about, got->metric->name);
        if (got->bar < 0 || !metric)
            continue;
        const struct measured *expected = &found[metric - bench->about->metrics];
        if (!is_near(got->bar, expected->bar, 0))
            fail_msg("%s: %s: bar %.9g, %.9g expected (%s)", bench->spec_text, metric->name,
                     got->bar, expected->bar, what);
        if (metric->kind != BY_THE_TABLE &&
            !is_near(got->value, expected->value, 1e-7 * expected->bar))
            fail_msg("%s, seed %llu: %s: value %.9g, %.9g expected (%s)", bench->spec_text,
                     (unsigned long long)bench->problem.options.seed, metric->name, got->value,
                     expected->value, what);
        if (!culprit && expected->value > expected->bar)
            culprit = metric->name;
        if (culprit)
            break; /* later comparisons do not run */
    }
    if (culprit ? !result->culprit || strcmp(result->culprit, culprit) != 0 : !result->passed)
        fail_msg("%s, seed %llu: %s expected, %s found (%s): %s", bench->spec_text,
                 (unsigned long long)bench->problem.options.seed, culprit ? culprit : "nothing",
                 result->culprit ? result->culprit : "nothing", what, result->message);
    return culprit;
}

/* Whether a rule of one of these kinds applies to the element. */
static int has_rule(const struct bench *bench, const struct compared_rule *rule,
                    const struct piece *piece, int64_t element) {
    const double expected = bench->expected[piece->tensor][element];
    if (!names(rule->outputs, bench->pass.tensors->rows[piece->tensor].name) ||
        rule->kind == BY_HAND || (rule->kind == ZERO && !rule->applies && expected != 0) ||
        (rule->kind == MINUS_INF && expected != -INFINITY))
        return 0;
    return !rule->applies || rule->applies(bench, piece, element);
}

static int is_exact(const struct bench *bench, const struct piece *piece, int64_t element) {
    for (const struct compared_rule *rule = bench->about->rules; rule && rule->name; rule++)
        if ((rule->kind == ZERO || rule->kind == MINUS_INF || rule->kind == EXACT) &&
            has_rule(bench, rule, piece, element))
            return 1;
    return 0;
}

/* Moves an element to the adjacent number of its type, towards either infinity. */
static void step(const struct bench *bench, int tensor, int64_t element, int up) {
    unsigned char *at = bench_at(bench, tensor, element);
    const enum smelt__element type = bench->pass.tensors->rows[tensor].element;
    const int bits = type == SMELT__BF16 ? 16 : 32;
    uint32_t number = 0;
    if (type == SMELT__INT32 || type == SMELT__E4M3) {
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

/* Plants an error of the given size, just above or just below it. */
static void plant_element(const struct bench *bench, int tensor, int64_t element, double error,
                          int beyond, int up) {
    const double expected = bench->expected[tensor][element];
    const double target = expected + (up ? error : -error);
    bench_set(bench, tensor, element, target);
    for (int i = 0; i < 3; i++) {
        const double got = fabs(bench_get(bench, tensor, element) - expected);
        if (beyond ? got > error : got < error)
            return;
        step(bench, tensor, element, beyond ? up : !up);
    }
}

/* Plants an error in a whole piece, proportional to each element. */
static void plant_piece(const struct bench *bench, const struct piece *piece, double share) {
    for (int64_t i = piece->first; i < piece->first + piece->count; i++)
        if (isfinite(bench->expected[piece->tensor][i]) && !is_exact(bench, piece, i))
            bench_set(bench, piece->tensor, i, bench->expected[piece->tensor][i] * (1 + share));
}

static void plant_pieces(const struct bench *bench, const struct compared_metric *metric,
                         const struct piece *only, double share) {
    for (int i = 0; i < bench->piece_count; i++)
        if (only ? &bench->pieces[i] == only : is_about(bench, metric, &bench->pieces[i]))
            plant_piece(bench, &bench->pieces[i], share);
}

/* The ratio of the metric to its bar if pieces have a relative error of `share`. */
static double reach(struct bench *bench, const struct compared_metric *metric,
                    const struct piece *only, double share) {
    bench_restore(bench);
    plant_pieces(bench, metric, only, share);
    const struct measured found = measure(bench, metric);
    return found.value / found.bar;
}

/* Plants errors until the metric is about `ratio` of its bar. 0: not possible. */
static int plant_share(struct bench *bench, const struct compared_metric *metric,
                       const struct piece *only, double ratio) {
    enum { MOST = 40 };
    double low = 0, high = 1e-7;
    for (; reach(bench, metric, only, high) < ratio; high *= 2) {
        if (high > 16)
            return 0;
        low = high;
    }
    for (int i = 0; i < MOST; i++) {
        const double share = (low + high) / 2, reached = reach(bench, metric, only, share);
        if (fabs(reached / ratio - 1) < 0.015)
            return 1;
        if (reached < ratio)
            low = share;
        else
            high = share;
    }
    return 0;
}

/* For a pass's metrics, how close planted errors came to the bar from below and from above. */
struct margins {
    double within, beyond;
};
static struct margins margins[SMELT__MOST_METRICS];

static void note(const struct bench *bench, const struct compared_metric *metric,
                 const char *culprit, double ratio) {
    struct margins *margin = &margins[metric - bench->about->metrics];
    /* Passed: no failure, or only a later one. */
    if (ratio <= 1 &&
        (!culprit || judged(&bench->result, culprit) > judged(&bench->result, metric->name)))
        margin->within = fmax(margin->within, ratio);
    if (culprit && ratio > 1 && strcmp(culprit, metric->name) == 0)
        margin->beyond = fmin(margin->beyond, ratio);
}

static int is_never_negative(const struct bench *bench, const struct piece *piece) {
    for (const struct compared_rule *rule = bench->about->rules; rule->name; rule++)
        if (rule->kind == NOT_NEGATIVE &&
            names(rule->outputs, bench->pass.tensors->rows[piece->tensor].name))
            return 1;
    return 0;
}

static void plant_metric(struct bench *bench, const struct compared_metric *metric,
                         const struct piece *piece, int64_t element) {
    double sizes[MOST_NUMBERS];
    metric->size(bench, piece, sizes);
    for (int beyond = 0; beyond < 2; beyond++) {
        const double ratio = beyond ? 1.02 : 0.98, bar = measure(bench, metric).bar;
        const double size = metric->kind == EACH_ELEMENT ? sizes[element - piece->first] : 0;
        if (metric->kind == EACH_ELEMENT &&
            (!(size > 0) || isinf(size) || !isfinite(bench->expected[piece->tensor][element])))
            return;
        if (metric->kind == EACH_ELEMENT)
            plant_element(bench, piece->tensor, element, ratio * bar * size + metric->slack, beyond,
                          (element & 1) || is_never_negative(bench, piece));
        else if (!plant_share(bench, metric, metric->kind == EACH_PIECE ? piece : NULL, ratio))
            continue;
        const struct measured found = measure(bench, metric);
        note(bench, metric, expect_as_measured(bench, metric->name), found.value / found.bar);
        bench_restore(bench);
    }
}

/* Elements that an error can be planted at. */
struct location {
    int piece;
    int64_t element;
};

struct locations {
    struct location *all;
    int64_t count, room;
};

static void add_place(struct locations *locations, int piece, int64_t element) {
    if (locations->count == locations->room) {
        locations->room = 2 * locations->room + 64;
        locations->all = realloc(locations->all, (size_t)locations->room * sizeof *locations->all);
        assert_non_null(locations->all);
    }
    locations->all[locations->count++] = (struct location){piece, element};
}

/* The first location, the last one, then random ones. */
static struct location choose_location(const struct locations *locations, int number,
                                       struct smelt__random *random) {
    return locations->all[number == 0   ? 0
                          : number == 1 ? locations->count - 1
                                        : smelt__random_below(random, locations->count)];
}

/* Every element whose error counts for a metric of elements; for other metrics one element per
 * piece. */
static void find_locations(const struct bench *bench, const struct compared_metric *metric,
                           struct locations *locations) {
    double sizes[MOST_NUMBERS];
    for (int i = 0; i < bench->piece_count; i++) {
        const struct piece *piece = &bench->pieces[i];
        if (!is_about(bench, metric, piece))
            continue;
        metric->size(bench, piece, sizes);
        for (int64_t k = 0; k < piece->count; k++) {
            const double expected = bench->expected[piece->tensor][piece->first + k];
            const double size = metric->kind == EACH_ELEMENT ? sizes[k] : fabs(expected);
            if (!isfinite(expected) || !isfinite(size) || !(size > 0) ||
                is_exact(bench, piece, piece->first + k))
                continue;
            add_place(locations, i, piece->first + k);
            if (metric->kind != EACH_ELEMENT)
                break;
        }
    }
}

static void plant_metrics(struct bench *bench) {
    enum { PLACES = 7 };
    struct smelt__random random = smelt__random_at(bench->seed, 1, 0);
    for (const struct compared_metric *metric = bench->about->metrics; metric->name; metric++) {
        struct locations locations = {0};
        if (metric->kind != BY_THE_TABLE)
            find_locations(bench, metric, &locations);
        for (int i = 0; i < (metric->kind == ALL_PIECES ? 1 : PLACES) && locations.count > 0; i++) {
            const struct location location = choose_location(&locations, i, &random);
            plant_metric(bench, metric, &bench->pieces[location.piece], location.element);
        }
        free(locations.all);
    }
}

static void right_answers_pass(struct bench *bench) {
    expect_as_measured(bench, "right answers");
    bench_restore(bench);
}

static const char *metric_without_margins(const struct compared_pass *about) {
    for (int i = 0; about->metrics[i].name; i++)
        if (about->metrics[i].kind != BY_THE_TABLE &&
            (margins[i].within < 0.75 || margins[i].beyond > 1.3))
            return about->metrics[i].name;
    return NULL;
}

static void metrics_of_pass(const struct smelt__harness_operator *op,
                            const struct compared_pass *about) {
    for (int i = 0; i < SMELT__MOST_METRICS; i++)
        margins[i] = (struct margins){0, INFINITY};
    each_bench(about, right_answers_pass);
    const char *missing = until_complete(about, plant_metrics, metric_without_margins);
    if (missing) {
        const struct margins *margin = &margins[metric_of(about, missing) - about->metrics];
        fail_msg("%s: of %s passed at most %.3g of its bar, refused at least %.3g", op->name,
                 missing, margin->within, margin->beyond);
    }
}

static void metrics(void **state) {
    (void)state;
    each_pass(metrics_of_pass);
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* Plants violation number `number` of a rule's kind; 0 past the last. */
static int plant_rule(const struct bench *bench, const struct compared_rule *rule,
                      const struct piece *piece, int64_t element, int number) {
    static const double numbers[] = {(double)NAN, INFINITY, -INFINITY};
    const double expected = bench->expected[piece->tensor][element];
    double value = 0;
    switch (rule->kind) {
    case FINITE:
    case NOT_NEGATIVE:
        if (number > (rule->kind == FINITE ? 2 : 3))
            return 0;
        value = number < 3 ? numbers[number] : -1e-38;
        break;
    case ZERO:
    case EXACT:
        if (isnan(expected)) { /* any NaN is correct: the adjacent one, too */
            if (number > 0)
                return 0;
            break; /* 0 */
        }
        if (number > 1 || (number == 1 && is_never_negative(bench, piece)))
            return 0;
        step(bench, piece->tensor, element, number == 0);
        return 1;
    case MINUS_INF:
        if (number > 2)
            return 0;
        value = number == 2 ? -(double)FLT_MAX : numbers[number];
        break;
    case NO_MINUS_0:
        value = number == 0 ? (double)NAN : -0.0;
        if (number > 1)
            return 0;
        break;
    case SAME_INFINITY:
        value = isinf(expected) ? (number == 0 ? -expected : (double)FLT_MAX)
                                : (number == 0 ? INFINITY : -INFINITY);
        if (number > 1)
            return 0;
        break;
    case BY_HAND:
        return 0;
    }
    bench_set(bench, piece->tensor, element, value);
    return 1;
}

/* Rules about the kind of number, which apply where no rule determines the value. */
static int is_candidate(const struct bench *bench, const struct compared_rule *rule,
                        const struct piece *piece, int64_t element) {
    const int exact = rule->kind == ZERO || rule->kind == MINUS_INF || rule->kind == EXACT;
    return has_rule(bench, rule, piece, element) && (exact || !is_exact(bench, piece, element));
}

static void try_rule(struct bench *bench, const struct compared_rule *rule,
                     const struct piece *piece, int64_t element) {
    for (int i = 0; plant_rule(bench, rule, piece, element, i); i++) {
        expect_refused(bench, piece, rule->name);
        rules_tried[rule - bench->about->rules]++;
    }
    if (rule->kind == ZERO && bench->expected[piece->tensor][element] == 0) {
        bench_set(bench, piece->tensor, element, -0.0);
        expect_refused(bench, piece, NULL);
    }
}

/* How often a rule was checked if every unit is compared. */
static int64_t applied(const struct smelt__check_result *result, const char *name) {
    for (int i = 0; i < result->rule_count; i++)
        if (strcmp(result->rules[i].rule->name, name) == 0)
            return result->rules[i].applied;
    return -1;
}

static void plant_rules(struct bench *bench) {
    enum { PLACES = 12 };
    struct smelt__random random = smelt__random_at(bench->seed, 2, 0);
    const struct smelt__check_result right = *bench_compare(bench);
    bench_restore(bench);
    for (const struct compared_rule *rule = bench->about->rules; rule && rule->name; rule++) {
        struct locations locations = {0};
        for (int i = 0; i < bench->piece_count; i++)
            for (int64_t k = 0; k < bench->pieces[i].count; k++)
                if (is_candidate(bench, rule, &bench->pieces[i], bench->pieces[i].first + k))
                    add_place(&locations, i, bench->pieces[i].first + k);
        const int exact = rule->kind == ZERO || rule->kind == MINUS_INF || rule->kind == EXACT;
        if (exact && applied(&right, rule->name) != locations.count)
            fail_msg("%s: %s was looked at %lld times, %lld expected", bench->spec_text, rule->name,
                     (long long)applied(&right, rule->name), (long long)locations.count);
        for (int i = 0; i < PLACES && locations.count > 0; i++) {
            const struct location location = choose_location(&locations, i, &random);
            try_rule(bench, rule, &bench->pieces[location.piece], location.element);
        }
        free(locations.all);
    }
    if (bench->about->plants)
        bench->about->plants(bench);
}

static const char *untried_rule(const struct compared_pass *about) {
    for (int i = 0; about->rules && about->rules[i].name; i++)
        if (rules_tried[i] == 0)
            return about->rules[i].name;
    return NULL;
}

static void rules_of_pass(const struct smelt__harness_operator *op,
                          const struct compared_pass *about) {
    memset(rules_tried, 0, sizeof rules_tried);
    const char *untried = until_complete(about, plant_rules, untried_rule);
    if (untried)
        fail_msg("%s: nothing beyond the rule %s was tried", op->name, untried);
}

static void rules(void **state) {
    (void)state;
    each_pass(rules_of_pass);
}

/* ---- what is compared ------------------------------------------------------------------------ */

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

static void coverage_of_pass(const struct smelt__harness_operator *op,
                             const struct compared_pass *about) {
    (void)op;
    each_bench(about, outputs_of);
    each_bench(about, ends_of);
}

static void coverage(void **state) {
    (void)state;
    each_pass(coverage_of_pass);
}

/* ---- what check tries by itself -------------------------------------------------------------- */

/* How often check's small problems checked each rule of a pass and each output's elements. */
static struct looked {
    const struct smelt__harness_pass *pass;
    const struct smelt__rule *rules[SMELT__MOST_RULES];
    int rule_count;
    int64_t applied[SMELT__MOST_RULES], elements[SMELT__MOST_TENSORS];
} looked;

static void look_at_variation(const struct smelt__harness_operator *op,
                              const struct compared_pass *about, const char *text,
                              struct smelt__problem_options options, int kind) {
    struct bench bench;
    struct smelt__harness_spec spec;
    assert_int_equal(smelt__harness_spec_parse(&spec, text), SMELT_OK);
    op->small(spec.spec, &options);
    smelt__harness_spec_free(&spec);
    bench_open(&bench, context, about, text, &options);
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
static void variations_of_pass(const struct smelt__harness_operator *op,
                               const struct compared_pass *about) {
    enum { SEEDS = 8 };
    struct compared_pass plain = *about;
    plain.prepare = NULL; /* for larger problems: no errors are planted */
    looked = (struct looked){0};
    for (uint64_t more = 0; more < SEEDS && (more == 0 || not_looked_at()); more++)
        for (int i = 0; about->specs[i]; i++) {
            struct smelt__problem_options options = {.seed = seed + more};
            for (int kind = 0; op->variation(kind, &options); kind++) {
                look_at_variation(op, &plain, about->specs[i], options, kind);
                options = (struct smelt__problem_options){.seed = seed + more};
            }
        }
    if (not_looked_at())
        fail_msg("%s, seed %llu: what check tries by itself never looks at %s", op->name,
                 (unsigned long long)seed, not_looked_at());
}

static void variations(void **state) {
    (void)state;
    each_pass(variations_of_pass);
}

int main(void) {
    const char *given = getenv("SMELT_TEST_SEED");
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("SMELT_TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_complete),
        cmocka_unit_test(metrics),
        cmocka_unit_test(rules),
        cmocka_unit_test(coverage),
        cmocka_unit_test(variations),
    };
    return cmocka_run_group_tests_name("comparisons", tests, open_context, close_context);
}
