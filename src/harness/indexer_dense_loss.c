/* The harness's row of indexer_dense_loss. */
#include "smelt/indexer_dense_loss.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "harness/dense.h"
#include "harness/footprint.h"
#include "harness/grad_rows.h"
#include "harness/indexer.h"
#include "harness/normal.h"
#include "harness/operator.h"
#include "harness/parallel.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "harness/windows.h"
#include "ops/indexer_dense_loss_table.h"
#include "reference/bf16.h"

#define TENSOR(name) SMELT__INDEXER_DENSE_LOSS_##name

/* ---- options --------------------------------------------------------------------------------- */

enum { LOSS_ALONE, WEIGHTED, EACH_LOSS }; /* own options by number */

static const char *const options[] = {"width", "documents",       "lists", "scale",
                                      "dkv",   "workspace-limit", NULL};

#define OWN(number) offsetof(struct smelt__problem_options, own[number])
static const struct smelt__option own_options[] = {
    {"loss-alone", SMELT__OPTION_FLAG, OWN(LOSS_ALONE), 0, 0, NULL, "request no gradients", 0},
    {"weighted", SMELT__OPTION_FLAG, OWN(WEIGHTED), 0, 0, NULL, "give weights and grad_loss too",
     0},
    {"each-loss", SMELT__OPTION_FLAG, OWN(EACH_LOSS), 0, 0, NULL, "request each query's loss too",
     0},
};

static const struct smelt__problem_options kinds[] = {
    {.lists = SMELT__LISTS_CAUSAL},
    {.lists = SMELT__LISTS_RANDOM,
     .dkv = SMELT__DKV_FP32,
     .own = {[WEIGHTED] = 1, [EACH_LOSS] = 1}},
    {.lists = SMELT__LISTS_WINDOW, .own = {[EACH_LOSS] = 1}},
    {.lists = SMELT__LISTS_FULL, .own = {[LOSS_ALONE] = 1, [WEIGHTED] = 1, [EACH_LOSS] = 1}},
    {.lists = SMELT__LISTS_ADVERSARIAL,
     .dkv = SMELT__DKV_ADD,
     .own = {[WEIGHTED] = 1, [EACH_LOSS] = 1}},
};

/* ---- problems -------------------------------------------------------------------------------- */

enum { STREAM_LSE = 311, STREAM_Q, STREAM_K, STREAM_WEIGHTS, STREAM_WEIGHT, STREAM_SUM };

static struct smelt__dense_inputs inputs_of(const struct smelt__problem *problem) {
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    return (struct smelt__dense_inputs){{spec->heads, spec->dqk, spec->kv_heads},
                                        TENSOR(Q),
                                        TENSOR(K),
                                        TENSOR(WINDOW_BEGIN),
                                        TENSOR(WINDOW_END)};
}

static struct smelt__key_rows dk_rows(const struct smelt__problem *problem) {
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    return (struct smelt__key_rows){TENSOR(INDEX_DK), TENSOR(INDEX_DK_FP32), TENSOR(INDEX_DK_SUM),
                                    spec->index_dim};
}

static void shape(struct smelt__problem *problem) {
    smelt_indexer_dense_loss_args *args = problem->args;
    args->query_weight = problem->options.own[WEIGHTED] ? 2.0F : 1.0F;
    if (problem->options.seed % 2)
        args->causal_limit = smelt__windows_causal_limit(&problem->options);
}

static int given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__key_rows dk = dk_rows(problem);
    const int64_t *const own = problem->options.own;
    switch (tensor) {
    case TENSOR(LOSSES):
        return own[EACH_LOSS] != 0;
    case TENSOR(WEIGHT):
    case TENSOR(GRAD_LOSS):
        return own[WEIGHTED] != 0;
    case TENSOR(INDEX_DQ):
    case TENSOR(INDEX_DWEIGHTS):
        return !own[LOSS_ALONE];
    default:
        return !own[LOSS_ALONE] && smelt__key_rows_given(problem, &dk, tensor);
    }
}

