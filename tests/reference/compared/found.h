/* The findings of test_comparisons about a pass of an operator, and their record in OPERATOR.txt. */
#pragma once

#include <stdio.h>

#include "compared.h"

enum { MOST_BENCHES = MOST_SPECS * MOST_PROBLEMS, MOST_OUTCOMES = 256 };

enum shape { ELEMENT, PIECE, ALL, SHAPES };
extern struct found {
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
    struct found_total {
        const char *kind, *tensor;
        double a, b;
    } totals
        [2 *
         SMELT__MOST_TENSORS]; /* "values": two sums over results; "footprint": bytes, and their ends */
    int total_count;
} found;

struct found_rule *rule_named(const char *name);
struct found_metric *metric_named(const char *name);

/* Notes how many times each rule was checked in correct results, and the bars. */
void note_result(const struct smelt__check_result *result);
/* Notes the memory of a tensor that a kernel may access and, of an output, the reference's results, so that any
 * change of them shows. */
void note_tensor(const struct bench *bench, int tensor);
/* Notes the reason why a wrong number of kind `plant` failed, or that it passed. */
void note_outcome(const struct bench *bench, int tensor, const char *kind, int plant,
                  const char *reason);

void expect_unit_named(const struct bench *bench, const struct piece *piece);
void expect_complete(const struct compared_pass *about, unsigned outputs,
                     const struct smelt__args_table *tensors);

/* Print the record; fail unless a recorded and a new text agree. */
void print_found(FILE *to);
void expect_same(const char *path, char *was, char *is);

/* ---- wrong_numbers.c ------------------------------------------------------------------------- */

extern const char *const plant_names[]; /* ended by NULL */

/* Moves an element to the adjacent number of its type, towards either infinity. */
void bench_step(const struct bench *bench, int tensor, int64_t element, int up);
/* Tries wrong numbers in elements of each kind of an output. */
void plant_in(struct bench *bench, int tensor);
/* Changes every number of an input, so that the correct results become wrong. */
void change_input(struct bench *bench, int tensor);
