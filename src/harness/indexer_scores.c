/* The harness's row of indexer_scores. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "harness/attention.h"
#include "harness/footprint.h"
#include "harness/indexer.h"
#include "harness/operator.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "harness/slots.h"
#include "ops/indexer_scores_table.h"
#include "reference/operators.h"
#include "smelt/indexer_logits.h"
#include "smelt/indexer_scores.h"

#define TENSOR(name) SMELT__INDEXER_SCORES_##name

static int granularity(const void *spec) {
    return ((const struct smelt__indexer_scores_spec *)spec)->granularity;
}

static const struct smelt__slots slots = {TENSOR(INDICES), TENSOR(TOPK_LENGTH), granularity,
                                          TENSOR(LIMIT)};

/* ---- options --------------------------------------------------------------------------------- */

static const char *const options[] = {"width", "valid", "documents", "lists", "topk-length", NULL};

/* ---- problems -------------------------------------------------------------------------------- */

/* keys: with three of four seeds. */
static int given(const struct smelt__problem *problem, int tensor) {
    const int blocks = ((const struct smelt__indexer_scores_spec *)problem->spec)->block_max > 1;
    const uint64_t seed = problem->options.seed;
    switch (tensor) {
    case TENSOR(TOPK_LENGTH):
        return problem->options.topk_length;
    case TENSOR(LIMIT):
        return problem->options.own[SMELT__LIMITS] != SMELT__LIMITS_NONE;
    default:
        return blocks && seed % 4 != 3;
    }
}

static int fill(struct smelt__problem *problem) {
    const struct smelt__indexer_scores_spec *spec = problem->spec;
    const struct smelt__indexer_inputs inputs = {
        .heads = spec->heads,
        .dim = spec->dim,
        .dtype = SMELT__DTYPE_BF16,
        .q = TENSOR(Q),
        .k = TENSOR(K),
        .weights = TENSOR(WEIGHTS),
        .k_scale = -1,
    };
    uint8_t *const used = calloc((size_t)problem->options.rows, 1);
    if (!used)
        return -1;
    smelt__slots_fill(problem, &slots);
    const int failed = smelt__slots_mark(problem, &slots, used) != 0 ||
                       smelt__indexer_fill_rows(problem, &inputs, used) != 0;
    free(used);
    return failed ? -1 : 0;
}

static void footprint(const struct smelt__problem *problem, struct smelt__footprints *footprints) {
    smelt__slots_footprint(problem, &slots, TENSOR(K), 0, footprints);
}

/* ---- figures --------------------------------------------------------------------------------- */

static double multiplications(const void *spec, const struct smelt__problem_options *given_) {
    const struct smelt__indexer_scores_spec *scores = spec;
    return (double)(given_->batches * given_->tokens) * (double)given_->width *
           scores->granularity * scores->heads * scores->dim;
}

/* Measured on an H200: large matrix products under sustained load; a gather of 256-byte rows from
 * L2. */
static const double TFLOPS_CEILING = 690, GATHER_CEILING = 10.4;

/* The work of the valid slots. */
static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__indexer_scores_spec *spec = problem->spec;
    const double tera = 1e12, keys = (double)problem->valid_slots * spec->dim;
    found[0] = SMELT__TFLOPS(2 * keys * spec->heads / tera, TFLOPS_CEILING);
    found[1] = SMELT__TBS("gather", 2, 2 * keys / tera, GATHER_CEILING);
    return 2;
}

/* ---- comparison ------------------------------------------------------------------------------ */

enum { MASKED_SLOT = SMELT__LOGITS_RULES, LARGEST, RULES };

static const struct smelt__metric metrics[SMELT__LOGITS_METRICS] = {
    SMELT__LOGITS_METRIC_ROWS(SMELT__OF(TENSOR(LOGITS)))};

static const struct smelt__rule rules[RULES] = {
    SMELT__LOGITS_RULE_ROWS(SMELT__OF(TENSOR(LOGITS))),
    [MASKED_SLOT] = {"masked_slot", SMELT__OF(TENSOR(LOGITS)), "a masked slot is not -inf"},
    [LARGEST] = {"largest", SMELT__OF(TENSOR(KEYS)),
                 "a row in keys is not the first one with its block's largest logit"},
};

/* What a block of a query's slots gives: the largest logit, and the largest terms of finite ones. */
struct block {
    double logit, terms;
    double off; /* what the difference of two finite logits may be off by */
    double key; /* the first row with that logit, -1 where it is -inf */
    int valid;  /* slots */
};

static struct block block_of(const struct smelt__problem *problem, int64_t query, int64_t n,
                             const double *logits, const double *terms) {
    const int64_t size = ((const struct smelt__indexer_scores_spec *)problem->spec)->block_max;
    struct block block = {.logit = -INFINITY, .key = -1};
    for (int64_t i = n * size; i < (n + 1) * size; i++) {
        const int64_t row = smelt__slots_row(problem, &slots, query, i);
        if (row < 0)
            continue;
        block.valid++;
        block.key = logits[i] > block.logit ? (double)row : block.key;
        block.logit = fmax(block.logit, logits[i]);
        if (isfinite(logits[i]))
            block.terms = fmax(block.terms, terms[i]);
        if (isfinite(terms[i])) /* ReLU makes an exact 0 of a product of -inf */
            block.off = fmax(block.off, 2 * SMELT__LOGITS_TOLERANCE * terms[i]);
    }
    block.off += 2 * SMELT__LOGIT_UNDERFLOW;
    return block;
}

