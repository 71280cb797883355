/* What the outputs of dense attention's operators are held to: see compared.h. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compared.h"
#include "reference/bf16.h"
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
                                                    bench->pieces[i].unit, bench->pieces[i].number,
                                                    &lse, &max_abs),
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

/* ---- indexer_dense_loss ---------------------------------------------------------------------- */

enum { WEIGHTED = 1, EACH_LOSS = 2 }; /* its own options */
enum { MOST_KEYS = 64 };

static const struct smelt__problem_options loss_problems[] = {
    {.tokens = 12,
     .rows = 40,
     .lists = SMELT__LISTS_ADVERSARIAL,
     .strided = 1,
     .own = {[WEIGHTED] = 1, [EACH_LOSS] = 1}},
    {.tokens = 6, .rows = 30, .lists = SMELT__LISTS_CAUSAL, .dkv = SMELT__DKV_FP32},
    {.tokens = 5,
     .rows = 30,
     .lists = SMELT__LISTS_RANDOM,
     .dkv = SMELT__DKV_ADD,
     .own = {[EACH_LOSS] = 1}},
};

/* Errors of a target relative to itself, of a logit relative to its terms' sizes. */
static const double target_error = 2e-5, logit_error = 1e-6;

/* The queries of a group of a problem by the reference, and what their logits' gradients may be off by. */
struct queries {
    struct smelt__indexer_dense_loss_group group;
    smelt_indexer_dense_loss_args args; /* the group's */
    smelt_indexer_bwd_args gradients;
    int64_t slots;          /* of the indexer's keys */
    float *grads, *errors;  /* [T, slots] */
    int32_t *keys;          /* [T, slots] */
    double *losses, *sizes; /* [T] */
};

static double norm_of_bf16(const void *data, int64_t first, int count) {
    double numbers[128];
    for (int i = 0; i < count; i++)
        numbers[i] = (double)smelt__bf16_to_float(((const uint16_t *)data)[first + i]);
    return norm_of_numbers(numbers, count);
}

static void find_query(struct queries *all, int64_t query) {
    const int64_t rows = all->slots;
    const float *const grad_loss = all->args.grad_loss.data;
    double q[MOST_KEYS], p[MOST_KEYS], grad[MOST_KEYS], doubt[MOST_KEYS];
    struct smelt__indexer_dense_loss_query one = {
        .q = q, .p = p, .grad = grad, .doubt = doubt, .keys = all->keys + query * rows};
    assert_int_equal(smelt__indexer_dense_loss_reference(&all->group.spec, &all->args, query, &one),
                     0);
    const double factor = fabs(one.found.weight * (grad_loss ? (double)*grad_loss : 1));
    for (int64_t s = 0; s < rows; s++) {
        const double error = q[s] * (target_error + logit_error * one.terms) + p[s] * target_error;
        all->grads[query * rows + s] = (float)grad[s];
        all->errors[query * rows + s] = (float)(doubt[s] + (one.keys[s] < 0 ? 0 : factor * error));
    }
    all->losses[query] = one.found.loss;
    all->sizes[query] =
        fabs(one.found.weight) * (1 + one.found.terms + logit_error / target_error * one.terms) +
        (double)FLT_MIN;
}

static void open_queries(struct bench *bench, int group, struct queries *all) {
    smelt_indexer_dense_loss_args args;
    smelt__problem_arguments(&bench->problem, &args);
    all->group = smelt__indexer_dense_loss_group(bench->problem.spec, &args, group);
    all->args = all->group.args;
    all->slots = smelt__indexer_dense_loss_keys(&all->group.spec, &args);
    const size_t tokens = (size_t)args.tokens, rows = (size_t)all->slots;
    all->grads = calloc(tokens * rows, sizeof *all->grads);
    all->errors = calloc(tokens * rows, sizeof *all->errors);
    all->keys = calloc(tokens * rows, sizeof *all->keys);
    all->losses = calloc(tokens, sizeof *all->losses);
    all->sizes = calloc(tokens, sizeof *all->sizes);
    for (size_t query = 0; query < tokens; query++)
        find_query(all, (int64_t)query);
    all->gradients = smelt__indexer_dense_loss_gradients(&all->group.spec, &all->args);
    all->gradients.indices = (smelt_const_tensor){all->keys, {all->slots}};
    all->gradients.grad = (smelt_const_tensor){all->grads, {all->slots}};
}