static float *numbers(const struct smelt__problem *problem, int tensor, int64_t query,
                      int64_t head) {
    return (float *)smelt__problem_data(problem, tensor) +
           smelt__problem_at(problem, tensor, query, head, 0);
}

/* With adversarial windows, an addend to a query's lse: the targets' sum is then 0 or infinite. */
static float lse_addend(const struct smelt__problem *problem, int64_t query) {
    if (problem->options.lists != SMELT__LISTS_ADVERSARIAL || query % 5 != 1)
        return 0;
    return query % 2 ? 300.0F : -300.0F;
}

/* About what attention's would be: of normally distributed scores, and as wrong as a head's may be
 * that another kernel computed; NaN where the window is empty. */
static void fill_lse(struct smelt__problem *problem, int64_t query, int heads) {
    const struct smelt__dense_inputs inputs = inputs_of(problem);
    struct smelt__random random =
        smelt__random_at(problem->options.seed, STREAM_LSE, (uint64_t)query);
    int32_t begin, end;
    const int64_t keys =
        smelt__windows_of(problem, inputs.window_begin, inputs.window_end, query, &begin, &end);
    for (int head = 0; head < heads; head++)
        *numbers(problem, TENSOR(LSE), query, head) =
            keys > 0 ? logf((float)keys) + 0.5F + 0.2F * smelt__normal_next(&random) +
                           lse_addend(problem, query)
                     : NAN;
}

static int64_t keys_of(const struct smelt__problem *problem) {
    return problem->extents[SMELT__INDEXER_DENSE_LOSS_N];
}

/* Logits are then a few units apart. With adversarial windows some queries' logits are in the hundreds and
 * their exponentials overflow. */
static float logit_factor(const struct smelt__problem *problem, int64_t query) {
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    const float factor = 3.0F / sqrtf((float)(spec->index_heads * spec->index_dim));
    return problem->options.lists == SMELT__LISTS_ADVERSARIAL && query % 5 == 3 ? 100 * factor
                                                                                : factor;
}

static void fill_indexer_query(struct smelt__problem *problem, int64_t query) {
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    const float factor = logit_factor(problem, query);
    struct smelt__random random =
        smelt__random_at(problem->options.seed, STREAM_WEIGHTS, (uint64_t)query);
    for (int head = 0; head < spec->index_heads; head++)
        smelt__indexer_store_weight(problem, TENSOR(INDEX_WEIGHTS), query, head,
                                    factor * smelt__normal_next(&random));
}

/* With adversarial windows some weights are none: 0, negative, NaN, infinite. */
static float weight_of(const struct smelt__problem *problem, int64_t query) {
    static const float odd[] = {0, -0.7F, NAN, INFINITY};
    struct smelt__random random =
        smelt__random_at(problem->options.seed, STREAM_WEIGHT, (uint64_t)query);
    const int64_t kind = smelt__random_below(&random, 8);
    return problem->options.lists == SMELT__LISTS_ADVERSARIAL && kind < 4
               ? odd[kind]
               : 0.6F + 0.1F * (float)kind;
}

static void fill_queries(void *user, int64_t begin, int64_t end) {
    struct smelt__problem *const problem = user;
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    float *const weights = smelt__problem_data(problem, TENSOR(WEIGHT));
    for (int64_t query = begin; query < end; query++) {
        fill_lse(problem, query, spec->heads);
        fill_indexer_query(problem, query);
        if (weights)
            weights[query] = weight_of(problem, query);
    }
}

/* The same of the indexer's pools; the last one may lack keys. */
static void find_used_pools(const struct smelt__problem *problem,
                            const struct smelt__dense_inputs *inputs, uint8_t *used) {
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    const int64_t pool = spec->granularity;
    memset(used, 0, (size_t)problem->options.rows);
    for (int64_t query = 0; query < problem->computed; query++) {
        int32_t begin, end;
        smelt__windows_of(problem, inputs->window_begin, inputs->window_end, query, &begin, &end);
        for (int64_t key = (begin + pool - 1) / pool; key < end / pool; key++)
            used[key] = 1;
    }
}

