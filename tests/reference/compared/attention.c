/* The requirements on the outputs of sparse_attn and sparse_scores: see compared.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compared.h"
#include "ops/sparse_attn_table.h"
#include "reference/operators.h"
#include "smelt/kernels.h"
#include "tables.h"

/* A score's error changes its probability by the same relative amount. */
static const double BY_SCORE = 4.3e-6;

static const struct smelt__problem_options attention_problems[] = {
    {.batches = 2,
     .tokens = 10,
     .rows = 50,
     .lists = SMELT__LISTS_ADVERSARIAL,
     .topk_length = 1,
     .strided = 1,
     .max_logits = 1},
    {.batches = 2,
     .tokens = 7,
     .rows = 60,
     .lists = SMELT__LISTS_CAUSAL,
     .query_list = SMELT__QUERY_LIST_PARTIAL,
     .dkv = SMELT__DKV_FP32},
    {.tokens = 9,
     .rows = 70,
     .lists = SMELT__LISTS_RANDOM,
     .spiky = 1,
     .strided = 1,
     .scale = 0.3F,
     .max_logits = 1,
     .dkv = SMELT__DKV_ADD},
};

/* ---- forward --------------------------------------------------------------------------------- */

static const char *const attention_specs[] = {"sparse_attn:heads=3,dqk=64,dv=64,topk=24",
                                              "sparse_attn:heads=3,dqk=128,dv=64,topk=24,sink=1",
                                              NULL};

static const struct smelt__sparse_attn_spec *attn_of(const struct bench *bench) {
    return bench->spec.spec;
}

/* own: [query, head, dv], out computed with absolute values. */
static void prepare_forward(struct bench *bench) {
    const struct smelt__sparse_attn_spec *spec = attn_of(bench);
    const int64_t queries = bench->problem.options.batches * bench->problem.options.tokens;
    const int64_t each = (int64_t)spec->heads * spec->dv;
    bench->own = calloc((size_t)(queries * each), sizeof *bench->own);
    for (int64_t query = 0; query < queries; query++) {
        double largest = 0;
        const struct smelt__sparse_attn_results results = {.max_abs = &largest,
                                                           .out_terms = bench->own + query * each};
        if (bench->problem.listed && !bench->problem.listed[query])
            continue;
        assert_int_equal(
            smelt__sparse_attn_reference(spec, bench->problem.args, &query, 1, &results), 0);
        bench->largest[0] = fmax(bench->largest[0], largest);
    }
}

static void size_of_element(const struct bench *bench, const struct piece *piece, double *sizes) {
    const struct smelt__sparse_attn_spec *spec = attn_of(bench);
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
    return 4e-3 + 4e-3 / (double)(bench->compared[0] * attn_of(bench)->heads) + by_score(bench);
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
    return 5e-5 * fmax(1, (double)bench->problem.options.scale * sqrt(attn_of(bench)->dqk)) +
           by_score(bench);
}

static const struct compared_metric forward_metrics[] = {
    {"out", ALL_PIECES, size_of_row, bar_of_out, 0, {"out"}},
    {"out_row", EACH_PIECE, size_of_row, bar_of_row, 0, {"out"}},
    {"out_element", EACH_ELEMENT, size_of_element, bar_of_element, 0, {"out"}},
    {"lse", EACH_ELEMENT, size_is_1, bar_of_lse, 0, {"lse"}},
    {"max_logits", EACH_ELEMENT, size_is_1, bar_of_lse, 0, {"max_logits"}},
    {0},
};

static int64_t count_valid(const struct bench *bench, int64_t query) {
    return smelt__sparse_attn_valid_rows(attn_of(bench), bench->problem.args, query, NULL);
}

static int is_empty(const struct bench *bench, const struct piece *piece, int64_t element) {
    (void)element;
    return count_valid(bench, piece->unit) == 0;
}

static int is_single(const struct bench *bench, const struct piece *piece, int64_t element) {
    (void)element;
    return !attn_of(bench)->sink && count_valid(bench, piece->unit) == 1;
}

static const struct compared_rule forward_rules[] = {
    {"empty_query", {"out"}, ZERO, is_empty},
    {"finite", {"out"}, FINITE, NULL},
    {"single_slot", {"out"}, EXACT, is_single},
    {0},
};

/* The log-sum-exp of an empty row is -inf; any other number has an infinite error. */
static void plant_empty(struct bench *bench) {
    static const char *const names[] = {"lse", "max_logits"};
    for (int i = 0; i < bench->piece_count; i++)
        for (int k = 0; k < 2; k++) {
            const struct piece *piece = &bench->pieces[i];
            if (bench_tensor(bench, names[k]) != piece->tensor || !is_empty(bench, piece, 0))
                continue;
            bench_set(bench, piece->tensor, piece->first, -3e38);
            expect_refused(bench, piece, names[k]);
            bench_set(bench, piece->tensor, piece->first, INFINITY);
            expect_refused(bench, piece, names[k]);
        }
}

/* ---- backward -------------------------------------------------------------------------------- */

static const char *const backward_specs[] = {
    "sparse_attn:heads=3,dqk=64,dv=64,topk=24,sink=1,passes=backward",
    "sparse_attn:heads=2,dqk=128,dv=64,topk=24,sink=1,passes=backward,deterministic=1", NULL};

