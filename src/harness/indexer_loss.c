/* The harness's row of indexer_loss. */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "harness/footprint.h"
#include "harness/operator.h"
#include "harness/parallel.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "harness/slots.h"
#include "ops/indexer_loss_table.h"
#include "reference/operators.h"
#include "smelt/indexer_loss.h"
#include "smelt/kernels.h"

#define TENSOR(name) SMELT__INDEXER_LOSS_##name

static const struct smelt__slots slots = {TENSOR(INDICES), TENSOR(TOPK_LENGTH), NULL, 0};

/* ---- options --------------------------------------------------------------------------------- */

enum { SCORES, WEIGHTED, OUTPUTS }; /* own options by number */
enum scores {
    FAR_OFF, /* logits independent of the target */
    TRAINED, /* logits close to the target's logarithm */
    ODD,     /* of all kinds: zeros, infinities, NaN */
    CERTAIN  /* target and probability are concentrated on one slot; grad_loss is infinite */
};

static const char *const scores_names[] = {"far-off", "trained", "odd", "certain", NULL};
enum outputs { GRAD, QUERIES, LOSS_ALONE };
static const char *const outputs_names[] = {"grad", "losses", "loss", NULL};
static const char *const options[] = {"width", "valid", "documents", "lists", "topk-length", NULL};

#define OWN(number) offsetof(struct smelt__problem_options, own[number])
static const struct smelt__option own_options[] = {
    {"scores", SMELT__OPTION_CHOICE, OWN(SCORES), 0, 0, scores_names,
     "how logits and target are related. `far-off`: unrelated; `trained`: the logits are nearly "
     "the target's logarithm; `odd`: zeros, infinities and NaN in logits, target and weights; "
     "`certain`: target and probability 1 at one slot, and grad_loss infinite.",
     SMELT__OPTION_INPUTS},
    {"weighted", SMELT__OPTION_FLAG, OWN(WEIGHTED), 0, 0, NULL, "give weights and grad_loss too",
     0},
    {"outputs", SMELT__OPTION_CHOICE, OWN(OUTPUTS), 0, 0, outputs_names,
     "requested outputs. `grad`: the loss and its gradient; `losses`: also each query's loss; "
     "`loss`: only the loss.",
     0},
};

static int64_t count_queries(const struct smelt__problem_options *given) {
    return given->batches * given->tokens;
}

static const struct smelt__problem_options kinds[] = {
    {.lists = SMELT__LISTS_RANDOM},
    {.lists = SMELT__LISTS_CAUSAL, .own = {[SCORES] = TRAINED}},
    {.lists = SMELT__LISTS_ADVERSARIAL},
    {.lists = SMELT__LISTS_ADVERSARIAL, .own = {[SCORES] = ODD}},
    {.lists = SMELT__LISTS_ADVERSARIAL,
     .topk_length = 1,
     .own = {[SCORES] = ODD, [WEIGHTED] = 1, [OUTPUTS] = QUERIES}},
};

static const char *inputs(const struct smelt__problem_options *given) {
    return given->own[SCORES] == FAR_OFF ? smelt__lists_names[given->lists]
                                         : scores_names[given->own[SCORES]];
}

/* ---- problems -------------------------------------------------------------------------------- */

static const float QUERY_WEIGHT = 2;

static void shape(struct smelt__problem *problem) {
    smelt_indexer_loss_args *args = problem->args;
    args->query_weight = problem->options.own[WEIGHTED] ? QUERY_WEIGHT : 1.0F;
}

static int given(const struct smelt__problem *problem, int tensor) {
    const int64_t *const own = problem->options.own;
    switch (tensor) {
    case TENSOR(TOPK_LENGTH):
        return problem->options.topk_length;
    case TENSOR(LOSSES):
        return own[OUTPUTS] == QUERIES;
    case TENSOR(GRAD):
        return own[OUTPUTS] != LOSS_ALONE;
    default: /* weight, grad_loss */
        return own[WEIGHTED] != 0;
    }
}

