/* The indexer's backward pass with infinite or NaN weights, gradients, queries and keys: they
 * affect results as in arithmetic (x = NaN counts as x <= 0), and only those of queries that share
 * a tile. And with negative weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/grad_rows.h"
#include "indexer_training_groups.h"
#include "ops/indexer_bwd_table.h"
#include "reference/bf16.h"
#include "smelt/indexer_bwd.h"

#define TENSOR(name) SMELT__INDEXER_BWD_##name

enum {
    TOKENS = 9,
    ROWS = 300,
    TOPK = 60,
    GROUP = 2, /* queries that share a tile: the specs' knob */
    QUERY = 4, /* the planted number's query, head, slot and column */
    HEAD = 11,
    SLOT = 5,
    COLUMN = 37,
    BF16_NAN = 0x7fc0
};

enum plant { NAN_WEIGHT, INFINITE_WEIGHT, NAN_GRAD, NAN_QUERY, NAN_KEY };

/* The expected relation of a result to that of the clean run. */
enum wanted { SAME, NOT_FINITE, ZERO, ANYTHING };

static const char *const wanted_names[] = {"what it was without", "not finite", "0"};

/* Results of a clean run; dk in fp32. */
struct kept {
    uint16_t *dq;
    float *dweights, *dk;
};

/* The planted number and its problem; key: the key in QUERY's SLOT. */
struct planted {
    const struct smelt__problem *problem;
    enum plant plant;
    int64_t key;
};

static const struct smelt__indexer_bwd_spec *spec_of(const struct smelt__problem *problem) {
    return problem->spec;
}

/* ---- who meets what -------------------------------------------------------------------------- */

static int selects(const struct smelt__problem *problem, int64_t query, int64_t key) {
    const int32_t *const indices = smelt__problem_data(problem, TENSOR(INDICES));
    for (int slot = 0; slot < TOPK; slot++)
        if (indices[query * TOPK + slot] == key)
            return 1;
    return 0;
}

/* Whether a query that shares a tile with QUERY selects the key. */
static int tile_selects(const struct smelt__problem *problem, int64_t query, int64_t key) {
    const int64_t first = query / GROUP * GROUP;
    for (int64_t other = first; other < first + GROUP && other < TOKENS; other++)
        if (selects(problem, other, key))
            return 1;
    return 0;
}

static double element(const struct smelt__problem *problem, int tensor, int64_t row, int column) {
    const uint16_t *const values = smelt__problem_data(problem, tensor);
    return (double)smelt__bf16_to_float(values[row * spec_of(problem)->dim + column]);
}

/* NOT_FINITE if x > 0, `other` if not, ANYTHING if rounding in fp32 decides. */
static enum wanted by_sign(const struct smelt__problem *problem, int64_t query, int head,
                           int64_t key, enum wanted other) {
    const struct smelt__indexer_bwd_spec *const spec = spec_of(problem);
    double x = 0, sizes = 0;
    for (int column = 0; column < spec->dim; column++) {
        const double term = element(problem, TENSOR(Q), query * spec->heads + head, column) *
                            element(problem, TENSOR(K), key, column);
        x += term;
        sizes += fabs(term);
    }
    return fabs(x) < 1e-5 * sizes ? ANYTHING : x > 0 ? NOT_FINITE : other;
}

static enum wanted wanted_dq(const struct planted *planted, int64_t query, int head, int column) {
    const struct smelt__problem *const problem = planted->problem;
    const int own = query == QUERY, met = own && head == HEAD;
    switch (planted->plant) {
    case NAN_GRAD:
        return own ? by_sign(problem, query, head, planted->key, SAME) : SAME;
    case NAN_QUERY:
        return met ? ZERO : SAME;
    case NAN_KEY:
        if (!tile_selects(problem, query, planted->key))
            return SAME;
        return column == COLUMN && selects(problem, query, planted->key) ? NOT_FINITE : ANYTHING;
    default: /* some of TOPK keys have x > 0 */
        return met ? NOT_FINITE : SAME;
    }
}

static enum wanted wanted_dweights(const struct planted *planted, int64_t query, int head) {
    switch (planted->plant) {
    case NAN_GRAD:
        return query == QUERY ? NOT_FINITE : SAME;
    case NAN_QUERY:
        return query == QUERY && head == HEAD ? ZERO : SAME;
    case NAN_KEY:
        return tile_selects(planted->problem, query, planted->key) ? ANYTHING : SAME;
    default:
        return SAME;
    }
}

/* For a row that QUERY selects. */
static enum wanted wanted_selected(const struct planted *planted, int64_t key, int column) {
    enum wanted wanted = ANYTHING;
    switch (planted->plant) {
    case NAN_GRAD:
        for (int head = 0; head < spec_of(planted->problem)->heads && key == planted->key; head++)
            if (by_sign(planted->problem, QUERY, head, key, ANYTHING) == NOT_FINITE)
                wanted = NOT_FINITE;
        return wanted;
    case NAN_QUERY:
        return column == COLUMN ? NOT_FINITE : ANYTHING;
    case NAN_KEY:
        return key == planted->key ? ZERO : ANYTHING;
    default:
        return by_sign(planted->problem, QUERY, HEAD, key, ANYTHING);
    }
}