static int fill(struct smelt__problem *problem) {
    const struct smelt__dense_inputs inputs = inputs_of(problem);
    const struct smelt__key_rows dk = dk_rows(problem);
    float *const grad_loss = smelt__problem_data(problem, TENSOR(GRAD_LOSS));
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    uint8_t *const used = malloc((size_t)problem->options.rows + 1); /* keys in some window */
    int failed = !used || smelt__dense_fill(problem, &inputs, used);
    if (!failed) {
        if (spec->granularity > 1)
            find_used_pools(problem, &inputs, used);
        smelt__parallel_for(problem->computed, 16, fill_queries, problem);
        smelt__normals_fill(problem, TENSOR(INDEX_Q), STREAM_Q);
        smelt__normals_fill(problem, TENSOR(INDEX_K), STREAM_K);
        smelt__unused_fill(problem, TENSOR(INDEX_K), used);
        failed =
            !problem->options.own[LOSS_ALONE] && smelt__key_rows_fill(problem, &dk, STREAM_SUM);
    }
    if (grad_loss)
        *grad_loss = -0.37F;
    free(used);
    return failed ? -1 : 0;
}

/* All but dk, whose sums are taken in any order unless the operator is deterministic. */
static int reproducible(const struct smelt__problem *problem, int tensor) {
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    return spec->deterministic || tensor < TENSOR(INDEX_DK);
}

/* ---- figures --------------------------------------------------------------------------------- */

/* Each group's heads have tiles of their own. */
static int tile_heads(int heads, int groups) {
    enum { TILE = 16 };
    return heads < TILE * groups ? TILE * groups : heads;
}

/* Attention's scores once; the indexer's products of the logits and, with gradients, three more. */
static double multiplications(const void *spec, const struct smelt__problem_options *requested) {
    const struct smelt__indexer_dense_loss_spec *loss = spec;
    const struct smelt__dense_lse_spec attention = {tile_heads(loss->heads, loss->groups),
                                                    loss->dqk, loss->kv_heads};
    const double pairs = (double)(requested->batches * requested->tokens) * (double)requested->rows;
    const double indexer =
        pairs * tile_heads(loss->index_heads, loss->groups) * loss->index_dim / loss->granularity;
    return smelt__dense_multiplications(&attention, requested) +
           indexer * (requested->own[LOSS_ALONE] ? 1 : 4);
}

static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    const double ceiling = 690; /* TFLOP/s of one H200: a large bf16 product under sustained load */
    const double products = problem->options.own[LOSS_ALONE] ? 1 : 4;
    const double columns = (double)spec->heads * spec->dqk +
                           products * spec->index_heads * spec->index_dim / spec->granularity;
    found[0] = SMELT__TFLOPS(2 * (double)problem->valid_slots * columns / 1e12, ceiling);
    return 1;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* Errors of a target relative to itself, and of a logit relative to its terms' sizes. */
#define TARGET_ERROR 2e-5
#define LOGIT_ERROR 1e-6

enum { LOSSES = SMELT__INDEXER_QUERY_METRICS, QUERY_METRICS };
enum { METRIC_LOSS };

#define DQ SMELT__OF(TENSOR(INDEX_DQ))
#define DK SMELT__KEY_ROWS(TENSOR(INDEX_DK), TENSOR(INDEX_DK_FP32), TENSOR(INDEX_DK_SUM))

static const struct smelt__metric query_metrics[QUERY_METRICS] = {
    SMELT__INDEXER_QUERY_METRIC_ROWS(DQ, SMELT__OF(TENSOR(INDEX_DWEIGHTS))),
    [LOSSES] = {"relative_error", "losses", "losses", "relative error of a query's loss",
                SMELT__LARGEST, SMELT__OF(TENSOR(LOSSES))},
};