enum { STREAM_NUMBERS = 1, STREAM_WEIGHT };

/* Kinds of odd rows. From NO_SCORE on the loss may be infinite; every second seed has none of
 * these, so that the sum of losses is finite. */
enum kind {
    PLAIN,
    NO_TARGET,
    BAD_TARGETS,
    INFINITE_TARGET,
    LARGEST_TARGET,
    LEAST_TARGET,
    TINY_TARGETS,
    NO_WEIGHT,
    NAN_WEIGHT,
    INFINITE_WEIGHT,
    NEGATIVE_WEIGHT,
    LARGE_SCORES,
    NO_SCORE,
    NO_SCORE_NO_WEIGHT,
    SOME_NAN_SCORES,
    INFINITE_SCORE,
    LARGEST_WEIGHT,
    ALL_AT_ONE_SLOT, /* with CERTAIN scores every query, otherwise none */
    KINDS = ALL_AT_ONE_SLOT
};

static enum kind kind_of(const struct smelt__problem_options *given, int64_t query) {
    const uint64_t number = (uint64_t)query + given->seed / 2;
    if (given->own[SCORES] == CERTAIN)
        return ALL_AT_ONE_SLOT;
    return given->own[SCORES] != ODD ? PLAIN
                                     : (enum kind)(number % (given->seed % 2 ? NO_SCORE : KINDS));
}

static float uniform(struct smelt__random *random) {
    return (float)(smelt__random_next(random) >> 40) * 0x1p-24F;
}

/* `steps`: the distance from the row's peak. The sum of targets is at the upper or lower limit. */
static float odd_target(enum kind kind, float target, int64_t steps, struct smelt__random *random) {
    const int64_t choice = smelt__random_below(random, 4);
    switch (kind) {
    case NO_TARGET:
        return 0;
    case BAD_TARGETS:
        return choice == 0 ? NAN : choice == 1 ? -target : target;
    case INFINITE_TARGET:
        return choice == 0 ? INFINITY : target;
    case LARGEST_TARGET:
        return steps == 0 ? FLT_MAX : 0;
    case LEAST_TARGET:
        return steps == 0 ? FLT_MIN : 0;
    case TINY_TARGETS:
        return 0x1p-149F;
    case LARGEST_WEIGHT:
    case ALL_AT_ONE_SLOT:
        return steps == 0 ? 1.0F : 0;
    default:
        return target;
    }
}

/* `steps`: the distance from the row's peak, on both sides of which large scores fall; relative to
 * another slot's score the sum of exponentials would overflow. */
static float odd_logit(enum kind kind, float logit, int64_t steps, struct smelt__random *random) {
    const int64_t choice = smelt__random_below(random, 4);
    switch (kind) {
    case LARGE_SCORES:
        return logit - 100.0F * (float)steps;
    case NO_SCORE:
    case NO_SCORE_NO_WEIGHT:
        return -INFINITY;
    case SOME_NAN_SCORES:
        return choice == 0 ? NAN : choice == 1 ? -INFINITY : logit;
    case INFINITE_SCORE:
        return choice == 0 ? INFINITY : logit;
    case LARGEST_WEIGHT: /* a divergence so small that its product with the weight is finite */
        return steps == 0 ? 0 : -20.0F;
    case ALL_AT_ONE_SLOT:
        return steps == 0 ? 3.0F : -INFINITY;
    default:
        return logit;
    }
}

static float odd_weight(enum kind kind, float weight) {
    switch (kind) {
    case NO_WEIGHT:
    case NO_SCORE_NO_WEIGHT:
        return 0;
    case NAN_WEIGHT:
        return NAN;
    case INFINITE_WEIGHT:
        return INFINITY;
    case NEGATIVE_WEIGHT:
        return -weight;
    case LARGEST_WEIGHT: /* its product with query_weight is exactly the largest number */
        return FLT_MAX / QUERY_WEIGHT;
    default:
        return weight;
    }
}

