/*
 * The harness's description of an operator: one row per stem, in src/harness/<stem>.c. check,
 * bench, tune, the GPU suite and the emulator's suites use these rows and do not mention operators
 * by name.
 *
 * The operator's table (ops/args_table.h) determines the tensors: memory, strides, gaps, poison,
 * upload, names. The row adds the inputs' values, the memory that a kernel may touch, and the
 * comparison.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "harness/options.h"
#include "ops/args_table.h"
#include "reference/operators.h"
#include "smelt/operator.h"

struct smelt__footprints;
struct smelt__placed;
struct smelt__problem;
struct smelt__random;

/* ---- errors ---------------------------------------------------------------------------------- */

/* A set of an operator's outputs, by their rows in the tensor table. */
#define SMELT__OF(tensor) (1U << (tensor))

/* A number that a comparison computes: a column of check's table, a field of its JSON. */
struct smelt__metric {
    const char *group, *name; /* {"max_abs_error": {"lse": …}}; group "": not printed */
    const char *heading;      /* of the column; NULL: none */
    const char *what;         /* in messages: "relative error of out" */
    enum smelt__gathering {
        SMELT__LARGEST, /* the maximum over all units */
        SMELT__OVERALL  /* sqrt(sum of value / sum of weight): a relative error over everything */
    } gathering;
    unsigned outputs; /* the outputs that it judges; 0: it only serves to set bars */
};

/* A condition that must hold exactly, regardless of the bars: "a masked slot is exactly 0". */
struct smelt__rule {
    const char *name; /* of the JSON field; unique among metrics and rules of the pass */
    unsigned outputs; /* the outputs that it judges */
    const char *what; /* describes a violation */
};

/* Limits of a pass. */
enum { SMELT__MOST_METRICS = 16, SMELT__MOST_RULES = 20 };

struct smelt__metric_result {
    const struct smelt__metric *metric;
    double value;
    double parts; /* SMELT__OVERALL: the sum of the weights divided by the heaviest; 0: not
                 * recorded */
    double bar;   /* largest value that passes; negative: not judged */
};

struct smelt__rule_result {
    const struct smelt__rule *rule;
    int64_t applied; /* how often it was checked */
};

/* The result of comparing one unit; zeroed before. */
struct smelt__finding {
    struct {
        double value, weight; /* `weight` for SMELT__OVERALL */
        double heaviest;      /* largest addend of `weight`, if the operator records it */
        int64_t part;         /* of the largest within the unit; see `part` below */
    } metrics[SMELT__MOST_METRICS];
    int64_t applied[SMELT__MOST_RULES];
    int64_t elements[SMELT__MOST_TENSORS]; /* compared, by output: smelt__compared_row counts */
    int broken;                            /* 1 + the first violated rule; 0: none */
    int64_t broken_part;
    int failed; /* 1: memory ran out while computing the reference */
};

/* Makes a metric's value the larger of the two, and `part` where; NaN is larger than any number.
 */
static inline void smelt__finding_enlarge(struct smelt__finding *finding, int metric, double value,
                                          int64_t part) {
    const double before = finding->metrics[metric].value;
    if (before != before || value <= before)
        return;
    finding->metrics[metric].value = value;
    finding->metrics[metric].part = part;
}

/* Records whether a rule of the comparison holds for a part; returns `holds`. */
static inline int smelt__finding_rule(struct smelt__finding *finding, int rule, int holds,
                                      int64_t part) {
    finding->applied[rule]++;
    if (!holds && !finding->broken) {
        finding->broken = rule + 1;
        finding->broken_part = part;
    }
    return holds;
}

/*
 * Compares results with the reference unit by unit. A unit is a query's row of every output or, for
 * gradients by key, one key's row. A pass has a comparison for each kind of unit, which runs on a
 * sample of the units, on several threads. Its metrics and rules are all that it can report;
 * together they cover every output of the pass. tests/reference/compared/test_comparisons.c checks
 * that each of them rejects an error just beyond its bar.
 */
