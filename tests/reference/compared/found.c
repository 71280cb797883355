/* See found.h. */
#include "found.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct found found;
static const char *const shape_names[] = {"an element", "a piece", "an output"};

struct found_rule *rule_named(const char *name) {
    for (int i = 0; i < found.rule_count; i++)
        if (strcmp(found.rules[i].name, name) == 0)
            return &found.rules[i];
    return NULL;
}

struct found_metric *metric_named(const char *name) {
    for (int i = 0; i < found.metric_count; i++)
        if (strcmp(found.metrics[i].name, name) == 0)
            return &found.metrics[i];
    return NULL;
}

void note_result(const struct smelt__check_result *result) {
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

static void add_total(const char *kind, const struct bench *bench, int tensor, double a, double b) {
    const char *const name = bench->pass.tensors->rows[tensor].name;
    int n = 0;
    while (n < found.total_count &&
           (strcmp(found.totals[n].kind, kind) != 0 || strcmp(found.totals[n].tensor, name) != 0))
        n++;
    if (n == found.total_count)
        found.totals[found.total_count++] = (struct found_total){.kind = kind, .tensor = name};
    found.totals[n].a += a;
    found.totals[n].b += b;
}

void note_tensor(const struct bench *bench, int tensor) {
    const struct smelt__footprint *const footprint = &bench->placed.footprints.tensors[tensor];
    add_total("footprint", bench, tensor, 0, 0);
    for (size_t i = 0; i < footprint->count; i++)
        add_total("footprint", bench, tensor,
                  (double)(footprint->intervals[i].end - footprint->intervals[i].begin),
                  (double)(footprint->intervals[i].begin + 2 * footprint->intervals[i].end));
    if (!bench->right[tensor])
        return;
    add_total("values", bench, tensor, 0, 0);
    for (int64_t i = 0; i < (int64_t)bench->problem.buffers[tensor].elements; i++) {
        const double result = bench->expected[tensor][i];
        if (fabs(result) < 1e30)
            add_total("values", bench, tensor, (double)(1 + i % 7) * result, fabs(result));
    }
}

void note_outcome(const struct bench *bench, int tensor, const char *kind, int plant,
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
void expect_unit_named(const struct bench *bench, const struct piece *piece) {
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

void expect_complete(const struct compared_pass *about, unsigned outputs,
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

void print_found(FILE *to) {
    int tensors = 0;
    for (int i = 0; i < found.total_count; i++)
        if (strcmp(found.totals[i].kind, "footprint") == 0)
            fprintf(to, "%s %s %.0f/%.0f", tensors++ ? "" : "footprint", found.totals[i].tensor,
                    found.totals[i].a, found.totals[i].b);
    fprintf(to, "\n");
    for (int i = 0; i < found.total_count; i++)
        if (strcmp(found.totals[i].kind, "values") == 0)
            fprintf(to, "values %s %.7g %.7g\n", found.totals[i].tensor, found.totals[i].a,
                    found.totals[i].b);
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
        for (int plant = 0; plant_names[plant]; plant++)
            if (outcome->plants >> plant & 1U)
                fprintf(to, " %s", plant_names[plant]);
        fprintf(to, "\n");
    }
}

/* Whether two lines agree: words and footprints are equal. Other numbers may differ by 1 %, sums of results by
 * less, since exp() differs between machines. */
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

void expect_same(const char *path, char *was, char *is) {
    char *was_next, *is_next;
    char *old = strtok_r(was, "\n", &was_next), *line = strtok_r(is, "\n", &is_next);
    for (; line || old;
         old = strtok_r(NULL, "\n", &was_next), line = strtok_r(NULL, "\n", &is_next))
        if (!line || !old || !is_same_line(old, line))
            fail_msg("%s: recorded\n%s\nfound\n%s\n(--renew records it)", path,
                     old ? old : "nothing", line ? line : "nothing");
}