/* The contents of masked slots. */
static const float MASKED_TARGET = 60.0F, MASKED_LOGIT = 9.0F;

/* Like attention's probabilities summed over heads: most are far smaller than the largest. One in
 * eight is 0. */
static float draw_target(struct smelt__random *random) {
    const float target = 40.0F * expf(-9.0F * uniform(random));
    return smelt__random_below(random, 8) ? target : 0.0F;
}

/* Masked slots hold the row's largest numbers, so that a kernel that reads one gives a wrong
 * result. (NaN would not do, because it counts as -inf.) In a row with masked slots only, p and q
 * would both be 1 and the loss 0, the correct result; there the masked logits are -inf, which gives
 * an infinite loss. */
static void fill_query(struct smelt__problem *problem, int64_t query) {
    const struct smelt__problem_options *const given = &problem->options;
    const enum kind kind = kind_of(given, query);
    struct smelt__random random = smelt__random_at(given->seed, STREAM_NUMBERS, (uint64_t)query);
    float *const logits = (float *)smelt__problem_data(problem, TENSOR(LOGITS)) +
                          smelt__problem_at(problem, TENSOR(LOGITS), query, 0, 0);
    float *const target = (float *)smelt__problem_data(problem, TENSOR(TARGET)) +
                          smelt__problem_at(problem, TENSOR(TARGET), query, 0, 0);
    const float shift = 100.0F * uniform(&random) - 50.0F;
    const int64_t peak = (1 + query % 3) * given->width / 4;
    const float masked =
        smelt__slots_valid(problem, &slots, query) ? shift + MASKED_LOGIT : -INFINITY;
    for (int64_t i = 0; i < given->width; i++) {
        const float drawn = draw_target(&random), noise = uniform(&random) - 0.5F;
        const float logit = given->own[SCORES] == TRAINED
                                ? logf(drawn + 1e-3F) + 0.3F * noise + shift
                                : 12.0F * noise + shift;
        const int valid = smelt__slots_row(problem, &slots, query, i) >= 0;
        target[i] = valid ? odd_target(kind, drawn, llabs(i - peak), &random) : MASKED_TARGET;
        logits[i] = valid ? odd_logit(kind, logit, llabs(i - peak), &random) : masked;
    }
}

static void fill_queries(void *user, int64_t begin, int64_t end) {
    struct smelt__problem *problem = user;
    float *const weights = smelt__problem_data(problem, TENSOR(WEIGHT));
    for (int64_t query = begin; query < end; query++) {
        struct smelt__random random =
            smelt__random_at(problem->options.seed, STREAM_WEIGHT, (uint64_t)query);
        fill_query(problem, query);
        if (weights)
            weights[query] = odd_weight(kind_of(&problem->options, query), 0.1F + uniform(&random));
    }
}

static int fill(struct smelt__problem *problem) {
    float *const grad_loss = smelt__problem_data(problem, TENSOR(GRAD_LOSS));
    problem->computed = count_queries(&problem->options);
    smelt__slots_fill(problem, &slots);
    if (grad_loss)
        *grad_loss = problem->options.own[SCORES] == CERTAIN ? -INFINITY : -0.37F;
    smelt__parallel_for(problem->computed, 4, fill_queries, problem);
    return 0;
}

/* Each slot takes the emulator as long as so many multiplications, including slots of topk beyond
 * the row's width, up to a block's number of threads. */