struct smelt__comparison {
    const char *unit, *part; /* as messages call a unit and a part of it: "query", "head" */
    const struct smelt__metric *metrics;
    int metric_count;
    const struct smelt__rule *rules;
    int rule_count;
    /* How many units there are: the product of these extents (symbols of the table), if `count` is
     * NULL. */
    int dimensions;
    unsigned char symbols[SMELT__MOST_DIMENSIONS];
    int64_t (*count)(const struct smelt__problem *problem);
    /* Whether the unit is computed; NULL: all are. */
    int (*wanted)(const struct smelt__problem *problem, int64_t unit);
    /* Chooses at most `most` of the units, each once; returns their number, or -1: out of memory.
     * NULL: all wanted units if they are few enough, else the first, the last and random ones
     * between, ascending. */
    int64_t (*choose)(const struct smelt__placed *placed, int64_t most, int64_t *units);
    /* Data that all chosen units share, freed by `release`; both functions may be NULL. `prepare`
     * returns NULL: out of memory. */
    void *(*prepare)(const struct smelt__placed *placed, const int64_t *units, int64_t count);
    void (*release)(void *prepared);
    /* Reads the outputs with smelt__compared_row (placed.h). */
    void (*compare)(const struct smelt__placed *placed, const void *prepared, int64_t unit,
                    struct smelt__finding *finding);
    /* The metrics' bars; 0: not judged. */
    double bars[SMELT__MOST_METRICS];
    /* Sets those that depend on something, in results[metric_count], whose values are known.
     * `compared`: the number of units. NULL: none does. */
    void (*judge)(const struct smelt__problem *problem, int64_t compared,
                  struct smelt__metric_result *results);
};

#define SMELT__UNITS(name, part_name, ...)                                                         \
    .unit = (name), .part = (part_name),                                                           \
    .dimensions = sizeof((const unsigned char[]){__VA_ARGS__}), .symbols = {__VA_ARGS__}
/* A comparison's metrics and rules, from rows or from a named array. */
#define SMELT__METRIC_ROWS(...)                                                                    \
    .metrics = (const struct smelt__metric[]){__VA_ARGS__},                                        \
    .metric_count =                                                                                \
        sizeof((const struct smelt__metric[]){__VA_ARGS__}) / sizeof(struct smelt__metric)
#define SMELT__RULE_ROWS(...)                                                                      \
    .rules = (const struct smelt__rule[]){__VA_ARGS__},                                            \
    .rule_count = sizeof((const struct smelt__rule[]){__VA_ARGS__}) / sizeof(struct smelt__rule)
#define SMELT__METRICS(list) .metrics = (list), .metric_count = sizeof(list) / sizeof *(list)
#define SMELT__RULES(list) .rules = (list), .rule_count = sizeof(list) / sizeof *(list)

int64_t smelt__comparison_count(const struct smelt__comparison *how,
                                const struct smelt__problem *problem);

/* ---- figures --------------------------------------------------------------------------------- */

/* A rate that bench prints: amount by time. */
struct smelt__rate {
    const char *name;    /* of the JSON field: "tflops" */
    const char *ratio;   /* of its share of the ceiling: "tflops_ratio" */
    const char *heading; /* "TFLOP/s" */
    int decimals;        /* in the table */
    double amount;       /* of one launch, in the rate's unit times seconds */
    double ceiling;      /* of an H200, in the rate's unit */
};

enum { SMELT__MOST_RATES = 4 };

#define SMELT__TFLOPS(amount, ceiling)                                                             \
    ((struct smelt__rate){"tflops", "tflops_ratio", "TFLOP/s", 0, (amount), (ceiling)})
#define SMELT__TBS(word, decimals, amount, ceiling)                                                \
    ((struct smelt__rate){word "_tbs", word "_ratio", word " TB/s", (decimals), (amount),          \
                          (ceiling)})

/* ---- a pass ---------------------------------------------------------------------------------- */

struct smelt__harness_pass {
    unsigned pass;    /* SMELT_PASS_... */
    const char *name; /* "forward" */
    const struct smelt__args_table *tensors;
    int table; /* of a pass with several tables: this one's number (ops/args_table.h) */