static void close_queries(struct queries *all) {
    free(all->grads);
    free(all->errors);
    free(all->keys);
    free(all->losses);
    free(all->sizes);
}

static double index_weight(const struct queries *all, int64_t query, int64_t head) {
    return fabs(smelt__indexer_weight(&all->args.index_weights, all->group.spec.weights_dtype,
                                      query, (int)head));
}

/* The norm of a row of the indexer's q. */
static double query_norm(const struct queries *all, int64_t query, int64_t head, int dim) {
    const int64_t *const strides = all->args.index_q.strides;
    return norm_of_bf16(all->args.index_q.data, query * strides[0] + head * strides[1], dim);
}

/* Of a query's gradients: errors times norms of keys. */
static double errors_of_query(const struct queries *all, int64_t query, int dim) {
    const int64_t rows = all->slots;
    double sum = 0;
    for (int64_t s = 0; s < rows; s++)
        if (all->errors[query * rows + s] > 0)
            sum += (double)all->errors[query * rows + s] *
                   norm_of_bf16(all->args.index_k.data, s * all->args.index_k.strides[0], dim);
    return sum;
}

/* Of a key's: errors times weights and norms of queries' heads. */
static double errors_of_key(const struct queries *all, int64_t key, int heads, int dim) {
    double sum = 0;
    for (int64_t query = 0; query < all->args.tokens; query++)
        for (int head = 0; head < heads; head++)
            sum += (double)all->errors[query * all->slots + key] * index_weight(all, query, head) *
                   query_norm(all, query, head, dim);
    return sum;
}

/* Two numbers of a head's piece, as tables.h has them; of a number its size. */
static void find_head(const struct queries *all, const struct piece *piece, double *own) {
    const struct smelt__indexer_bwd_spec spec = smelt__indexer_dense_loss_indexer(&all->group.spec);
    const int head = piece->number % spec.heads;
    const double errors = errors_of_query(all, piece->unit, spec.dim);
    double grads[MOST_NUMBERS], dweights, terms;
    struct smelt__indexer_bwd_row row = {.grads = grads};
    assert_int_equal(
        smelt__indexer_bwd_head(&spec, &all->gradients, piece->unit, head, &row, &dweights, &terms),
        0);
    own[1] = row.doubtful + errors * index_weight(all, piece->unit, head);
    own[0] = piece->count > 1
                 ? fmax(norm_of_numbers(grads, spec.dim), row.spread)
                 : terms + errors / target_error * query_norm(all, piece->unit, head, spec.dim);
}

/* The same of a key's, of all groups. */
static void find_key(const struct queries *groups, int count, const struct piece *piece,
                     double *own) {
    double grads[MOST_NUMBERS], sums[MOST_NUMBERS] = {0};
    struct smelt__indexer_bwd_row more = {.grads = grads}, row = {.grads = sums};
    const int dim = groups->group.spec.index_dim;
    own[1] = 0;
    for (const struct queries *all = groups; all < groups + count; all++) {
        const struct smelt__indexer_bwd_spec spec =
            smelt__indexer_dense_loss_indexer(&all->group.spec);
        assert_int_equal(smelt__indexer_bwd_key(&spec, &all->gradients, piece->unit, &more), 0);
        smelt__indexer_dense_loss_add(&more, dim, &row);
        own[1] += errors_of_key(all, piece->unit, spec.heads, dim);
    }
    own[0] = fmax(norm_of_numbers(sums, dim), row.spread);
    own[1] += row.doubtful;
}

static void prepare_dense_loss(struct bench *bench) {
    enum { MOST_GROUPS = 4 };
    const struct smelt__indexer_dense_loss_spec *spec = bench->problem.spec;
    const int losses = bench_tensor(bench, "losses"), loss = bench_tensor(bench, "loss");
    struct queries groups[MOST_GROUPS];
    double size = (double)FLT_MIN;
    assert_true(spec->groups <= MOST_GROUPS);
    for (int group = 0; group < spec->groups; group++) {
        open_queries(bench, group, &groups[group]);
        for (int64_t query = 0; query < groups[group].args.tokens; query++)
            size += groups[group].sizes[query];
    }
    bench->own = calloc((size_t)bench->piece_count * 2, sizeof *bench->own);
    for (int i = 0; i < bench->piece_count; i++) {
        const struct piece *piece = &bench->pieces[i];
        double *const own = bench->own + 2 * i;
        if (piece->tensor == loss)
            own[0] = size;
        else if (piece->tensor == losses)
            own[0] = groups[piece->number].sizes[piece->unit];
        else if (piece->comparison == 0)
            find_head(&groups[piece->number / (spec->index_heads / spec->groups)], piece, own);
        else
            find_key(groups, spec->groups, piece, own);
    }
    for (int group = 0; group < spec->groups; group++)
        close_queries(&groups[group]);
}