/* own: each piece's size without rounding, and the additional error that is permitted. */
static void prepare_backward(struct bench *bench) {
    const struct smelt__sparse_attn_spec *spec = attn_of(bench);
    const smelt_sparse_attn_grad_args *args = bench->problem.args;
    const int64_t queries = bench->problem.options.batches * bench->problem.options.tokens;
    int64_t listed[MOST_NUMBERS], count = 0;
    double grads[MOST_NUMBERS], spread[MOST_NUMBERS], cancelled[MOST_NUMBERS], largest;
    bench->own = calloc((size_t)bench->piece_count * 2, sizeof *bench->own);
    for (int64_t query = 0; query < queries; query++)
        for (int times = bench->problem.listed ? bench->problem.listed[query] : 1; times > 0;
             times--)
            listed[count++] = query;
    for (int i = 0; i < bench->piece_count; i++) {
        const struct piece *piece = &bench->pieces[i];
        double *const own = bench->own + 2 * i, terms;
        int at = 0;
        const struct smelt__sparse_attn_row_grads results = {grads, spread, cancelled, &largest};
        if (piece->comparison == 2) {
            assert_int_equal(smelt__sparse_attn_dsink(spec, args, listed, count, (int)piece->unit,
                                                      grads, &terms),
                             0);
            own[0] = terms;
            continue;
        }
        if (piece->comparison == 0) {
            assert_int_equal(smelt__sparse_attn_dq(spec, args, &piece->unit, 1, &results), 0);
            at = piece->number;
        } else {
            assert_int_equal(
                smelt__sparse_attn_dkv(spec, args, listed, count, &piece->unit, 1, &results), 0);
        }
        bench->largest[piece->comparison] = fmax(bench->largest[piece->comparison], largest);
        own[0] = fmax(norm_of_numbers(grads + (int64_t)at * spec->dqk, spec->dqk), spread[at]);
        own[1] = 2e-6 * cancelled[at];
    }
}

static double bar_of_dq(const struct bench *bench, double parts) {
    return 4e-3 + 4e-3 / fmax(parts, 1) + BY_SCORE * bench->largest[0];
}

static double bar_of_dq_row(const struct bench *bench, double parts) {
    (void)parts;
    return 8e-3 + BY_SCORE * bench->largest[0];
}

static double bar_of_dkv(const struct bench *bench, double parts) {
    return 4e-3 + 4e-3 / fmax(parts, 1) + BY_SCORE * bench->largest[1];
}

static double bar_of_dkv_row(const struct bench *bench, double parts) {
    (void)parts;
    return 8e-3 + BY_SCORE * bench->largest[1];
}

static void size_of_dsink(const struct bench *bench, const struct piece *piece, double *sizes) {
    *sizes = fmax(bench->own[2 * (piece - bench->pieces)], 1e-30);
}

static double bar_of_dsink(const struct bench *bench, double parts) {
    (void)bench, (void)parts;
    return 2e-5;
}

#define DKV                                                                                        \
    { "dkv", "dkv_fp32", "dkv_sum" }

static const struct compared_metric backward_metrics[] = {
    {"dq", ALL_PIECES, size_of_all_grads, bar_of_dq, 0, {"dq"}},
    {"dq_row", EACH_PIECE, size_of_grads, bar_of_dq_row, 0, {"dq"}},
    {"dkv", ALL_PIECES, size_of_all_grads, bar_of_dkv, 0, DKV},
    {"dkv_row", EACH_PIECE, size_of_grads, bar_of_dkv_row, 0, DKV},
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
    {"dkv_finite", DKV, FINITE, NULL},
    {"dkv_nothing", DKV, ZERO, is_nothing},
    {"dsink_finite", {"dsink"}, FINITE, NULL},
    {"unused_sink", {"dsink"}, ZERO, is_unused},
    {0},
};

static const struct compared_pass passes[] = {
    {SMELT_PASS_FORWARD, attention_specs, attention_problems, 3, forward_metrics, forward_rules,
     prepare_forward, plant_empty},
    {SMELT_PASS_BACKWARD, backward_specs, attention_problems, 3, backward_metrics, backward_rules,
     prepare_backward, NULL},
};

const struct compared compared_sparse_attn = {"sparse_attn", passes, 2};

/* ---- sparse_scores --------------------------------------------------------------------------- */

static const char *const scores_specs[] = {"sparse_scores:heads=3,dqk=64,dv=64,topk=24",
                                           "sparse_scores:heads=2,dqk=128,dv=64,topk=24,sink=1",
                                           NULL};

static void prepare_scores(struct bench *bench) {
    for (int i = 0; i < bench->piece_count; i++) {
        const struct piece *piece = &bench->pieces[i];
        double target[MOST_NUMBERS], largest;
        assert_int_equal(smelt__sparse_scores_reference(bench->spec.spec, bench->problem.args,
                                                        piece->unit, target, &largest),
                         0);
        bench->largest[0] = fmax(bench->largest[0], largest);
    }
}

static const struct compared_pass scores_passes[] = {{SMELT_PASS_FORWARD, scores_specs,
                                                      attention_problems, 3, target_metrics,
                                                      target_rules, prepare_scores, NULL}};

const struct compared compared_sparse_scores = {"sparse_scores", scores_passes, 1};
