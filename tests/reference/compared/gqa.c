/* What the outputs of sparse_gqa and sparse_gqa_scores are held to: see compared.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compared.h"
#include "ops/sparse_gqa_table.h"
#include "reference/operators.h"
#include "smelt/kernels.h"
#include "tables.h"

/* An error of a score moves its probability by as much. */
static const double BY_SCORE = 4.3e-6;

enum { LIMITS_CAUSAL = 1, LIMITS_ODD }; /* the own option */

static const struct smelt__problem_options problems[] = {
    {.batches = 2,
     .tokens = 10,
     .rows = 50,
     .lists = SMELT__LISTS_ADVERSARIAL,
     .topk_length = 1,
     .strided = 1,
     .own = {LIMITS_ODD}},
    {.batches = 2,
     .tokens = 7,
     .rows = 60,
     .lists = SMELT__LISTS_CAUSAL,
     .query_list = SMELT__QUERY_LIST_PARTIAL,
     .own = {LIMITS_CAUSAL},
     .dkv = SMELT__DKV_FP32},
    {.tokens = 9,
     .rows = 70,
     .lists = SMELT__LISTS_RANDOM,
     .spiky = 1,
     .strided = 1,
     .scale = 0.3F,
     .dkv = SMELT__DKV_ADD},
};

static const char *const specs[] = {
    "sparse_gqa:heads=4,kv_heads=2,dqk=64,dv=64,topk=9,granularity=4,lists=kv",
    "sparse_gqa:heads=3,kv_heads=1,dqk=128,dv=64,topk=24,granularity=1,sink=1", NULL};

static const struct smelt__sparse_gqa_spec *gqa_of(const struct bench *bench) {
    return bench->spec.spec;
}

static smelt_sparse_gqa_args inputs_of(const struct bench *bench) {
    smelt_sparse_gqa_args inputs;
    smelt__problem_arguments(&bench->problem, &inputs);
    return inputs;
}

/* own: [query, head, dv], as out would be without numbers below 0. */
static void prepare(struct bench *bench) {
    const struct smelt__sparse_gqa_spec *const spec = gqa_of(bench);
    const smelt_sparse_gqa_args inputs = inputs_of(bench);
    const int64_t queries = bench->problem.options.batches * bench->problem.options.tokens;
    const int64_t each = (int64_t)spec->heads * spec->dv;
    double out[MOST_NUMBERS], lse[MOST_NUMBERS], largest;
    bench->own = calloc((size_t)(queries * each), sizeof *bench->own);
    for (int64_t query = 0; query < queries; query++) {
        const struct smelt__sparse_gqa_results results = {out, bench->own + query * each, lse,
                                                          &largest};
        if (bench->problem.listed && !bench->problem.listed[query])
            continue;
        assert_int_equal(smelt__sparse_gqa_reference(spec, &inputs, query, &results), 0);
        bench->largest[0] = fmax(bench->largest[0], largest);
    }
}

static void size_of_element(const struct bench *bench, const struct piece *piece, double *sizes) {
    const struct smelt__sparse_gqa_spec *const spec = gqa_of(bench);
    const double *terms = bench->own + (piece->unit * spec->heads + piece->number) * spec->dv;
    for (int64_t i = 0; i < piece->count; i++)
        sizes[i] = fmax(terms[i] + fabs(bench->expected[piece->tensor][piece->first + i]), 1e-30);
}

static void size_of_row(const struct bench *bench, const struct piece *piece, double *sizes) {
    *sizes = fmax(norm_of(bench, piece), 1e-30);
}

static double by_score(const struct bench *bench) {
    return BY_SCORE * bench->largest[0];
}

static double bar_of_out(const struct bench *bench, double parts) {
    (void)parts;
    return 4e-3 + 4e-3 / (double)(bench->compared[0] * gqa_of(bench)->heads) + by_score(bench);
}

static double bar_of_row(const struct bench *bench, double parts) {
    (void)parts;
    return 8e-3 + by_score(bench);
}

static double bar_of_element(const struct bench *bench, double parts) {
    (void)parts;
    return 1.1 / 256 + by_score(bench);
}

static double bar_of_lse(const struct bench *bench, double parts) {
    (void)parts;
    return 5e-5 * fmax(1, (double)bench->problem.options.scale * sqrt(gqa_of(bench)->dqk)) +
           by_score(bench);
}

static const struct compared_metric metrics[] = {
    {"out", ALL_PIECES, size_of_row, bar_of_out, 0, {"out"}},
    {"out_row", EACH_PIECE, size_of_row, bar_of_row, 0, {"out"}},
    {"out_element", EACH_ELEMENT, size_of_element, bar_of_element, 0, {"out"}},
    {"lse", EACH_ELEMENT, size_is_1, bar_of_lse, 0, {"lse"}},
    {0},
};