static void size_of_number(const struct bench *bench, const struct piece *piece, double *sizes) {
    *sizes = bench->own[2 * (piece - bench->pieces)];
}

static double bar_of_number(const struct bench *bench, double parts) {
    (void)bench, (void)parts;
    return target_error;
}

static double bar_of_dweights(const struct bench *bench, double parts) {
    const struct smelt__indexer_dense_loss_spec *spec = bench->spec.spec;
    return bar_of_number(bench, parts) + (spec->weights_dtype ? 1 / 256.0 : 0);
}

static double bar_of_rows(const struct bench *bench, double parts) {
    (void)bench;
    return 4e-3 + 4e-3 / fmax(parts, 1);
}

static double bar_of_row(const struct bench *bench, double parts) {
    (void)bench, (void)parts;
    return 8e-3;
}

#define DK                                                                                         \
    { "index_dk", "index_dk_fp32", "index_dk_sum" }

static const struct compared_metric loss_metrics[] = {
    {"dq", ALL_PIECES, size_of_all_grads, bar_of_rows, 0, {"index_dq"}},
    {"dq_row", EACH_PIECE, size_of_grads, bar_of_row, 0, {"index_dq"}},
    {"dweights", EACH_ELEMENT, size_of_number, bar_of_dweights, 0, {"index_dweights"}},
    {"losses", EACH_ELEMENT, size_of_number, bar_of_number, 0, {"losses"}},
    {"dk", ALL_PIECES, size_of_all_grads, bar_of_rows, 0, DK},
    {"dk_row", EACH_PIECE, size_of_grads, bar_of_row, 0, DK},
    {"loss", EACH_ELEMENT, size_of_number, bar_of_number, 0, {"loss"}},
    {0},
};

static const struct compared_rule loss_rules[] = {
    {"dq_finite", {"index_dq"}, FINITE, NULL},
    {"dq_nothing", {"index_dq"}, ZERO, is_nothing},
    {"dk_finite", DK, FINITE, NULL},
    {"dk_nothing", DK, ZERO, is_nothing},
    {0},
};

/* Neither NaN nor an infinity is any of these; of a query without a loss the gradient of a weight is
 * 0, and anything else infinitely wrong. */
static void plant_no_number(struct bench *bench) {
    static const char *const names[][2] = {
        {"losses", "losses"}, {"loss", "loss"}, {"index_dweights", "dweights"}};
    static const double values[] = {(double)NAN, INFINITY, 1e-30};
    for (int i = 0; i < bench->piece_count; i++)
        for (int k = 0; k < 3; k++)
            for (int n = 0; n < 3; n++) {
                const struct piece *piece = &bench->pieces[i];
                if (bench_tensor(bench, names[k][0]) != piece->tensor ||
                    (n == 2 && (k < 2 || bench->own[2 * i] > 0)))
                    continue;
                bench_set(bench, piece->tensor, piece->first, values[n]);
                expect_refused(bench, piece, names[k][1]);
            }
}

static const char *const loss_specs[] = {
    "indexer_dense_loss:heads=2,dqk=64,index_heads=3,index_dim=64,weights_dtype=bf16",
    "indexer_dense_loss:heads=4,dqk=80,kv_heads=2,index_heads=1,index_dim=128,deterministic=1",
    "indexer_dense_loss:heads=2,dqk=64,index_heads=1,index_dim=64,granularity=4",
    "indexer_dense_loss:heads=4,dqk=64,kv_heads=2,index_heads=2,index_dim=64,groups=2,block_max=8,"
    "activation=none",
    NULL};

static const struct compared_pass loss_passes[] = {{SMELT_PASS_FORWARD, loss_specs, loss_problems,
                                                    3, loss_metrics, loss_rules, prepare_dense_loss,
                                                    plant_no_number}};

const struct compared compared_indexer_dense_loss = {"indexer_dense_loss", loss_passes, 1};