static double multiplications(const void *spec, const struct smelt__problem_options *given) {
    enum { EACH = 60, MOST_IDLE = 8192 };
    const int topk = ((const struct smelt__indexer_loss_spec *)spec)->topk;
    const double idle = topk < MOST_IDLE ? topk : MOST_IDLE;
    return EACH * (double)count_queries(given) * ((double)given->width + idle);
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* The error relative to `size`. Expected values beyond fp32's range count as infinite. */
static double relative(float got, double expected, double size) {
    if (fabs(expected) > (double)FLT_MAX || isinf(got))
        return (double)got == (double)(float)expected ? 0 : INFINITY;
    return fabs((double)got - expected) / size;
}

enum { METRIC_GRAD, METRIC_SLOT, METRIC_QUERY, METRIC_LOSS = 0 };

/* A slot's gradient is the difference of q and p; its rounding error is relative to these two, even
 * if they nearly cancel. */
static void compare_grad(const float *got, const double *q, const double *p, const double *expected,
                         double factor, int64_t width, struct smelt__finding *finding) {
    const double least = 1e-30; /* smaller numbers may be flushed to 0 */
    const double noise = 0.01;  /* relative to q and p; a smaller gradient counts as this large */
    for (int64_t i = 0; i < width; i++) {
        const double error = (double)got[i] - expected[i], sum = q[i] + p[i];
        const double size = (sum > 0 ? fabs(factor) * sum : 0) + least;
        finding->metrics[METRIC_GRAD].value += error * error;
        finding->metrics[METRIC_GRAD].weight += pow(fmax(fabs(expected[i]), noise * size), 2);
        smelt__finding_enlarge(finding, METRIC_SLOT, fabs(error) / size, i);
    }
}

static const struct smelt__metric query_metrics[] = {
    [METRIC_GRAD] = {"relative_error", "grad", "grad", "relative error of grad", SMELT__OVERALL,
                     SMELT__OF(TENSOR(GRAD))},
    [METRIC_SLOT] = {"relative_error", "slot", "slot",
                     "error of a slot's gradient, relative to its "
                     "probabilities",
                     SMELT__LARGEST, SMELT__OF(TENSOR(GRAD))},
    [METRIC_QUERY] = {"relative_error", "losses", "losses", "relative error of a query's loss",
                      SMELT__LARGEST, SMELT__OF(TENSOR(LOSSES))}};

static const struct smelt__rule query_rules[] = {
    {"masked_slot", SMELT__OF(TENSOR(GRAD)), "the gradient at a masked slot is not 0"}};

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__problem *const problem = placed->problem;
    const int64_t width = problem->options.width;
    double *const numbers = malloc((size_t)width * 3 * sizeof *numbers);
    smelt_indexer_loss_args args;
    (void)prepared;
    smelt__problem_arguments(problem, &args);
    finding->failed = !numbers;
    if (!numbers)
        return;
    double *const q = numbers, *const p = q + width, *const expected = p + width;
    const float *const grad_loss = args.grad_loss.data;
    const struct smelt__indexer_loss_found found =
        smelt__indexer_loss_reference(&args, query, q, p, expected);
    const float *const grad =
        smelt__compared_at(placed, finding, TENSOR(GRAD), query, 0, width, expected);
    const float *const loss =
        smelt__compared_row(placed, finding, TENSOR(LOSSES), query, 1, &found.loss);
    for (int64_t i = 0; grad && i < width; i++)
        if (smelt__slots_row(problem, &slots, query, i) < 0)
            smelt__finding_rule(finding, 0, grad[i] == 0, i);
    if (grad)
        compare_grad(grad, q, p, expected, found.weight * (grad_loss ? (double)*grad_loss : 1),
                     width, finding);
    if (loss)
        smelt__finding_enlarge(
            finding, METRIC_QUERY,
            relative(*loss, found.loss, fabs(found.weight) * (1 + found.terms) + (double)FLT_MIN),
            0);
    free(numbers);
}

/* The sums of all queries' losses and of their absolute values. */
struct total {
    const struct smelt__problem *problem;
    struct smelt__indexer_loss_found *found; /* [T]; NULL: out of memory */
};

static void find_losses(void *user, int64_t begin, int64_t end) {
    struct total *total = user;
    smelt_indexer_loss_args args;
    smelt__problem_arguments(total->problem, &args);
    double *const q = malloc((size_t)args.width * 2 * sizeof *q);
    for (int64_t query = begin; query < end; query++)
        total->found[query] =
            q ? smelt__indexer_loss_reference(&args, query, q, q + args.width, NULL)
              : (struct smelt__indexer_loss_found){.loss = NAN};
    free(q);
}