/* `number` of the piece: the head. */
static int is_empty(const struct bench *bench, const struct piece *piece, int64_t element) {
    const struct smelt__sparse_gqa_spec *const spec = gqa_of(bench);
    const smelt_sparse_gqa_args inputs = inputs_of(bench);
    const int64_t list = spec->lists ? piece->number / (spec->heads / spec->kv_heads) : 0;
    (void)element;
    return smelt__sparse_gqa_rows(spec, &inputs, piece->unit, list, NULL) == 0;
}

static const struct compared_rule rules[] = {
    {"empty_query", {"out"}, ZERO, is_empty},
    {"finite", {"out"}, FINITE, NULL},
    {0},
};

/* The log-sum-exp of nothing is -inf, and any other number infinitely wrong. */
static void plant_empty(struct bench *bench) {
    for (int i = 0; i < bench->piece_count; i++) {
        const struct piece *piece = &bench->pieces[i];
        if (bench_tensor(bench, "lse") != piece->tensor || !is_empty(bench, piece, 0))
            continue;
        bench_set(bench, piece->tensor, piece->first, -3e38);
        expect_refused(bench, piece, "lse");
        bench_set(bench, piece->tensor, piece->first, INFINITY);
        expect_refused(bench, piece, "lse");
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

static const char *const backward_specs[] = {
    "sparse_gqa:heads=4,kv_heads=2,dqk=64,dv=64,topk=9,granularity=4,lists=kv,sink=1,"
    "passes=backward",
    "sparse_gqa:heads=3,kv_heads=1,dqk=128,dv=64,topk=24,granularity=1,sink=1,passes=backward,"
    "deterministic=1",
    NULL};

enum { BY_QUERY, DK, DV, DSINK }; /* comparisons */

/* The expected gradient of a piece of dq, dk or dv: `numbers` are its spread and cancelled. */
static void grads_of(struct bench *bench, const struct piece *piece, const int64_t *listed,
                     int64_t count, double *grads, double *numbers) {
    const struct smelt__sparse_gqa_spec *const spec = gqa_of(bench);
    double other[MOST_NUMBERS], spread[MOST_NUMBERS], cancelled[MOST_NUMBERS], dv_numbers[3],
        largest;
    smelt_sparse_gqa_grad_args args;
    smelt__problem_arguments(&bench->problem, &args);
    if (piece->comparison == BY_QUERY) {
        double *const all = malloc((size_t)(spec->heads * spec->dqk) * sizeof *all);
        const struct smelt__sparse_attn_row_grads results = {all, spread, cancelled, &largest};
        assert_non_null(all);
        assert_int_equal(smelt__sparse_gqa_dq(spec, &args, piece->unit, &results), 0);
        for (int d = 0; d < spec->dqk; d++)
            grads[d] = all[piece->number * spec->dqk + d];
        numbers[0] = spread[piece->number];
        numbers[1] = cancelled[piece->number];
        free(all);
    } else {
        const int of_values = piece->comparison == DV;
        const struct smelt__sparse_attn_row_grads own = {grads, &numbers[0], &numbers[1], &largest};
        const struct smelt__sparse_attn_row_grads rest = {other, &dv_numbers[0], &dv_numbers[1],
                                                          &dv_numbers[2]};
        assert_int_equal(smelt__sparse_gqa_key(spec, &args, listed, count, piece->unit,
                                               of_values ? &rest : &own, of_values ? &own : &rest),
                         0);
    }
    bench->largest[piece->comparison] = fmax(bench->largest[piece->comparison], largest);
}

/* own: each piece's size without rounding, and the additional error that is permitted. */
static void prepare_backward(struct bench *bench) {
    const struct smelt__sparse_gqa_spec *const spec = gqa_of(bench);
    const int64_t queries = bench->problem.options.batches * bench->problem.options.tokens;
    int64_t listed[MOST_NUMBERS], count = 0;
    smelt_sparse_gqa_grad_args args;
    smelt__problem_arguments(&bench->problem, &args);
    bench->own = calloc((size_t)bench->piece_count * 2, sizeof *bench->own);
    for (int64_t query = 0; query < queries; query++)
        for (int times = bench->problem.listed ? bench->problem.listed[query] : 1; times > 0;
             times--)
            listed[count++] = query;
    for (int i = 0; i < bench->piece_count; i++) {
        const struct piece *piece = &bench->pieces[i];
        double *const own = bench->own + 2 * i, grads[MOST_NUMBERS], numbers[2];
        if (piece->comparison == DSINK) {
            assert_int_equal(
                smelt__sparse_gqa_dsink(spec, &args, listed, count, (int)piece->unit, grads, own),
                0);
            continue;
        }
        grads_of(bench, piece, listed, count, grads, numbers);
        own[0] = fmax(norm_of_numbers(grads, piece->comparison == DV ? spec->dv : spec->dqk),
                      numbers[0]);
        own[1] = 2e-6 * numbers[1];
    }
}

#define BARS(name, number)                                                                         \
    static double bar_of_##name(const struct bench *bench, double parts) {                         \
        return 4e-3 + 4e-3 / fmax(parts, 1) + BY_SCORE * bench->largest[number];                   \
    }                                                                                              \
    static double bar_of_##name##_row(const struct bench *bench, double parts) {                   \
        (void)parts;                                                                               \
        return 8e-3 + BY_SCORE * bench->largest[number];                                           \
    }
