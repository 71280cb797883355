/* What sparse_attn, sparse_scores, sparse_gqa and sparse_gqa_scores share: their problems
 * (attention_problem.c), and the comparison of their results (attention_compare.c). Their specs are read
 * into struct smelt__attention_spec, and each pass in the harness sets the field `attention`. */
#pragma once

#include "harness/grad_rows.h"
#include "harness/placed.h"

/* ---- problems ------------------------------------------------------------------------------- */

/* An operator's kinds of inputs, and the sizes of its problems: several key blocks, the last one partial. If
 * entries are blocks, the last one is incomplete. */
enum { SMELT__ATTENTION_KINDS = 6 };
extern const struct smelt__problem_options smelt__attention_kinds[SMELT__ATTENTION_KINDS];
#define SMELT__ATTENTION_OPTIONS                                                                   \
    .has_lists = 1, .small = {.tokens = 3, .patterns = 10, .width = 200},                          \
    .most = {.rows = 700, .width = 330}, .trial = {.tokens = 6, .width = 700},                     \
    SMELT__KINDS(smelt__attention_kinds)

/* Functions of a pass. */
void smelt__attention_shape(struct smelt__problem *problem);
int smelt__attention_given(const struct smelt__problem *problem, int tensor);
int smelt__attention_fill(struct smelt__problem *problem);
void smelt__attention_footprint(const struct smelt__problem *problem,
                                struct smelt__footprints *footprints);
int smelt__attention_reproducible(const struct smelt__problem *problem, int tensor);
double smelt__attention_forward_work(const void *spec,
                                     const struct smelt__problem_options *options);
double smelt__attention_backward_work(const void *spec,
                                      const struct smelt__problem_options *options);
double smelt__attention_target_work(const void *spec, const struct smelt__problem_options *options);
int smelt__attention_forward_rates(const struct smelt__problem *problem,
                                   struct smelt__rate found[SMELT__MOST_RATES]);
int smelt__attention_backward_rates(const struct smelt__problem *problem,
                                    struct smelt__rate found[SMELT__MOST_RATES]);
int smelt__attention_target_rates(const struct smelt__problem *problem,
                                  struct smelt__rate found[SMELT__MOST_RATES]);

/* The fields of a pass. `kind`: forward, backward or target; `attention_`: the function that makes the
 * reference's call from the pass's args struct; `table_`: the args struct's table. */
#define SMELT__ATTENTION_PASS(PASS, name_, kind, attention_, table_, comparisons_)                 \
    .pass = SMELT_PASS_##PASS, .name = (name_), .tensors = (table_), .attention = (attention_),    \
    .shape = smelt__attention_shape, .given = smelt__attention_given,                              \
    .fill = smelt__attention_fill, .footprint = smelt__attention_footprint,                        \
    .reproducible = smelt__attention_reproducible,                                                 \
    .multiplications = smelt__attention_##kind##_work, .comparisons = (comparisons_),              \
    .comparison_count = sizeof(comparisons_) / sizeof *(comparisons_),                             \
    .rates = smelt__attention_##kind##_rates

/* The numbers of a pass's tensors in its table; -1: it has no such tensor. */
struct smelt__attention_tensors {
    int q, k, v, indices, topk_length, limit, sink, queries, query_count;
    int out, lse, max_logits, target;
    int grad_out, dq, dsink;
    struct smelt__key_rows dk, dv; /* of sparse_attn dk is dkv */
};
struct smelt__attention_tensors smelt__attention_tensors(const struct smelt__problem *problem);

/* The problem's call, for the reference. */
struct smelt__attention smelt__problem_attention(const struct smelt__problem *problem);

/* Valid slots of a query's first list. */
int64_t smelt__problem_valid_slots(const struct smelt__problem *problem, int64_t query);

/* Whether the call computes a query: the function `wanted` of comparisons by query. */
int smelt__query_is_computed(const struct smelt__problem *problem, int64_t query);

/* The downloaded results of a query and head: dv bf16 values; pointers into the copy. */
const uint16_t *smelt__placed_out(const struct smelt__placed *placed, int64_t query, int head);
float smelt__placed_lse(const struct smelt__placed *placed, int64_t query, int head);
float smelt__placed_max_logit(const struct smelt__placed *placed, int64_t query, int head);

/* ---- forward, by query ----------------------------------------------------------------------- */

