/* What the outputs of dense attention's operators are held to: see compared.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compared.h"
#include "reference/operators.h"
#include "smelt/kernels.h"
#include "tables.h"

static const struct smelt__problem_options window_problems[] = {
    {.tokens = 24, .rows = 60, .lists = SMELT__LISTS_ADVERSARIAL, .strided = 1},
    {.tokens = 9, .rows = 50, .lists = SMELT__LISTS_RANDOM},
};

/* ---- dense_lse ------------------------------------------------------------------------------- */

/* own: of each piece 1 + the largest score, by which its error is judged. */
static void prepare_lse(struct bench *bench) {
    smelt_dense_lse_args args;
    smelt__problem_arguments(&bench->problem, &args);
    bench->own = calloc((size_t)bench->piece_count, sizeof *bench->own);
    for (int i = 0; i < bench->piece_count; i++) {
        double lse, max_abs;
        assert_int_equal(smelt__dense_lse_reference(bench->problem.spec, &args,
                                                    bench->pieces[i].unit,
                                                    bench->pieces[i].number, &lse, &max_abs),
                         0);
        bench->own[i] = 1 + max_abs;
    }
}

static void size_of_lse(const struct bench *bench, const struct piece *piece, double *sizes) {
    *sizes = bench->own[piece - bench->pieces];
}

static double bar_of_lse(const struct bench *bench, double parts) {
    (void)bench, (void)parts;
    return 4e-6;
}

static const struct compared_metric lse_metrics[] = {
    {"lse", EACH_ELEMENT, size_of_lse, bar_of_lse, 0, {"lse"}},
    {0},
};

static const struct compared_rule lse_rules[] = {
    {"empty", {"lse"}, MINUS_INF, NULL},
    {0},
};

static const char *const lse_specs[] = {"dense_lse:heads=3,dqk=64",
                                        "dense_lse:heads=4,dqk=80,kv_heads=2", NULL};

static const struct compared_pass lse_passes[] = {
    {SMELT_PASS_FORWARD, lse_specs, window_problems, 2, lse_metrics, lse_rules, prepare_lse, NULL}};

const struct compared compared_dense_lse = {"dense_lse", lse_passes, 1};