BARS(dq, BY_QUERY)
BARS(dk, DK)
BARS(dv, DV)

static void size_of_dsink(const struct bench *bench, const struct piece *piece, double *sizes) {
    *sizes = fmax(bench->own[2 * (piece - bench->pieces)], 1e-30);
}

static double bar_of_dsink(const struct bench *bench, double parts) {
    (void)bench, (void)parts;
    return 2e-5;
}

#define OF_DK                                                                                      \
    { "dk", "dk_fp32", "dk_sum" }
#define OF_DV                                                                                      \
    { "dv", "dv_fp32", "dv_sum" }

static const struct compared_metric backward_metrics[] = {
    {"dq", ALL_PIECES, size_of_all_grads, bar_of_dq, 0, {"dq"}},
    {"dq_row", EACH_PIECE, size_of_grads, bar_of_dq_row, 0, {"dq"}},
    {"dk", ALL_PIECES, size_of_all_grads, bar_of_dk, 0, OF_DK},
    {"dk_row", EACH_PIECE, size_of_grads, bar_of_dk_row, 0, OF_DK},
    {"dv", ALL_PIECES, size_of_all_grads, bar_of_dv, 0, OF_DV},
    {"dv_row", EACH_PIECE, size_of_grads, bar_of_dv_row, 0, OF_DV},
    {"dsink", EACH_ELEMENT, size_of_dsink, bar_of_dsink, 0, {"dsink"}},
    {0},
};

static int is_unused(const struct bench *bench, const struct piece *piece, int64_t element) {
    (void)element;
    return !(bench->own[2 * (piece - bench->pieces)] > 0);
}

static const struct compared_rule backward_rules[] = {
    {"dq_finite", {"dq"}, FINITE, NULL},
    {"dq_nothing", {"dq"}, ZERO, is_nothing},
    {"dk_finite", OF_DK, FINITE, NULL},
    {"dk_nothing", OF_DK, ZERO, is_nothing},
    {"dv_finite", OF_DV, FINITE, NULL},
    {"dv_nothing", OF_DV, ZERO, is_nothing},
    {"dsink_finite", {"dsink"}, FINITE, NULL},
    {"unused_sink", {"dsink"}, ZERO, is_unused},
    {0},
};

static const struct compared_pass passes[] = {
    {SMELT_PASS_FORWARD, specs, problems, 3, metrics, rules, prepare, plant_empty},
    {SMELT_PASS_BACKWARD, backward_specs, problems, 3, backward_metrics, backward_rules,
     prepare_backward, NULL}};
const struct compared compared_sparse_gqa = {"sparse_gqa", passes, 2};

/* ---- sparse_gqa_scores ----------------------------------------------------------------------- */

static const char *const scores_specs[] = {
    "sparse_gqa_scores:heads=4,kv_heads=2,dqk=64,topk=9,granularity=4,lists=kv",
    "sparse_gqa_scores:heads=4,kv_heads=2,dqk=64,topk=24,granularity=1,sink=1", NULL};

/* Units are lists. */
static void prepare_scores(struct bench *bench) {
    const struct smelt__sparse_gqa_scores_spec *const spec = bench->spec.spec;
    const int64_t lists = spec->lists ? spec->kv_heads : 1;
    smelt_sparse_gqa_scores_args args;
    smelt__problem_arguments(&bench->problem, &args);
    for (int i = 0; i < bench->piece_count; i++) {
        double target[MOST_NUMBERS], largest;
        const int64_t unit = bench->pieces[i].unit;
        assert_int_equal(smelt__sparse_gqa_scores_reference(spec, &args, unit / lists, unit % lists,
                                                            target, &largest),
                         0);
        bench->largest[0] = fmax(bench->largest[0], largest);
    }
}

static const struct compared_pass scores_passes[] = {{SMELT_PASS_FORWARD, scores_specs, problems, 3,
                                                      target_metrics, target_rules, prepare_scores,
                                                      NULL}};
const struct compared compared_sparse_gqa_scores = {"sparse_gqa_scores", scores_passes, 1};