    /* Of operators over lists of slots (attention.h): makes the reference's call from the args struct. */
    struct smelt__attention (*attention)(const struct smelt__attention_spec *spec,
                                         const void *args);
    int leaves_free; /* 1: problems of every fourth seed set free_multiprocessors */
    /* Sets numbers of *args that do not follow from options of the same names, and those
     * problem->extents that are larger than the call's (a tensor with more room than the call
     * uses). The other extents follow from *args. NULL: there are none. */
    void (*shape)(struct smelt__problem *problem);
    /* Whether an optional tensor is given; not called for required ones. */
    int (*given)(const struct smelt__problem *problem, int tensor);
    /* Fills the inputs' host memory, and the initial values of outputs that are added to, from the
     * seed; sets `listed`, `computed` and `work`. 0; -1: out of memory. */
    int (*fill)(struct smelt__problem *problem);
    /* A kernel may access all of a tensor but gaps, and rows of queries that are not listed. Of
     * these tensors (SMELT__OF) it may access only what `footprint` names (smelt__touch,
     * smelt__touch_row); for outputs, exactly what it writes. */
    unsigned partly;
    void (*footprint)(const struct smelt__problem *problem, struct smelt__footprints *footprints);
    /* Whether an output has the same bits in every run; NULL: all have. */
    int (*reproducible)(const struct smelt__problem *problem, int tensor);
    /* An upper bound of a launch's multiplications, from which the emulator's time limit follows;
     * `options` has defaults filled in. */
    double (*multiplications)(const void *spec, const struct smelt__problem_options *options);

    const struct smelt__comparison *comparisons;
    int comparison_count;

    /* The rates of a launch; returns their number. NULL: none. */
    int (*rates)(const struct smelt__problem *problem, struct smelt__rate rates[SMELT__MOST_RATES]);
};

/* The functions of a pass, by their names in its file. */
#define SMELT__PASS(PASS, name_, table)                                                            \
    .pass = SMELT_PASS_##PASS, .name = (name_), .tensors = (table), .fill = fill,                  \
    .multiplications = multiplications, .comparisons = comparisons,                                \
    .comparison_count = sizeof comparisons / sizeof *comparisons, .rates = rates
#define SMELT__PARTLY(...) .partly = (__VA_ARGS__), .footprint = footprint

/* ---- an operator ----------------------------------------------------------------------------- */

/* A problem of bench's own. */
struct smelt__harness_shape {
    const char *spec;
    int64_t tokens, rows; /* 0: the default */
    /* options of these names */
    enum smelt__lists lists;
    int64_t valid, documents;
    int topk_length;
};

/* Sizes of problems; 0: the default. `width` counts rows, also if a list's entries are blocks. */
struct smelt__harness_sizes {
    int64_t tokens, patterns; /* `patterns`: tokens for adversarial lists; 0: as `tokens` */
    int64_t rows, width;
};

/* An int in an operator's struct of keys; the name NULL ends the table. */
struct smelt__harness_key {
    const char *name;
    size_t field;
    int apart; /* 1: specs that differ only in it have the same problems */
};