static const struct smelt__metric key_metrics[SMELT__GRAD_METRICS] = {
    SMELT__GRAD_METRIC_ROWS("dk", DK),
};

static const struct smelt__metric loss_metrics[] = {
    [METRIC_LOSS] = {"relative_error", "loss", "loss", "relative error of the loss", SMELT__LARGEST,
                     SMELT__OF(TENSOR(LOSS))}};

static const struct smelt__rule query_rules[SMELT__GRAD_RULES] = {
    SMELT__GRAD_RULE_ROWS("dq", DQ, "a head that no key has a part in is not 0")};

static const struct smelt__rule key_rules[SMELT__GRAD_RULES] = {SMELT__GRAD_RULE_ROWS(
    "dk", DK, "a key to which no query contributes is not 0 or its previous value")};

/* A query of a group by the reference, in memory of its own, and its gradients as numbers of fp32. */
struct row {
    struct smelt__indexer_dense_loss_group group;
    struct smelt__indexer_dense_loss_query query;
    float *grad;
    int64_t keys;
};

static void close_row(struct row *row) {
    free(row->query.q);
    free(row->query.keys);
    free(row->grad);
}

static int open_row(const struct smelt__problem *problem, int64_t query, int group,
                    struct row *row) {
    smelt_indexer_dense_loss_args args;
    smelt__problem_arguments(problem, &args);
    const size_t keys = (size_t)keys_of(problem);
    row->group = smelt__indexer_dense_loss_group(problem->spec, &args, group);
    row->keys = keys_of(problem);
    row->query.q = malloc((4 * keys + 1) * sizeof *row->query.q);
    row->query.p = row->query.q ? row->query.q + keys : NULL;
    row->query.grad = row->query.q ? row->query.q + 2 * keys : NULL;
    row->query.doubt = row->query.q ? row->query.q + 3 * keys : NULL;
    row->query.keys = malloc((keys + 1) * sizeof *row->query.keys);
    row->grad = malloc((keys + 1) * sizeof *row->grad);
    if (!row->query.q || !row->query.keys || !row->grad ||
        smelt__indexer_dense_loss_reference(&row->group.spec, &row->group.args, query,
                                            &row->query)) {
        close_row(row);
        return -1;
    }
    for (size_t s = 0; s < keys; s++)
        row->grad[s] = (float)row->query.grad[s];
    return 0;
}

/* The error that the gradient of a key's logit may have. */
static double slot_error(const struct smelt__problem *problem,
                         const struct smelt__indexer_dense_loss_query *query, int64_t key) {
    const float *const grad_loss = smelt__problem_data(problem, TENSOR(GRAD_LOSS));
    const double factor = fabs(query->found.weight * (grad_loss ? (double)*grad_loss : 1));
    return query->doubt[key] +
           factor * (query->q[key] * (TARGET_ERROR + LOGIT_ERROR * query->terms) +
                     query->p[key] * TARGET_ERROR);
}

static double norm_of(const uint16_t *row, int dim) {
    double sum = 0;
    for (int d = 0; d < dim; d++)
        sum += pow((double)smelt__bf16_to_float(row[d]), 2);
    return sqrt(sum);
}

static const uint16_t *indexer_row(const struct smelt__problem *problem, int tensor, int64_t i,
                                   int64_t head) {
    return (const uint16_t *)smelt__problem_data(problem, tensor) +
           smelt__problem_at(problem, tensor, i, head, 0);
}

/* The errors of a query's logits' gradients times their keys' norms, added up. */
static double key_errors(const struct smelt__problem *problem, const struct row *row, int dim) {
    double sum = 0;
    for (int64_t s = 0; s < row->keys; s++)
        if (row->query.keys[s] >= 0 || row->query.doubt[s] > 0)
            sum += slot_error(problem, &row->query, s) *
                   norm_of(indexer_row(problem, TENSOR(INDEX_K), s, 0), dim);
    return sum;
}

