/*
 * Tests of comparisons: what each operator's outputs are held to, stated here apart from the
 * harness, a table an operator (attention.c, indexer.c, ...). The tests (test_comparisons.c) write
 * right answers into the outputs, see them pass, change them, and expect of check what the table
 * says: the same error and the same bar for each metric, and a refusal by name.
 *
 * A metric, a rule or an output that the harness has and a table has not fails the test, and so
 * does an operator without a table.
 */
#ifndef SMELT_TEST_COMPARED_H
#define SMELT_TEST_COMPARED_H

#include "harness/check.h"

/* At most so many elements has a piece, and so many rows and queries a problem, of the tables. */
enum { MOST_NUMBERS = 512, MOST_OUTPUTS = 3 };

struct bench;

/* A piece of an output that a comparison looks at as a whole: a head's row, one number. */
struct piece {
    int tensor;
    int64_t first, count; /* elements */
    int comparison;       /* number of the pass's */
    int64_t unit;
    int number; /* of the unit's pieces of that tensor: the head, for one */
};

struct compared_metric {
    const char *name; /* the harness's */
    enum {
        EACH_ELEMENT, /* |error| / size, the largest */
        EACH_PIECE,   /* sqrt(sum of squared errors) / size, the largest */
        ALL_PIECES,   /* sqrt(sum of all squared errors / sum of squared sizes) */
        BY_THE_TABLE  /* its bar alone is stated; compared_pass.plants does the rest */
    } kind;
    /* Sizes of a piece: sizes[count] of EACH_ELEMENT, else sizes[0]. Below 0: their negative, where
     * nothing is to be planted. */
    void (*size)(const struct bench *bench, const struct piece *piece, double *sizes);
    /* What the value may be. parts: the sum of the squared sizes over the largest. */
    double (*bar)(const struct bench *bench, double parts);
    double slack;                      /* errors that do not count */
    const char *outputs[MOST_OUTPUTS]; /* by name; a problem has one of them */
};

struct compared_rule {
    const char *name; /* the harness's */
    const char *outputs[MOST_OUTPUTS];
    enum rule_kind {
        FINITE,        /* NaN and infinities are refused */
        NOT_NEGATIVE,  /* and numbers below 0 */
        ZERO,          /* anything but 0 and -0; of what is added to, but what it was */
        MINUS_INF,     /* anything but -inf */
        EXACT,         /* other bits */
        NO_MINUS_0,    /* NaN and -0 */
        SAME_INFINITY, /* where a number is expected an infinity, and the other way round */
        BY_HAND        /* compared_pass.plants does it */
    } kind;
    /* Whether it is about an element; NULL: wherever 0 is expected (ZERO), -inf (MINUS_INF), or
     * anything. */
    int (*applies)(const struct bench *bench, const struct piece *piece, int64_t element);
};

struct compared_pass {
    unsigned pass;
    const char *const *specs; /* ended by NULL; of small shapes, for which every row of the pass is
                                 one's */
    const struct smelt__problem_options *problems;
    int problem_count;
    const struct compared_metric *metrics; /* ended by one without a name */
    const struct compared_rule *rules;     /* likewise */
    /* Makes what `size` and `bar` need; may malloc bench->own. */
    void (*prepare)(struct bench *bench);
    /* Plants what the kinds cannot: calls expect_refused. */
    void (*plants)(struct bench *bench);
};

struct compared {
    const char *name; /* of the operator */
    const struct compared_pass *passes;
    int pass_count;
};

/* Of all operators of a registry, which takes the place of the harness's unless it is NULL; ended
 * by NULL. */
extern const struct compared *const compared_operators[];
extern const struct smelt__harness_operator *const *compared_registry;

/* A problem with right answers in its outputs. */
struct bench {
    const struct compared_pass *about;
    const char *spec_text;
    struct smelt__harness_spec spec;
    struct smelt__problem problem;
    struct smelt__harness_pass pass; /* the operator's, but for `choose` */
    struct smelt__comparison comparisons[4];
    struct smelt__placed placed;
    double *expected[SMELT__MOST_TENSORS];     /* before rounding; NaN: not computed */
    int32_t *piece_of[SMELT__MOST_TENSORS];    /* by element */
    unsigned char *right[SMELT__MOST_TENSORS]; /* the downloads, with right answers */
    struct piece *pieces;
    int piece_count, piece_room;
    int comparison; /* that is being told */
    int64_t unit, compared[4];
    struct smelt__check_result result;
    uint64_t seed;
    double *own;       /* of `prepare` */
    double largest[4]; /* of `prepare`: the largest score, for one, by comparison */
};

/* Answers problem `options` of a spec; fails the test where that cannot be. */
void bench_open(struct bench *bench, smelt_context *context, const struct compared_pass *about,
                const char *spec, const struct smelt__problem_options *options);
void bench_close(struct bench *bench);

int bench_tensor(const struct bench *bench, const char *name); /* -1: the pass has none */
int bench_has(const struct bench *bench, int tensor);

/* The right answers again. */
void bench_restore(struct bench *bench);
/* An element of the copy: bytes; as a number; set to what is nearest to a number. */
unsigned char *bench_at(const struct bench *bench, int tensor, int64_t element);
double bench_get(const struct bench *bench, int tensor, int64_t element);
void bench_set(const struct bench *bench, int tensor, int64_t element, double value);

/* Compares everything, or one piece's unit alone. */
const struct smelt__check_result *bench_compare(struct bench *bench);
const struct smelt__check_result *bench_compare_unit(struct bench *bench,
                                                     const struct piece *piece);

/* The copy as it is must be refused for that reason, or passed (NULL), by its unit alone. Then
 * restores. */
void expect_refused(struct bench *bench, const struct piece *piece, const char *culprit);

#endif