static enum wanted wanted_dk(const struct planted *planted, int64_t key, int column) {
    const struct smelt__problem *const problem = planted->problem;
    if (selects(problem, QUERY, key))
        return wanted_selected(planted, key, column);
    for (int64_t query = 0; query < TOKENS; query++)
        if (selects(problem, query, key) &&
            (planted->plant == NAN_KEY ? tile_selects(problem, query, planted->key)
                                       : query / GROUP == QUERY / GROUP))
            return ANYTHING;
    return SAME;
}

/* ---- results --------------------------------------------------------------------------------- */

static const uint16_t *dq_of(const struct workload *work, int64_t query, int head) {
    return smelt__placed_row(&work->placed, TENSOR(DQ), query, head, 0);
}

static const float *dweights_of(const struct workload *work, int64_t query) {
    return smelt__placed_row(&work->placed, TENSOR(DWEIGHTS), query, 0, 0);
}

static const float *dk_of(const struct workload *work, int64_t key) {
    return smelt__placed_row(&work->placed, TENSOR(DK_FP32), key, 0, 0);
}

static void keep(const struct workload *work, struct kept *kept) {
    const struct smelt__indexer_bwd_spec *const spec = spec_of(&work->problem);
    const size_t heads = (size_t)spec->heads, dim = (size_t)spec->dim;
    for (int64_t query = 0; query < TOKENS; query++) {
        for (int head = 0; head < spec->heads; head++)
            memcpy(kept->dq + ((size_t)query * heads + (size_t)head) * dim,
                   dq_of(work, query, head), dim * sizeof *kept->dq);
        memcpy(kept->dweights + (size_t)query * heads, dweights_of(work, query),
               heads * sizeof *kept->dweights);
    }
    for (int64_t key = 0; key < ROWS; key++)
        memcpy(kept->dk + (size_t)key * dim, dk_of(work, key), dim * sizeof *kept->dk);
}

/* Whether a result is as expected, within rounding if the order of a sum may differ. NaN must not
 * be the poison. */
static int is_wanted(enum wanted wanted, float got, float clean, int exact) {
    static const uint32_t poison = 0xffffffff;
    switch (wanted) {
    case SAME:
        return exact ? memcmp(&got, &clean, sizeof got) == 0
                     : fabsf(got - clean) <= 1e-4F * (1 + fabsf(clean));
    case NOT_FINITE:
        return !isfinite(got) && memcmp(&got, &poison, sizeof got) != 0;
    case ZERO:
        return got == 0;
    default:
        return 1;
    }
}

/* A bf16 result as fp32, with the poison mapped to fp32's. */
static float widened(uint16_t bits) {
    const uint32_t poison = 0xffffffff;
    float value = smelt__bf16_to_float(bits);
    if (bits == 0xffff)
        memcpy(&value, &poison, sizeof value);
    return value;
}

static void compare_queries(const struct workload *work, const struct planted *planted,
                            const struct kept *kept, char *message, size_t size) {
    const struct smelt__indexer_bwd_spec *const spec = spec_of(&work->problem);
    for (int64_t query = 0; query < TOKENS; query++)
        for (int head = 0; head < spec->heads; head++) {
            const int64_t row = query * spec->heads + head;
            const enum wanted wanted = wanted_dweights(planted, query, head);
            if (!is_wanted(wanted, dweights_of(work, query)[head], kept->dweights[row], 1)) {
                snprintf(message, size, "dweights[%lld, %d] is %g, wanted: %s", (long long)query,
                         head, (double)dweights_of(work, query)[head], wanted_names[wanted]);
                return;
            }
            for (int column = 0; column < spec->dim; column++) {
                const float got = widened(dq_of(work, query, head)[column]);
                const enum wanted of_dq = wanted_dq(planted, query, head, column);
                if (!is_wanted(of_dq, got, widened(kept->dq[row * spec->dim + column]), 1)) {
                    snprintf(message, size, "dq[%lld, %d, %d] is %g, wanted: %s", (long long)query,
                             head, column, (double)got, wanted_names[of_dq]);
                    return;
                }
            }
        }
}