static double relative(float got, double expected, double size) {
    return fabs((double)got - expected) / size;
}

/* What a query's loss may be off by is relative to. */
static double loss_size(const struct smelt__indexer_dense_loss_query *query) {
    return fabs(query->found.weight) *
               (1 + query->found.terms + LOGIT_ERROR / TARGET_ERROR * query->terms) +
           (double)FLT_MIN;
}

/* A query's group of heads. `memory`: as compare_head's. */
static void compare_group(const struct smelt__placed *placed, int64_t query, int group,
                          double *memory, struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    struct row row;
    finding->failed = open_row(problem, query, group, &row) != 0;
    if (finding->failed)
        return;
    const struct smelt__indexer_bwd_spec spec = smelt__indexer_dense_loss_indexer(&row.group.spec);
    smelt_indexer_bwd_args gradients =
        smelt__indexer_dense_loss_gradients(&row.group.spec, &row.group.args);
    gradients.indices.data = row.query.keys; /* strides of 0: the row is every query's */
    gradients.grad.data = row.grad;
    const float *const loss = smelt__compared_row(
        placed, finding, TENSOR(LOSSES),
        smelt__problem_of_group(problem, TENSOR(LOSSES), query, group), 1, &row.query.found.loss);
    if (loss)
        smelt__finding_enlarge(finding, LOSSES,
                               relative(*loss, row.query.found.loss, loss_size(&row.query)), group);
    const double errors = key_errors(problem, &row, spec.dim);
    for (int within = 0; within < spec.heads && !problem->options.own[LOSS_ALONE] &&
                         !finding->failed && !finding->broken;
         within++) {
        const int head = group * spec.heads + within;
        /* Of a logit's gradient and its x together no more than the norms' product. */
        const double norm = norm_of(indexer_row(problem, TENSOR(INDEX_Q), query, head), spec.dim);
        const struct smelt__indexer_head one = {.dq = TENSOR(INDEX_DQ),
                                                .dweights = TENSOR(INDEX_DWEIGHTS),
                                                .query = query,
                                                .head = head,
                                                .within = within,
                                                .lost = errors,
                                                .more = errors * norm / TARGET_ERROR};
        smelt__indexer_head_compare(placed, &one, &spec, &gradients, memory, finding);
    }
    close_row(&row);
}

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__indexer_dense_loss_spec *spec = placed->problem->spec;
    double *const memory = malloc(2 * (size_t)spec->index_dim * sizeof *memory);
    (void)prepared;
    finding->failed = !memory;
    for (int group = 0; group < spec->groups && !finding->failed && !finding->broken; group++)
        compare_group(placed, query, group, memory, finding);
    free(memory);
}

static void judge_queries(const struct smelt__problem *problem, int64_t compared,
                          struct smelt__metric_result *results) {
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    (void)compared;
    smelt__indexer_query_judge(spec->weights_dtype, TARGET_ERROR, results);
    results[LOSSES].bar = TARGET_ERROR;
}

/* ---- keys, and the loss: of all queries ------------------------------------------------------ */

/* By group and query. */
struct all {
    const struct smelt__problem *problem;
    float *grads, *errors;  /* [G, T, keys]: of logits */
    int32_t *indices;       /* [G, T, keys] */
    double *reach;          /* [G, T] sum over heads of |weight| * norm of q */
    double *losses, *sizes; /* [G, T] */
    int failed;
};

static void release(void *prepared) {
    struct all *all = prepared;
    free(all->grads);
    free(all->errors);
    free(all->indices);
    free(all->reach);
    free(all->losses);
    free(all->sizes);
    free(all);
}