/* Whether `key` is as good as the block's best row, within what logits may be off by, and no row before
 * it is one for sure: of zeros, which ReLU makes many of, the first is wanted. */
static int is_best(const struct smelt__problem *problem, int64_t query, int64_t n, int32_t key,
                   float got, const struct block *block, const double *logits) {
    const int64_t size = ((const struct smelt__indexer_scores_spec *)problem->spec)->block_max;
    if (isinf(got) && got < 0)
        return key == -1;
    for (int64_t i = n * size; i < (n + 1) * size; i++) {
        const int64_t row = smelt__slots_row(problem, &slots, query, i);
        if (row >= 0 && row == key)
            return logits[i] >= block->logit - block->off;
        if (row >= 0 && got == 0 && logits[i] == 0 && block->logit == 0)
            return 0; /* a zero ahead of the key */
    }
    return 0;
}

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const int64_t count = smelt__slots_count(problem, &slots), width = problem->extents[TENSOR(N)];
    double *const logits = malloc((size_t)(2 * count + 2 * width) * sizeof *logits);
    double *const terms = logits + count, *const largest = terms + count;
    double *const best = largest + width;
    smelt_indexer_scores_args args;
    (void)prepared;
    smelt__problem_arguments(problem, &args);
    finding->failed =
        !logits || smelt__indexer_scores_reference(problem->spec, &args, query, logits, terms);
    for (int64_t n = 0; n < width && !finding->failed; n++) {
        const struct block block = block_of(problem, query, n, logits, terms);
        largest[n] = block.logit;
        best[n] = block.key;
    }
    if (finding->failed) {
        free(logits);
        return;
    }
    const float *const got =
        smelt__compared_at(placed, finding, TENSOR(LOGITS), query, 0, width, largest);
    const int32_t *const keys =
        smelt__compared_at(placed, finding, TENSOR(KEYS), query, 0, width, best);
    for (int64_t n = 0; n < width && !finding->broken; n++) {
        const struct block block = block_of(problem, query, n, logits, terms);
        if (block.valid)
            smelt__logits_compare(got[n], block.logit, block.terms, n, finding);
        else
            smelt__finding_rule(finding, MASKED_SLOT, isinf(got[n]) && got[n] < 0, n);
        if (keys && !finding->broken)
            smelt__finding_rule(finding, LARGEST,
                                is_best(problem, query, n, keys[n], got[n], &block, logits), n);
    }
    free(logits);
}

static const struct smelt__comparison comparisons[] = {
    {
        SMELT__UNITS("query", "slot", TENSOR(T)),
        SMELT__METRICS(metrics),
        SMELT__RULES(rules),
        .compare = compare_query,
        .bars = {[SMELT__LOGITS_RELATIVE] = SMELT__LOGITS_TOLERANCE},
    },
};

/* ---- the row --------------------------------------------------------------------------------- */

SMELT__KEY_TABLE(indexer_scores, SMELT__INDEXER_SCORES_KEYS)

#define PASS(number)                                                                               \
    {                                                                                              \
        SMELT__PASS(FORWARD, "forward", &smelt__indexer_scores_table[number]),                     \
            .table = (number), .given = given, .leaves_free = 1,                                   \
            SMELT__PARTLY(SMELT__OF(TENSOR(K)) | SMELT__OF(TENSOR(INDICES)))                       \
    }
static const struct smelt__harness_pass passes[] = {PASS(0), PASS(1), PASS(2), PASS(3)};

/* Shapes of cuDNN's sparse indexer scores, and further numbers of heads. */
#define AT(heads)                                                                                  \
    {                                                                                              \
        .spec = "indexer_scores:heads=" #heads ",dim=128,topk=2048", .tokens = 8192, .rows = 8192, \
        .lists = SMELT__LISTS_RANDOM                                                               \
    }

static const struct smelt__harness_shape peers[] = {AT(64), AT(32), AT(16), AT(8)};

const struct smelt__harness_operator smelt__harness_indexer_scores = {
    SMELT__HARNESS_ROW(indexer_scores),
    SMELT__HARNESS_KEYS(indexer_scores),
    .own_options = &smelt__limits_option,
    .own_option_count = 1,
    .has_lists = 1,
    SMELT__KINDS(smelt__attention_kinds),
    .small = {.tokens = 7,
              .rows = 300,
              .width = 150}, /* several pairs of blocks, the last one partial */
    .most = {.rows = 400, .width = 300},
    .bench = {.tokens = 8192, .rows = 8192, .lists = SMELT__LISTS_RANDOM},
};