#define SMELT__SPEC_KEY(stem, key)                                                                 \
    { #key, offsetof(struct smelt__##stem##_spec, key), 0 }
#define SMELT__SPEC_APART(stem, key)                                                               \
    { #key, offsetof(struct smelt__##stem##_spec, key), 1 }

/* Defines the table `keys` from a list of keys (reference/operators.h). */
#define SMELT__KEY_TABLE(stem, KEYS)                                                               \
    typedef struct smelt__##stem##_spec key_fields;                                                \
    static const struct smelt__harness_key keys[] = {KEYS(SMELT__KEY_ROW, SMELT__APART_ROW),       \
                                                     {NULL, 0, 0}};
#define SMELT__KEY_ROW(key)                                                                        \
    { #key, offsetof(key_fields, key), 0 }
#define SMELT__APART_ROW(key)                                                                      \
    { #key, offsetof(key_fields, key), 1 }

struct smelt__harness_operator {
    const char *name;  /* of the family: "sparse_attn" */
    size_t spec_bytes; /* of its struct of keys (reference/specs.h); 0: it has no keys */
    const struct smelt__harness_key *keys;

    const struct smelt__harness_pass *passes;
    int pass_count;

    /* Options of its problems in addition to the common ones (options.h), by name, ended by NULL. */
    const char *const *options;
    /* Its own options, whose fields are in smelt__problem_options.own; NULL: none. */
    const struct smelt__option *own_options;
    int own_option_count;

    int has_lists; /* 1: the option width is a list's number of entries; 0: a window's number of rows */
    int64_t rows;                      /* lower bound of the default of the option rows */
    struct smelt__harness_sizes small; /* problems for the emulator */
    struct smelt__harness_sizes most;  /* upper bounds of random problems */
    struct smelt__harness_sizes trial; /* tune's problems; all 0: `small` */
    /* The kinds of inputs that check tries by default; a field that is 0 keeps the given value. NULL:
     * random, causal, window, full and adversarial lists or windows. */
    const struct smelt__problem_options *kinds;
    int kind_count;
    /* Draws numbers that neither `most` nor the options' kinds determine; NULL: there are none. */
    void (*draw)(const void *spec, struct smelt__random *random,
                 struct smelt__problem_options *options);
    /* Names the kind of inputs that the options select, for check's and bench's column. NULL: the
     * lists' name. */
    const char *(*inputs)(const struct smelt__problem_options *options);

    struct smelt__harness_shape bench;        /* bench's default; no spec */
    const struct smelt__harness_shape *peers; /* bench --shapes peers */
    int peer_count;
};

/* The functions of a row, by their names in its file. */
#define SMELT__HARNESS_ROW(stem)                                                                   \
    .name = #stem, .passes = passes, .pass_count = sizeof passes / sizeof *passes,                 \
    .options = options, .peers = peers, .peer_count = sizeof peers / sizeof *peers
#define SMELT__KINDS(list) .kinds = (list), .kind_count = sizeof(list) / sizeof *(list)
#define SMELT__HARNESS_KEYS(stem) .spec_bytes = sizeof(struct smelt__##stem##_spec), .keys = keys

/* ---- the registry (operators.c) -------------------------------------------------------------- */

/* The operators, in harness/STEM.c of each. */
#define OPERATOR(stem) extern const struct smelt__harness_operator smelt__harness_##stem;
#include "operators.list"
#undef OPERATOR

/* All of them, ended by NULL. A test may replace the list before the first use. */
extern const struct smelt__harness_operator *const *smelt__harness_operators;

/* The library's calls. A test may replace them. */
extern const struct smelt__harness_calls {
    smelt_status (*create)(smelt_operator **op, smelt_context *context, const char *spec);
    void (*destroy)(smelt_operator **op);
    smelt_status (*launch)(const smelt_operator *op, enum smelt_pass pass, const void *args,
                           struct CUstream_st *stream);
    smelt_status (*workspace)(const smelt_operator *op, enum smelt_pass pass, const void *args,
                              size_t *bytes);
} * smelt__harness_calls;

/* An operator's name of the kind of inputs that options select. */
const char *smelt__harness_inputs(const struct smelt__harness_operator *op,
                                  const struct smelt__problem_options *options);

/* The operator that a spec's text begins with; NULL if there is none of that name. */
const struct smelt__harness_operator *smelt__harness_find(const char *spec);

/* Why a call of the library or of the harness failed on this thread. The harness, unlike the library, leaves
 * no message when the host's memory is exhausted: smelt_last_error() is then an earlier call's. */
const char *smelt__harness_reason(smelt_status status);

/* ---- specs of any operator ------------------------------------------------------------------- */

struct smelt__harness_spec {
    const struct smelt__harness_operator *op;
    char *text;        /* canonical, with knobs last */
    const char *knobs; /* within `text`, "stages=2,..."; "" for none */
    void *spec;        /* its struct of keys */
    unsigned passes;   /* of the spec */
};

/* Errors: as smelt_spec_canonical; INVALID_SPEC, without a message from the library, if no operator
 * has the name. Free in both cases. */
smelt_status smelt__harness_spec_parse(struct smelt__harness_spec *spec, const char *text);
void smelt__harness_spec_free(struct smelt__harness_spec *spec);

/* Whether the spec has the pass of this row. */
int smelt__harness_spec_has(const struct smelt__harness_spec *spec,
                            const struct smelt__harness_pass *pass);

/* A pass of the spec (`pass` 0: its first), or NULL if the spec does not have it. */
const struct smelt__harness_pass *smelt__harness_spec_pass(const struct smelt__harness_spec *spec,
                                                           unsigned pass);
