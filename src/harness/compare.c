/* Compares a sample of the results with the reference: see check.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"
#include "harness/parallel.h"
#include "harness/random.h"

enum { DEFAULT_SAMPLE = 32, STREAM_SAMPLE = 201 };

struct sample {
    const struct smelt__placed *placed;
    const struct smelt__comparison *how;
    int64_t *units;
    int64_t count;
    const void *prepared;
    struct smelt__finding *findings; /* one per unit */
};

int64_t smelt__comparison_count(const struct smelt__comparison *how,
                                const struct smelt__problem *problem) {
    int64_t count = 1;
    if (how->count)
        return how->count(problem);
    for (int i = 0; i < how->dimensions; i++)
        count *= problem->extents[how->symbols[i]];
    return count;
}

static int wanted(const struct smelt__comparison *how, const struct smelt__problem *problem,
                  int64_t unit) {
    return !how->wanted || how->wanted(problem, unit);
}

/* Draws at most `sample` of the computed units, ascending: all if they are few enough, else the
 * first, the last and random ones between. Returns their number. */
static int64_t choose_units(const struct smelt__comparison *how,
                            const struct smelt__problem *problem, int64_t sample, int64_t *units) {
    const int64_t total = smelt__comparison_count(how, problem);
    struct smelt__random random = smelt__random_at(problem->options.seed, STREAM_SAMPLE, 0);
    int64_t all = 0, count = 0;
    for (int64_t unit = 0; unit < total; unit++)
        all += wanted(how, problem, unit);
    int64_t left = all, most = sample < all ? sample : all;
    for (int64_t unit = 0; unit < total && count < most; unit++) {
        if (!wanted(how, problem, unit))
            continue;
        /* Selection sampling (Knuth, TAOCP 2, 3.4.2 S), with the two ends fixed. */
        const int end = left == all || (most > 1 && left == 1);
        const int64_t open = most - count - (most > 1 && left > 1);
        if (end || smelt__random_below(&random, left > 1 ? left - 1 : 1) < open)
            units[count++] = unit;
        left--;
    }
    return count;
}

static void compare_range(void *user, int64_t begin, int64_t end) {
    struct sample *sample = user;
    for (int64_t i = begin; i < end; i++)
        sample->how->compare(sample->placed, sample->prepared, sample->units[i],
                             &sample->findings[i]);
}

/* Where the largest of a metric was found. */
struct worst {
    int64_t unit, part;
    double value;
};

/* Not `x > bar`: NaN must not pass. */
static int within(const struct smelt__metric_result *result) {
    return result->bar < 0 || result->value <= result->bar;
}

/* Combines a metric's values of all units, and keeps the larger of this and the earlier schedules'
 * result. */
static void collect(const struct sample *sample, int number, struct smelt__metric_result *result,
                    struct worst *worst) {
    double value = 0, weight = 0, heaviest = 0;
    memset(worst, 0, sizeof *worst);
    for (int64_t i = 0; i < sample->count; i++) {
        const struct smelt__finding *finding = &sample->findings[i];
        const double one = finding->metrics[number].value;
        if (result->metric->gathering == SMELT__OVERALL) {
            value += one;
            weight += finding->metrics[number].weight;
            heaviest = fmax(heaviest, finding->metrics[number].heaviest);
        } else if (!isnan(value) && !(one <= value)) {
            value = one;
            *worst = (struct worst){sample->units[i], finding->metrics[number].part, one};
        }
    }
    if (result->metric->gathering == SMELT__OVERALL)
        value = value > 0 || isnan(value) ? sqrt(value / weight) : 0;
    result->parts = heaviest > 0 ? weight / heaviest : 0;
    if (!isnan(result->value) && !(value <= result->value))
        result->value = value;
}

/* The index of a comparison's first metrics and rules in the result. */
struct slots {
    struct smelt__metric_result *metrics;
    struct smelt__rule_result *rules;
};

/* Adds up how often each rule was checked, and the compared elements of each output. */
static void count(const struct sample *sample, const struct slots *slots,
                  struct smelt__check_result *result) {
    for (int64_t i = 0; i < sample->count; i++) {
        for (int k = 0; k < sample->how->rule_count; k++)
            slots->rules[k].applied += sample->findings[i].applied[k];
        for (int k = 0; k < SMELT__MOST_TENSORS; k++)
            result->elements[k] += sample->findings[i].elements[k];
    }
}

/* -1, with a message, if a unit violates a rule; 0: none does. */
static int judge_rules(const struct sample *sample, struct smelt__check_result *result) {
    const struct smelt__comparison *how = sample->how;
    for (int64_t i = 0; i < sample->count; i++) {
        const struct smelt__finding *finding = &sample->findings[i];
        if (finding->failed)
            snprintf(result->message, sizeof result->message,
                     "out of memory while computing the reference");
        if (finding->failed)
            return -1;
        if (!finding->broken)
            continue;
        const struct smelt__rule *rule = &how->rules[finding->broken - 1];
        snprintf(result->message, sizeof result->message, "%s %lld %s %lld: %s", how->unit,
                 (long long)sample->units[i], how->part, (long long)finding->broken_part,
                 rule->what);
        result->culprit = rule->name;
        return -1;
    }
    return 0;
}

