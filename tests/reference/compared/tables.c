/* See tables.h. */
#include "tables.h"

#include <math.h>
#include <string.h>

double norm_of_numbers(const double *numbers, int64_t count) {
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += numbers[i] * numbers[i];
    return sqrt(squares);
}

double norm_of(const struct bench *bench, const struct piece *piece) {
    return norm_of_numbers(bench->expected[piece->tensor] + piece->first, piece->count);
}

void size_is_1(const struct bench *bench, const struct piece *piece, double *sizes) {
    (void)bench;
    for (int64_t i = 0; i < piece->count; i++)
        sizes[i] = 1;
}

/* The rounding error of an fp32 addition to a previous value; 0 for outputs that are not added
 * to. */
static double lost_by_adding(const struct bench *bench, const struct piece *piece) {
    const float *before = smelt__problem_data(&bench->problem, piece->tensor);
    double squares = 0;
    for (int64_t i = 0; before && i < piece->count; i++)
        squares += (double)before[piece->first + i] * (double)before[piece->first + i];
    return 0x1p-24 * sqrt(squares);
}

void size_of_grads(const struct bench *bench, const struct piece *piece, double *sizes) {
    const double *own = bench->own + 2 * (piece - bench->pieces);
    *sizes = fmax(own[0], 1e-30) + (own[1] + lost_by_adding(bench, piece)) / 8e-3;
}

void size_of_all_grads(const struct bench *bench, const struct piece *piece, double *sizes) {
    const double *own = bench->own + 2 * (piece - bench->pieces);
    *sizes = hypot(fmax(own[0], 1e-30), (own[1] + lost_by_adding(bench, piece)) / 4e-3);
}

int is_nothing(const struct bench *bench, const struct piece *piece, int64_t element) {
    const double *own = bench->own + 2 * (piece - bench->pieces);
    (void)element;
    return own[0] == 0 && own[1] == 0;
}

const struct compared_rule *rule_of(const struct compared_pass *about, const char *name) {
    for (const struct compared_rule *one = about->rules; one && one->name; one++)
        if (strcmp(one->name, name) == 0)
            return one;
    return NULL;
}

int rules_tried[SMELT__MOST_RULES];

void count_plant(const struct bench *bench, const char *rule) {
    rules_tried[rule_of(bench->about, rule) - bench->about->rules]++;
}

/* ---- attention's probabilities --------------------------------------------------------------- */

static void size_of_target(const struct bench *bench, const struct piece *piece, double *sizes) {
    double sum = 0;
    for (int64_t i = 0; i < piece->count; i++)
        sum += bench->expected[piece->tensor][piece->first + i];
    for (int64_t i = 0; i < piece->count; i++)
        sizes[i] = fmax(sum, 1e-30);
}

static double bar_of_target(const struct bench *bench, double parts) {
    (void)parts;
    return 3e-5 + 4.5e-6 * bench->largest[0];
}

const struct compared_metric target_metrics[] = {
    {"target", EACH_ELEMENT, size_of_target, bar_of_target, 0, {"target"}}, {0}};

const struct compared_rule target_rules[] = {
    {"number", {"target"}, NOT_NEGATIVE, NULL}, {"masked_slot", {"target"}, ZERO, NULL}, {0}};