/* Of a query's group, whose rows are number `at` of the arrays. */
static int find_row(struct all *all, int64_t query, int group, int64_t at) {
    struct row row;
    if (open_row(all->problem, query, group, &row))
        return -1;
    for (int64_t s = 0; s < row.keys; s++) {
        all->grads[at * row.keys + s] = row.grad[s];
        all->indices[at * row.keys + s] = row.query.keys[s];
        all->errors[at * row.keys + s] = row.query.keys[s] < 0 && row.query.doubt[s] == 0
                                             ? 0
                                             : (float)slot_error(all->problem, &row.query, s);
    }
    const int heads = row.group.spec.index_heads;
    for (int head = 0; head < heads; head++)
        all->reach[at] +=
            fabs(smelt__indexer_weight(&row.group.args.index_weights, row.group.spec.weights_dtype,
                                       query, head)) *
            norm_of(indexer_row(all->problem, TENSOR(INDEX_Q), query, group * heads + head),
                    row.group.spec.index_dim);
    all->losses[at] = row.query.found.loss;
    all->sizes[at] = loss_size(&row.query);
    close_row(&row);
    return 0;
}

static void find_rows(void *user, int64_t begin, int64_t end) {
    struct all *all = user;
    for (int64_t at = begin; at < end && !all->failed; at++)
        if (find_row(all, at % all->problem->computed, (int)(at / all->problem->computed), at))
            all->failed = 1;
}

static int64_t rows_of(const struct smelt__problem *problem) {
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    return spec->groups * problem->computed;
}

static void *prepare(const struct smelt__placed *placed, const int64_t *units, int64_t count) {
    const struct smelt__problem *problem = placed->problem;
    const size_t rows = (size_t)rows_of(problem), keys = (size_t)keys_of(problem);
    struct all *all = calloc(1, sizeof *all);
    (void)units, (void)count;
    if (!all)
        return NULL;
    all->problem = problem;
    all->grads = malloc((rows * keys + 1) * sizeof *all->grads);
    all->errors = malloc((rows * keys + 1) * sizeof *all->errors);
    all->indices = malloc((rows * keys + 1) * sizeof *all->indices);
    all->reach = calloc(rows + 1, sizeof *all->reach);
    all->losses = calloc(rows + 1, sizeof *all->losses);
    all->sizes = calloc(rows + 1, sizeof *all->sizes);
    all->failed =
        !all->grads || !all->errors || !all->indices || !all->reach || !all->losses || !all->sizes;
    if (!all->failed)
        smelt__parallel_for((int64_t)rows, 1, find_rows, all);
    if (!all->failed)
        return all;
    release(all);
    return NULL;
}

/* Adds a group's row of a key's gradient, and what it may be off by. `memory`: [dim]. */
static int add_group(const struct all *all, int64_t key, int group, double *memory,
                     struct smelt__indexer_bwd_row *row, double *lost) {
    const struct smelt__problem *problem = all->problem;
    const int64_t keys = keys_of(problem), first = group * problem->computed;
    struct smelt__indexer_bwd_row more = {.grads = memory};
    smelt_indexer_dense_loss_args args;
    smelt__problem_arguments(problem, &args);
    const struct smelt__indexer_dense_loss_group one =
        smelt__indexer_dense_loss_group(problem->spec, &args, group);
    const struct smelt__indexer_bwd_spec spec = smelt__indexer_dense_loss_indexer(&one.spec);
    smelt_indexer_bwd_args gradients = smelt__indexer_dense_loss_gradients(&one.spec, &one.args);
    gradients.indices = (smelt_const_tensor){all->indices + first * keys, {keys}};
    gradients.grad = (smelt_const_tensor){all->grads + first * keys, {keys}};
    if (smelt__indexer_bwd_key(&spec, &gradients, key, &more))
        return -1;
    smelt__indexer_dense_loss_add(&more, spec.dim, row);
    for (int64_t at = first; at < first + problem->computed; at++)
        *lost += (double)all->errors[at * keys + key] * all->reach[at];
    return 0;
}