/* -1 with a message about the first violated rule, else about the first metric above its bar. */
static int judge(const struct sample *sample, const struct slots *slots,
                 struct smelt__check_result *result) {
    const struct smelt__comparison *how = sample->how;
    struct smelt__metric_result *const results = slots->metrics;
    struct worst worst[SMELT__MOST_METRICS];
    char *message = result->message;
    const size_t size = sizeof result->message;
    for (int i = 0; i < how->metric_count; i++)
        collect(sample, i, &results[i], &worst[i]);
    count(sample, slots, result);
    if (how->judge)
        how->judge(sample->placed->problem, sample->count, results);
    if (judge_rules(sample, result) != 0)
        return -1;
    for (int i = 0; i < how->metric_count; i++) {
        const struct smelt__metric *metric = results[i].metric;
        if (within(&results[i]))
            continue;
        if (metric->gathering == SMELT__OVERALL)
            snprintf(message, size, "%s %.3g over everything compared, bar %.3g", metric->what,
                     results[i].value, results[i].bar);
        else
            snprintf(message, size, "%s %lld %s %lld: %s %.3g, bar %.3g", how->unit,
                     (long long)worst[i].unit, how->part, (long long)worst[i].part, metric->what,
                     results[i].value, results[i].bar);
        result->culprit = metric->name;
        return -1;
    }
    return 0;
}

/* Compares at most `most` units of one kind. 0, or -1 with a message. */
static int compare_kind(const struct smelt__placed *placed, const struct smelt__comparison *how,
                        int64_t most, const struct slots *slots, struct smelt__check_result *result,
                        int64_t *compared) {
    const int64_t all = smelt__comparison_count(how, placed->problem),
                  wanted_units = most < all ? most : all;
    struct sample sample = {.placed = placed, .how = how};
    void *prepared = NULL;
    int failed = -1;
    sample.units = malloc((size_t)(wanted_units + 1) * sizeof *sample.units);
    sample.findings = calloc((size_t)(wanted_units + 1), sizeof *sample.findings);
    if (!sample.units || !sample.findings)
        goto out_of_memory;
    sample.count = how->choose ? how->choose(placed, wanted_units, sample.units)
                               : choose_units(how, placed->problem, wanted_units, sample.units);
    if (sample.count < 0)
        goto out_of_memory;
    *compared = sample.count;
    if (how->prepare && !(prepared = how->prepare(placed, sample.units, sample.count)))
        goto out_of_memory;
    sample.prepared = prepared;
    smelt__parallel_for(sample.count, 1, compare_range, &sample);
    failed = judge(&sample, slots, result);
    goto out;
out_of_memory:
    snprintf(result->message, sizeof result->message, "out of memory while comparing");
out:
    if (prepared)
        how->release(prepared);
    free(sample.units);
    free(sample.findings);
    return failed;
}

/* Lists the metrics and rules of all kinds of units in the result. Values of metrics that are
 * already listed are kept; counts begin at 0. */
static void lay_out(const struct smelt__harness_pass *pass, struct smelt__check_result *result) {
    int metrics = 0, rules = 0;
    for (int i = 0; i < pass->comparison_count; i++) {
        const struct smelt__comparison *how = &pass->comparisons[i];
        for (int k = 0; k < how->metric_count; k++, metrics++)
            if (metrics >= result->metric_count)
                result->metrics[metrics] = (struct smelt__metric_result){
                    .metric = &how->metrics[k], .bar = how->bars[k] > 0 ? how->bars[k] : -1};
        for (int k = 0; k < how->rule_count; k++)
            result->rules[rules++] = (struct smelt__rule_result){.rule = &how->rules[k]};
    }
    result->metric_count = metrics;
    result->rule_count = rules;
    result->tensors = pass->tensors;
    memset(result->elements, 0, sizeof result->elements);
}

/* Whether every output with computed elements was compared. */
static int covers_outputs(const struct smelt__placed *placed, struct smelt__check_result *result) {
    for (int i = 0; i < placed->pass->tensors->count; i++) {
        if (!placed->buffers[i].host || placed->footprints.tensors[i].count == 0 ||
            result->elements[i] > 0)
            continue;
        snprintf(result->message, sizeof result->message,
                 "the output %s was compared with nothing: no comparison of the %s pass read it",
                 placed->pass->tensors->rows[i].name, placed->pass->name);
        result->culprit = "not_compared";
        return 0;
    }
    return 1;
}

int smelt__check_compare(struct smelt__placed *placed, int sample,
                         struct smelt__check_result *result) {
    const struct smelt__harness_pass *pass = placed->pass;
    struct slots slots = {result->metrics, result->rules};
    char message[256];
    int failed = 0;
    lay_out(pass, result);
    result->units = smelt__comparison_count(&pass->comparisons[0], placed->problem);
    for (int i = 0; i < pass->comparison_count && !failed; i++) {
        int64_t compared = 0;
        failed = compare_kind(placed, &pass->comparisons[i], sample > 0 ? sample : DEFAULT_SAMPLE,
                              &slots, result, &compared);
        if (i == 0)
            result->compared = compared;
        slots.metrics += pass->comparisons[i].metric_count;
        slots.rules += pass->comparisons[i].rule_count;
    }
    failed = failed || !covers_outputs(placed, result);
    const char *const touched =
        failed ? NULL : smelt__placed_verify_extent(placed, message, sizeof message);
    if (touched) {
        snprintf(result->message, sizeof result->message, "%s", message);
        result->culprit = touched;
    }
    result->passed = !failed && !touched;
    return result->passed ? 0 : -1;
}

double smelt__check_value(const struct smelt__check_result *result, const char *group,
                          const char *name) {
    for (int i = 0; i < result->metric_count; i++)
        if (strcmp(result->metrics[i].metric->group, group) == 0 &&
            strcmp(result->metrics[i].metric->name, name) == 0)
            return result->metrics[i].value;
    return (double)NAN;
}
