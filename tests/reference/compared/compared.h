/*
 * Tests of the comparisons in src/harness. A table per operator (attention.c, indexer.c, ...) states
 * the metrics, bars and rules of its outputs independently of the harness. The tests
 * (test_comparisons.c) write correct results into the outputs and check that they pass. Then they
 * change the outputs; for each metric the harness must compute the error and bar that the table
 * states, and name the metric or rule that fails.
 *
 * The test fails if a table lacks a metric, rule or output that the harness has, and if an operator
 * has no table.
 */
#pragma once

#include "harness/check.h"

/* Limit of a piece's elements, and of rows and queries in the tables' problems. */
enum { MOST_NUMBERS = 512, MOST_OUTPUTS = 3 };

struct bench;

/* A piece of an output that is compared as a whole: a head's row, or one number. */
struct piece {
    int tensor;
    int64_t first, count; /* elements */
    int comparison;       /* number of the comparison of the pass */
    int64_t unit;
    int number; /* number among the unit's pieces of that tensor, for example the head */
};

struct compared_metric {
    const char *name; /* the harness's */
    enum {
        EACH_ELEMENT, /* |error| / size, the largest */
        EACH_PIECE,   /* sqrt(sum of squared errors) / size, the largest */
        ALL_PIECES,   /* sqrt(sum of all squared errors / sum of squared sizes) */
        BY_THE_TABLE  /* only its bar is stated; compared_pass.plants makes the errors */
    } kind;
    /* Sizes of a piece: sizes[count] for EACH_ELEMENT, else sizes[0]. Negative: the size is the
     * absolute value, and the test plants no error there. */
    void (*size)(const struct bench *bench, const struct piece *piece, double *sizes);
    /* The largest value that passes. parts: sum of the squared sizes divided by the largest. */
    double (*bar)(const struct bench *bench, double parts);
    double slack;                      /* errors up to this are ignored */
    const char *outputs[MOST_OUTPUTS]; /* by name; a problem has one of them */
};

struct compared_rule {
    const char *name; /* the harness's */
    const char *outputs[MOST_OUTPUTS];
    enum rule_kind {
        FINITE,        /* NaN and infinities are refused */
        NOT_NEGATIVE,  /* and numbers below 0 */
        ZERO,          /* anything but 0 and -0; if the kernel adds, anything but the previous
                          value */
        MINUS_INF,     /* anything but -inf */
        EXACT,         /* other bits */
        NO_MINUS_0,    /* NaN and -0 */
        SAME_INFINITY, /* an infinity instead of a number, or a number instead of an infinity */
        BY_HAND        /* compared_pass.plants does it */
    } kind;
    /* Whether the rule applies to an element; NULL: wherever 0 (ZERO), -inf (MINUS_INF) or anything
     * is expected. */
    int (*applies)(const struct bench *bench, const struct piece *piece, int64_t element);
};

struct compared_pass {
    unsigned pass;
    const char *const
        *specs; /* ended by NULL; of small shapes, and such that each comparison of the
                                 pass is made for one of them */
    const struct smelt__problem_options *problems;
    int problem_count;
    const struct compared_metric *metrics; /* ended by an element without a name */
    const struct compared_rule *rules;     /* likewise */
    /* Prepares data for `size` and `bar`; may malloc bench->own. */
    void (*prepare)(struct bench *bench);
    /* Plants errors that no kind covers, and calls expect_refused. */
    void (*plants)(struct bench *bench);
};

struct compared {
    const char *name; /* of the operator */
    const struct compared_pass *passes;
    int pass_count;
};

/* The library's operators' tables. */
#define OPERATOR(stem) extern const struct compared compared_##stem;
#include "operators.list"
#undef OPERATOR

/* The tables of all operators, ended by NULL; and a registry that replaces the harness's, or
 * NULL. */
extern const struct compared *const compared_operators[];
extern const struct smelt__harness_operator *const *compared_registry;

/* A problem with correct results in its outputs. */
struct bench {
    const struct compared_pass *about;
    const char *spec_text;
    struct smelt__harness_spec spec;
    struct smelt__problem problem;
    struct smelt__harness_pass pass; /* the operator's, except `choose` */
    struct smelt__comparison comparisons[4];
    struct smelt__placed placed;
    double *expected[SMELT__MOST_TENSORS];     /* before rounding; NaN: not computed */
    int32_t *piece_of[SMELT__MOST_TENSORS];    /* by element */
    unsigned char *right[SMELT__MOST_TENSORS]; /* the downloads, with correct results */
    struct piece *pieces;
    int piece_count, piece_room;
    int comparison; /* that is being recorded */
    int64_t unit, compared[4];
    struct smelt__check_result result;
    uint64_t seed;
    double *own;       /* of `prepare` */
    double largest[4]; /* set by `prepare`: for example the largest score, by comparison */
};

/* Makes problem `options` of a spec and computes its results; fails the test on errors. */
void bench_open(struct bench *bench, smelt_context *context, const struct compared_pass *about,
                const char *spec, const struct smelt__problem_options *options);
void bench_close(struct bench *bench);

int bench_tensor(const struct bench *bench, const char *name); /* -1: the pass has none */
int bench_has(const struct bench *bench, int tensor);

/* Restores the correct results. */
void bench_restore(struct bench *bench);
/* An element of the copy: its bytes; its value; sets it to the nearest value. */
unsigned char *bench_at(const struct bench *bench, int tensor, int64_t element);
double bench_get(const struct bench *bench, int tensor, int64_t element);
void bench_set(const struct bench *bench, int tensor, int64_t element, double value);

/* Compares everything, or only one piece's unit. */
const struct smelt__check_result *bench_compare(struct bench *bench);
const struct smelt__check_result *bench_compare_unit(struct bench *bench,
                                                     const struct piece *piece);

/* Compares the piece's unit; the copy must fail for the given reason, or pass (NULL). Then restores
 * the copy. */
void expect_refused(struct bench *bench, const struct piece *piece, const char *culprit);
