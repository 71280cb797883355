/* What several tables say in the same way. */
#pragma once

#include "compared.h"

double norm_of_numbers(const double *numbers, int64_t count);
/* Of what is expected. */
double norm_of(const struct bench *bench, const struct piece *piece);

void size_is_1(const struct bench *bench, const struct piece *piece, double *sizes);

/* Gradients whose bench->own has two numbers a piece: its size apart from rounding, and what may be
 * lost of it besides, but for what an addition in fp32 loses of the value before; both are 0 where
 * nothing has a part in it. */
void size_of_grads(const struct bench *bench, const struct piece *piece, double *sizes);
void size_of_all_grads(const struct bench *bench, const struct piece *piece, double *sizes);
int is_nothing(const struct bench *bench, const struct piece *piece, int64_t element);

/* A pass's rule of that name; NULL: none. */
const struct compared_rule *rule_of(const struct compared_pass *about, const char *name);

/* Of a pass's rules by number: what was tried beyond them. And a rule that was tried by hand. */
extern int rules_tried[SMELT__MOST_RULES];
void count_plant(const struct bench *bench, const char *rule);
