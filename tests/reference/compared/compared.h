/*
 * Tests of the comparisons in src/harness, the same for every operator. A file per operator (OPERATOR.txt)
 * has for each pass the specs and problems that the tests use, then what the tests found with
 * them: how large an error each metric accepts, and whether each kind of wrong number fails.
 */
#pragma once

#include "harness/check.h"

enum { MOST_SPECS = 16, MOST_PROBLEMS = 5 };

struct compared_pass {
    const struct smelt__harness_operator *op;
    unsigned pass;
    char specs[MOST_SPECS][160];
    int spec_count;
    struct smelt__problem_options problems[MOST_PROBLEMS];
    int problem_count;
};

/* A piece of an output that is compared as a whole: a head's row, or one number. */
struct piece {
    int tensor;
    int64_t first, count; /* elements */
    int comparison;       /* number of the comparison of the pass */
    int64_t unit;
    int exact; /* 1: a rule determines it; -1: not known */
};

/* A problem with correct results in its outputs. */
struct bench {
    const char *spec_text;
    struct smelt__harness_spec spec;
    struct smelt__problem problem;
    struct smelt__harness_pass pass; /* the operator's, except `choose` */
    struct smelt__comparison comparisons[4];
    struct smelt__placed placed;
    double *expected[SMELT__MOST_TENSORS];     /* before rounding; NaN: not computed */
    int32_t *piece_of[SMELT__MOST_TENSORS];    /* by element; -1: none */
    unsigned char *right[SMELT__MOST_TENSORS]; /* the downloads, with correct results */
    struct piece *pieces;
    int piece_count, piece_room;
    int comparison; /* that is being recorded */
    int64_t unit;
    struct smelt__check_result result;
};

/* Reads the specs and problems in the file of `op`: writes up to 2 passes, returns their number. */
int compared_read(const char *folder, const struct smelt__harness_operator *op,
                  struct compared_pass passes[2]);

/* The same for each operator, or for the one named `only`. */
void compared_each(const char *folder, const char *only,
                   void (*each)(const struct compared_pass *passes, int count));

/* The tests' context, and the functions of a group of tests that open and close it. */
extern smelt_context *compared_context;
int compared_begin(void **state);
int compared_end(void **state);

/* Makes problem `options` of a spec and computes its results; fails the test on errors. */
void bench_open(struct bench *bench, unsigned pass, const char *spec,
                const struct smelt__problem_options *options);
void bench_close(struct bench *bench);

/* Restores the correct results. */
void bench_restore(struct bench *bench);
/* The type of an output; whether it is bf16 or fp32. */
enum smelt__element bench_type(const struct bench *bench, int tensor);
int bench_is_float(const struct bench *bench, int tensor);
/* An element of the copy: its bytes; its value; sets it to the nearest value. */
unsigned char *bench_at(const struct bench *bench, int tensor, int64_t element);
double bench_get(const struct bench *bench, int tensor, int64_t element);
void bench_set(const struct bench *bench, int tensor, int64_t element, double value);

/* Compares everything, or only one piece's unit. */
const struct smelt__check_result *bench_compare(struct bench *bench);
const struct smelt__check_result *bench_compare_unit(struct bench *bench,
                                                     const struct piece *piece);