/* In large problems the loss is compared with the sum of the computed query losses, which are
 * compared one by one. */
static void compare_loss(const struct smelt__placed *placed, const void *prepared, int64_t unit,
                         struct smelt__finding *finding) {
    enum { MOST_SLOTS = 1 << 25, GRAIN = 64 };
    const double noise = 0.01; /* the error of a divergence below this is not relative to it */
    const struct smelt__problem *const problem = placed->problem;
    const int64_t queries = count_queries(&problem->options);
    const float *const losses = smelt__placed_row(placed, TENSOR(LOSSES), 0, 0, 0);
    double sum = 0, size = (double)FLT_MIN;
    (void)prepared, (void)unit;
    struct total total = {problem, calloc((size_t)queries + 1, sizeof *total.found)};
    finding->failed = !total.found;
    if (!total.found)
        return;
    const int given = losses && queries * problem->options.width > MOST_SLOTS;
    if (!given)
        smelt__parallel_for(queries, GRAIN, find_losses, &total);
    for (int64_t query = 0; query < queries; query++) {
        const double one = given ? (double)losses[query] : total.found[query].loss;
        sum += one;
        size += fabs(one) + noise * fabs(total.found[query].weight);
    }
    free(total.found);
    const float *const loss = smelt__compared_row(placed, finding, TENSOR(LOSS), 0, 1, &sum);
    smelt__finding_enlarge(finding, METRIC_LOSS, relative(*loss, sum, size), 0);
}

static const struct smelt__metric loss_metrics[] = {
    [METRIC_LOSS] = {"relative_error", "loss", "loss", "relative error of the loss", SMELT__LARGEST,
                     SMELT__OF(TENSOR(LOSS))}};

static const struct smelt__comparison comparisons[] = {
    {SMELT__UNITS("query", "slot", TENSOR(T)), SMELT__METRICS(query_metrics),
     SMELT__RULES(query_rules), .compare = compare_query,
     .bars = {[METRIC_GRAD] = 1e-3, [METRIC_SLOT] = 2e-5, [METRIC_QUERY] = 1e-5}},
    {SMELT__UNITS("call", "number", TENSOR(ONE)), SMELT__METRICS(loss_metrics),
     .compare = compare_loss, .bars = {[METRIC_LOSS] = 1e-4}},
};

/* ---- figures --------------------------------------------------------------------------------- */

/* One read of the matrices and one write. The ceiling: an H200's memory, copying. */
static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const double matrices = problem->options.own[OUTPUTS] == LOSS_ALONE ? 3 : 4;
    found[0] =
        SMELT__TBS("memory", 2,
                   matrices * 4 * (double)(problem->computed * problem->options.width) / 1e12, 4.2);
    return 1;
}

/* ---- the row --------------------------------------------------------------------------------- */

SMELT__KEY_TABLE(indexer_loss, SMELT__INDEXER_LOSS_KEYS)

static const struct smelt__harness_pass passes[] = {
    {SMELT__PASS(FORWARD, "forward", &smelt__indexer_loss_table), .given = given, .shape = shape,
     .leaves_free = 1},
};

static const struct smelt__harness_shape peers[] = {
    {.spec = "indexer_loss:topk=2048", .tokens = 8192, .rows = 8192},
    {.spec = "indexer_loss:topk=2048", .tokens = 65536, .rows = 65536},
    {.spec = "indexer_loss:topk=512", .tokens = 32768, .rows = 32768},
};

const struct smelt__harness_operator smelt__harness_indexer_loss = {
    SMELT__HARNESS_ROW(indexer_loss),
    SMELT__HARNESS_KEYS(indexer_loss),
    .own_options = own_options,
    .own_option_count = sizeof own_options / sizeof own_options[0],
    .has_lists = 1,
    .small = {.tokens = 5},
    .most = {.rows = 3000, .width = 2100},
    SMELT__KINDS(kinds),
    .inputs = inputs,
    .bench = {.tokens = 8192, .rows = 8192},
};