/* The metrics of out and lse, and of max_logits where the operator has it. */
enum {
    SMELT__OUT_OVERALL,
    SMELT__OUT_ROW,
    SMELT__OUT_ELEMENT,
    SMELT__OUT_LSE,
    SMELT__OUT_ABSOLUTE,
    SMELT__OUT_SCORE,
    SMELT__OUT_METRICS,
    SMELT__OUT_MAX_LOGITS = SMELT__OUT_METRICS
};

#define SMELT__OUT_METRIC_ROWS(out, lse)                                                           \
    [SMELT__OUT_OVERALL] = {"relative_error",        "out",          "out, relative",              \
                            "relative error of out", SMELT__OVERALL, out},                         \
    [SMELT__OUT_ROW] = {"relative_error",        "out_row",      "worst row",                      \
                        "relative error of out", SMELT__LARGEST, out},                             \
    [SMELT__OUT_ELEMENT] =                                                                         \
        {"relative_error", "out_element",                                                          \
         "worst element",  "error of an element of out, relative to its terms,",                   \
         SMELT__LARGEST,   out},                                                                   \
    [SMELT__OUT_LSE] = {"max_abs_error", "lse", "lse", "error of lse", SMELT__LARGEST, lse},       \
    [SMELT__OUT_ABSOLUTE] = {"max_abs_error", "out", NULL, "error of out", SMELT__LARGEST, out},   \
    [SMELT__OUT_SCORE] = {"", "largest_score", NULL, "score", SMELT__LARGEST, 0}

/* The rules; `nothing`: what an empty query lacks, in messages. Only sparse_attn has SINGLE. */
enum {
    SMELT__OUT_EMPTY,
    SMELT__OUT_FINITE,
    SMELT__OUT_RULES,
    SMELT__OUT_SINGLE = SMELT__OUT_RULES
};

#define SMELT__OUT_RULE_ROWS(out, nothing)                                                         \
    [SMELT__OUT_EMPTY] = {"empty_query", out,                                                      \
                          "out of a query without a valid " nothing " is not 0"},                  \
    [SMELT__OUT_FINITE] = {"finite", out, "out is NaN, infinite or not written"}

void smelt__out_compare(const struct smelt__placed *placed, const void *prepared, int64_t query,
                        struct smelt__finding *finding);
void smelt__out_judge(const struct smelt__problem *problem, int64_t compared,
                      struct smelt__metric_result *results);
/* `metrics_`, `rules_`: SMELT__METRIC_ROWS and SMELT__RULE_ROWS of the rows above. */
#define SMELT__OUT_COMPARISON(metrics_, rules_, B, T)                                              \
    {                                                                                              \
        SMELT__UNITS("query", "head", B, T), metrics_, rules_, .wanted = smelt__query_is_computed, \
                                                               .compare = smelt__out_compare,      \
                                                               .judge = smelt__out_judge           \
    }

/* ---- backward -------------------------------------------------------------------------------- */

/* The metrics of rows of gradients. */
enum { SMELT__GRAD_SCORE = SMELT__GRAD_METRICS, SMELT__GRAD_SCORE_METRICS };

/* Metrics and rules for a gradient named `name` in a set of outputs. `nothing`: the message if a row without any
 * contribution is not 0. */
#define SMELT__GRAD_JUDGED(name, outputs, nothing)                                                 \
    SMELT__METRIC_ROWS(                                                                            \
        SMELT__GRAD_METRIC_ROWS(name, outputs), [SMELT__GRAD_SCORE] = {"", "largest_score", NULL,  \
                                                                       "score", SMELT__LARGEST,    \
                                                                       0}),                        \
        SMELT__RULE_ROWS(SMELT__GRAD_RULE_ROWS(name, outputs, nothing)),                           \
        .judge = smelt__grad_score_judge

void smelt__grad_score_judge(const struct smelt__problem *problem, int64_t compared,
                             struct smelt__metric_result *results);

/* The queries that have a part, as often as they are listed: `prepare` of comparisons, released by
 * free. */
struct smelt__listed_queries {
    int64_t count;
    int64_t numbers[];
};
void *smelt__listed_queries(const struct smelt__placed *placed, const int64_t *units,
                            int64_t count);

/* dq by query, dk and dv by key. */
void smelt__dq_compare(const struct smelt__placed *placed, const void *prepared, int64_t query,
                       struct smelt__finding *finding);