static void compare_keys(const struct workload *work, const struct planted *planted,
                         const struct kept *kept, char *message, size_t size) {
    const struct smelt__indexer_bwd_spec *const spec = spec_of(&work->problem);
    for (int64_t key = 0; key < ROWS; key++)
        for (int column = 0; column < spec->dim; column++) {
            const float got = dk_of(work, key)[column];
            const enum wanted wanted = wanted_dk(planted, key, column);
            if (!is_wanted(wanted, got, kept->dk[key * spec->dim + column], spec->deterministic)) {
                snprintf(message, size, "dk[%lld, %d] is %g, wanted: %s", (long long)key, column,
                         (double)got, wanted_names[wanted]);
                return;
            }
        }
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void plant(const struct smelt__problem *problem, enum plant plant, int64_t key) {
    const struct smelt__indexer_bwd_spec *const spec = spec_of(problem);
    float *const weights = smelt__problem_data(problem, TENSOR(WEIGHTS));
    float *const grad = smelt__problem_data(problem, TENSOR(GRAD));
    uint16_t *const q = smelt__problem_data(problem, TENSOR(Q));
    uint16_t *const k = smelt__problem_data(problem, TENSOR(K));
    switch (plant) {
    case NAN_WEIGHT:
        weights[QUERY * spec->heads + HEAD] = NAN;
        break;
    case INFINITE_WEIGHT:
        weights[QUERY * spec->heads + HEAD] = INFINITY;
        break;
    case NAN_GRAD:
        grad[QUERY * TOPK + SLOT] = NAN;
        break;
    case NAN_QUERY:
        q[(QUERY * spec->heads + HEAD) * spec->dim + COLUMN] = BF16_NAN;
        break;
    case NAN_KEY:
        k[key * spec->dim + COLUMN] = BF16_NAN;
        break;
    }
}

static int run(struct workload *work, char *message, size_t size) {
    return suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "backward", message,
                    size);
}

/* Runs without and with the planted number. */
static void spread(struct workload *work, enum plant what, char *message, size_t size) {
    const struct smelt__indexer_bwd_spec *const spec = spec_of(&work->problem);
    const size_t heads = (size_t)(TOKENS * spec->heads), dim = (size_t)spec->dim;
    const int32_t *const indices = smelt__problem_data(&work->problem, TENSOR(INDICES));
    const struct planted planted = {&work->problem, what, indices[QUERY * TOPK + SLOT]};
    struct kept kept = {malloc(heads * dim * sizeof(uint16_t)), malloc(heads * sizeof(float)),
                        malloc(ROWS * dim * sizeof(float))};
    if (!kept.dq || !kept.dweights || !kept.dk) {
        snprintf(message, size, "out of memory");
        goto out;
    }
    if (run(work, message, size))
        goto out;
    keep(work, &kept);
    plant(&work->problem, what, planted.key);
    if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) ||
        run(work, message, size))
        goto out;
    compare_queries(work, &planted, &kept, message, size);
    if (!message[0])
        compare_keys(work, &planted, &kept, message, size);
out:
    free(kept.dq);
    free(kept.dweights);
    free(kept.dk);
}

/* Compared with the reference. */
static void negative_weights(struct workload *work, char *message, size_t size) {
    const struct smelt__indexer_bwd_spec *const spec = spec_of(&work->problem);
    float *const weights = smelt__problem_data(&work->problem, TENSOR(WEIGHTS));
    for (int i = 0; i < TOKENS * spec->heads; i++)
        weights[i] = -fabsf(weights[i]);
    if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) == 0 &&
        run(work, message, size) == 0)
        workload_judge(work, message, size);
}

void run_indexer_bwd_nonfinite(struct suite *suite) {
    enum { NEGATIVE = NAN_KEY + 1, CASES };
    static const char *const names[CASES] = {
        [NAN_WEIGHT] = "NaN as a weight",          [INFINITE_WEIGHT] = "infinity as a weight",
        [NAN_GRAD] = "NaN as a slot's gradient",   [NAN_QUERY] = "NaN in a query's head",
        [NAN_KEY] = "NaN in a key that is chosen", [NEGATIVE] = "weights below 0"};
    static const char *const specs[] = {
        "indexer_bwd:heads=40,dim=64,topk=60,deterministic=1,main.group=2",
        "indexer_bwd:heads=24,dim=128,topk=60,main.group=2,main.variant=mma",
    };
    for (int i = 0; i < CASES * (int)(sizeof specs / sizeof *specs); i++) {
        const char *const spec = specs[i / CASES];
        const struct smelt__problem_options options = {
            .seed = suite->seed, .tokens = TOKENS, .rows = ROWS, .dkv = SMELT__DKV_FP32};
        struct workload work;
        char name[SUITE_SPEC + 64], message[512] = "";
        snprintf(name, sizeof name, "nonfinite: %s, %s", names[i % CASES], spec);
        if (!suite_wants(suite, name))
            continue;
        if (workload_open(&work, suite, spec, &options, message, sizeof message) == 0) {
            if (i % CASES == NEGATIVE)
                negative_weights(&work, message, sizeof message);
            else
                spread(&work, (enum plant)(i % CASES), message, sizeof message);
            workload_close(&work);
        }
        suite_report(suite, name, message);
    }
}