static void compare_key(const struct smelt__placed *placed, const void *prepared, int64_t key,
                        struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__indexer_dense_loss_spec *spec = problem->spec;
    const struct smelt__indexer_bwd_spec bwd = smelt__indexer_dense_loss_indexer(spec);
    const struct smelt__key_rows rows = dk_rows(problem);
    if (problem->options.own[LOSS_ALONE])
        return;
    double *const memory = calloc(2 * (size_t)bwd.dim, sizeof *memory), lost = 0;
    struct smelt__indexer_bwd_row row = {.grads = memory};
    finding->failed = !memory;
    for (int group = 0; group < spec->groups && !finding->failed; group++)
        finding->failed = add_group(prepared, key, group, memory + bwd.dim, &row, &lost) != 0;
    if (!finding->failed)
        smelt__indexer_key_compare(placed, &rows, key, &row, lost, memory + bwd.dim, finding);
    free(memory);
}

static void compare_loss(const struct smelt__placed *placed, const void *prepared, int64_t unit,
                         struct smelt__finding *finding) {
    const struct all *all = prepared;
    double sum = 0, size = (double)FLT_MIN;
    (void)unit;
    for (int64_t at = 0; at < rows_of(placed->problem); at++) {
        sum += all->losses[at];
        size += all->sizes[at];
    }
    const float *const loss = smelt__compared_row(placed, finding, TENSOR(LOSS), 0, 1, &sum);
    smelt__finding_enlarge(finding, METRIC_LOSS, relative(*loss, sum, size), 0);
}

static const struct smelt__comparison comparisons[] = {
    {
        SMELT__UNITS("query", "head", TENSOR(T)),
        SMELT__METRICS(query_metrics),
        SMELT__RULES(query_rules),
        .compare = compare_query,
        .judge = judge_queries,
    },
    {
        SMELT__UNITS("key", "part", TENSOR(N)),
        SMELT__METRICS(key_metrics),
        SMELT__RULES(key_rules),
        .prepare = prepare,
        .release = release,
        .compare = compare_key,
        .judge = smelt__grad_rows_bars,
    },
    {
        SMELT__UNITS("call", "number", TENSOR(ONE)),
        SMELT__METRICS(loss_metrics),
        .prepare = prepare,
        .release = release,
        .compare = compare_loss,
        .bars = {[METRIC_LOSS] = TARGET_ERROR},
    },
};

/* ---- the row --------------------------------------------------------------------------------- */

SMELT__KEY_TABLE(indexer_dense_loss, SMELT__INDEXER_DENSE_LOSS_KEYS)

#define PASS(number)                                                                               \
    {                                                                                              \
        SMELT__PASS(FORWARD, "forward", &smelt__indexer_dense_loss_table[number]),                 \
            .table = (number), .given = given, .shape = shape, .leaves_free = 1,                   \
            .reproducible = reproducible                                                           \
    }
static const struct smelt__harness_pass passes[] = {PASS(0), PASS(1), PASS(2), PASS(3)};

#define AT(T, more)                                                                                \
    {                                                                                              \
        .spec = "indexer_dense_loss:heads=64,dqk=576,index_heads=64,index_dim=128" more,           \
        .tokens = T, .rows = T, .lists = SMELT__LISTS_CAUSAL, .documents = 1                       \
    }

static const struct smelt__harness_shape peers[] = {
    AT(8192, ""), AT(16384, ""), AT(8192, ",deterministic=1"), AT(8192, ",granularity=4")};

const struct smelt__harness_operator smelt__harness_indexer_dense_loss = {
    SMELT__HARNESS_ROW(indexer_dense_loss),
    SMELT__HARNESS_KEYS(indexer_dense_loss),
    .own_options = own_options,
    .own_option_count = sizeof own_options / sizeof own_options[0],
    /* More keys than a block, more queries than a group; each pattern of adversarial windows. */
    .small = {.tokens = 7, .patterns = 12, .rows = 200, .width = 70},
    .most = {.rows = 300, .width = 300},
    SMELT__KINDS(kinds),
    .bench = {.tokens = 8192, .rows = 8192, .lists = SMELT__LISTS_CAUSAL, .documents = 1},
};
