/* Shared by several tables. */
#pragma once

#include "compared.h"

double norm_of_numbers(const double *numbers, int64_t count);
/* The norm of the expected values. */
double norm_of(const struct bench *bench, const struct piece *piece);

void size_is_1(const struct bench *bench, const struct piece *piece, double *sizes);

/* Gradients whose bench->own has two numbers per piece: its size without rounding, and the
 * permitted additional error, without that of an fp32 addition to a previous value; both are 0 if
 * nothing contributes. */
void size_of_grads(const struct bench *bench, const struct piece *piece, double *sizes);
void size_of_all_grads(const struct bench *bench, const struct piece *piece, double *sizes);
int is_nothing(const struct bench *bench, const struct piece *piece, int64_t element);

/* Targets, rows of probabilities: relative to a row's sum. `prepare` sets bench->largest[0] to the
 * largest score. */
extern const struct compared_metric target_metrics[];
extern const struct compared_rule target_rules[];

/* A pass's rule of that name; NULL: none. */
const struct compared_rule *rule_of(const struct compared_pass *about, const char *name);

/* The number of attempts to violate each rule of a pass; and a function that counts attempts by
 * hand. */
extern int rules_tried[SMELT__MOST_RULES];
void count_plant(const struct bench *bench, const char *rule);