int64_t smelt__dk_choose(const struct smelt__placed *placed, int64_t most, int64_t *units);
int64_t smelt__dv_choose(const struct smelt__placed *placed, int64_t most, int64_t *units);
void smelt__dk_compare(const struct smelt__placed *placed, const void *prepared, int64_t key,
                       struct smelt__finding *finding);
void smelt__dv_compare(const struct smelt__placed *placed, const void *prepared, int64_t key,
                       struct smelt__finding *finding);
#define SMELT__DQ_COMPARISON(dq, nothing, B, T)                                                    \
    {                                                                                              \
        SMELT__UNITS("query", "head", B, T), SMELT__GRAD_JUDGED("dq", dq, nothing),                \
            .wanted = smelt__query_is_computed, .compare = smelt__dq_compare                       \
    }
/* `which`: dk or dv; `name`: the tensor's name; `...`: the symbols whose product is the number of keys. */
#define SMELT__KEY_COMPARISON(which, name, outputs, nothing, ...)                                  \
    {                                                                                              \
        SMELT__UNITS("key", "part", __VA_ARGS__), SMELT__GRAD_JUDGED(name, outputs, nothing),      \
            .choose = smelt__##which##_choose, .prepare = smelt__listed_queries, .release = free,  \
            .compare = smelt__##which##_compare                                                    \
    }

/* dsink, by head. */
enum { SMELT__DSINK_FINITE, SMELT__DSINK_UNUSED };
int64_t smelt__dsink_count(const struct smelt__problem *problem);
void smelt__dsink_compare(const struct smelt__placed *placed, const void *prepared, int64_t head,
                          struct smelt__finding *finding);
/* The bar: the rounding error of an fp32 sum, relative to its terms' sizes and those of each delta. */
#define SMELT__DSINK_COMPARISON(dsink)                                                             \
    {                                                                                              \
        .unit = "head", .part = "part",                                                            \
        SMELT__METRIC_ROWS({"relative_error", "dsink", "dsink",                                    \
                            "error of dsink, relative to its terms,", SMELT__LARGEST, dsink}),     \
        SMELT__RULE_ROWS([SMELT__DSINK_FINITE] = {"dsink_finite", dsink,                           \
                                                  "dsink is NaN, infinite or not written"},        \
                         [SMELT__DSINK_UNUSED] = {"unused_sink", dsink,                            \
                                                  "dsink of a head whose sink takes nothing is "   \
                                                  "not 0"}),                                       \
        .count = smelt__dsink_count, .prepare = smelt__listed_queries, .release = free,            \
        .compare = smelt__dsink_compare, .bars = {                                                 \
            2e-5                                                                                   \
        }                                                                                          \
    }

/* ---- the target, attention's probabilities summed over heads --------------------------------- */

enum { SMELT__TARGET_RELATIVE, SMELT__TARGET_SCORE };
enum { SMELT__TARGET_NUMBER, SMELT__TARGET_MASKED };

int64_t smelt__target_count(const struct smelt__problem *problem);
int smelt__target_is_computed(const struct smelt__problem *problem, int64_t unit);
void smelt__target_compare(const struct smelt__placed *placed, const void *prepared, int64_t unit,
                           struct smelt__finding *finding);
void smelt__target_judge(const struct smelt__problem *problem, int64_t compared,
                         struct smelt__metric_result *results);
/* `target`: the set of outputs; `list`: the word for a list in messages. */
#define SMELT__TARGET_COMPARISON(target, list)                                                     \
    {                                                                                              \
        .unit = (list), .part = "slot", .count = smelt__target_count,                              \
        SMELT__METRIC_ROWS([SMELT__TARGET_RELATIVE] = {"relative_error", "target",                 \
                                                       "target, relative",                         \
                                                       "error of a slot, relative to the " list    \
                                                       "'s sum,",                                  \
                                                       SMELT__LARGEST, target},                    \
                           [SMELT__TARGET_SCORE] = {"", "largest_score", NULL, "score",            \
                                                    SMELT__LARGEST, 0}),                           \
        SMELT__RULE_ROWS([SMELT__TARGET_NUMBER] =                                                  \
                             {"number", target,                                                    \
                              "a slot's target is NaN, infinite, negative or not written"},        \
                         [SMELT__TARGET_MASKED] = {"masked_slot", target,                          \
                                                   "the target of a masked slot is not 0"}),       \
        .wanted = smelt__target_is_computed, .compare = smelt__target_compare,                     \
        .judge = smelt__target_judge                                                               \
    }
