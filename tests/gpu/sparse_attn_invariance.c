/* A query's bits do not depend on its position, its neighbours, the shape of the call or the
 * run. */
#include <stdio.h>
#include <string.h>

#include "harness/attention.h"
#include "ops/sparse_attn_table.h"
#include "sparse_attn_groups.h"

enum { TOKENS = 24, OTHER_TOKENS = 37, ROWS = 3000 };

static const char *const specs[] = {
    "sparse_attn:heads=64,dqk=576,dv=512,topk=640",
    "sparse_attn:heads=8,dqk=512,dv=512,topk=640,sink=1",
    "sparse_attn:heads=128,dqk=576,dv=512,topk=100",
    "sparse_attn:heads=7,dqk=128,dv=128,topk=65,sink=1",
    "sparse_attn:heads=64,dqk=576,dv=512,topk=640,buckets=64/256",
    "sparse_attn:heads=7,dqk=128,dv=128,topk=65,sink=1,buckets=8/40",
};

static struct smelt__problem_options base_options(const struct suite *suite) {
    return (struct smelt__problem_options){.seed = suite->seed,
                                           .batches = 2,
                                           .tokens = TOKENS,
                                           .rows = ROWS,
                                           .lists = SMELT__LISTS_ADVERSARIAL,
                                           .topk_length = 1,
                                           .max_logits = 1};
}

/* 0 when the results of query `a` of one run have the bits of query `b` of the other. */
static int compare_bits(const struct smelt__placed *first, int64_t a,
                        const struct smelt__placed *second, int64_t b, char *message, size_t size) {
    const struct smelt__attention_spec *spec = first->problem->spec;
    for (int head = 0; head < spec->heads; head++) {
        float lse[2] = {smelt__placed_lse(first, a, head), smelt__placed_lse(second, b, head)};
        float high[2] = {smelt__placed_max_logit(first, a, head),
                         smelt__placed_max_logit(second, b, head)};
        if (memcmp(smelt__placed_out(first, a, head), smelt__placed_out(second, b, head),
                   (size_t)spec->dv * sizeof(uint16_t)) == 0 &&
            memcmp(&lse[0], &lse[1], sizeof lse[0]) == 0 &&
            memcmp(&high[0], &high[1], sizeof high[0]) == 0)
            continue;
        snprintf(message, size, "%lld and %lld, head %d, differ in their bits", (long long)a,
                 (long long)b, head);
        return -1;
    }
    return 0;
}

/* ---- the comparisons: base was run and downloaded -------------------------------------------- */

typedef void (*invariance_function)(struct suite *suite, struct workload *base, char *message,
                                    size_t size);

/* Each query in a call of its own: T = B = 1, with advanced pointers. */
static void alone(struct suite *suite, struct workload *base, char *message, size_t size) {
    const struct smelt__attention_spec *spec = base->problem.spec;
    struct smelt__placed single;
    if (suite_ok(smelt__placed_create(&single, suite->context, &base->problem), "placing", message,
                 size) != 0)
        return;
    smelt_sparse_attn_args *const args = single.args;
    const smelt_sparse_attn_args whole = *args;
    for (int64_t query = 0; query < 2 * TOKENS && !message[0]; query++) {
        *args = whole;
        args->batches = args->tokens = 1;
        args->q.data = (const uint16_t *)whole.q.data + query * spec->heads * spec->dqk;
        args->kv.data = (const uint16_t *)whole.kv.data + query / TOKENS * ROWS * spec->dqk;
        args->indices.data = (const int32_t *)whole.indices.data + query * whole.width;
        args->topk_length.data = (const int32_t *)whole.topk_length.data + query;
        if (suite_ok(smelt__placed_run(&single, base->object, NULL), "forward", message, size) == 0)
            compare_bits(&base->placed, query, &single, 0, message, size);
    }
    smelt__placed_destroy(&single);
}

/* Copies the queries, keys and values of a batch into another problem, in another order; the other
 * queries become NaN. */
static void transplant(const struct smelt__problem *from, int64_t batch,
                       struct smelt__problem *to) {
    const struct smelt__attention_spec *spec = from->spec;
    const size_t query = (size_t)spec->heads * (size_t)spec->dqk * sizeof(uint16_t);
    const size_t table = (size_t)ROWS * (size_t)spec->dqk * sizeof(uint16_t);
    const size_t row = (size_t)from->options.width * sizeof(int32_t);
    char *const q = smelt__problem_data(to, SMELT__SPARSE_ATTN_Q);
    char *const indices = smelt__problem_data(to, SMELT__SPARSE_ATTN_INDICES);
    int32_t *const lengths = smelt__problem_data(to, SMELT__SPARSE_ATTN_TOPK_LENGTH);
    const char *const from_q = smelt__problem_data(from, SMELT__SPARSE_ATTN_Q);
    const char *const from_kv = smelt__problem_data(from, SMELT__SPARSE_ATTN_KV);
    const char *const from_indices = smelt__problem_data(from, SMELT__SPARSE_ATTN_INDICES);
    const int32_t *const from_lengths = smelt__problem_data(from, SMELT__SPARSE_ATTN_TOPK_LENGTH);
    memset(q, 0xff, smelt__problem_bytes(to, SMELT__SPARSE_ATTN_Q));
    memcpy(smelt__problem_data(to, SMELT__SPARSE_ATTN_KV), from_kv + (size_t)batch * table, table);
    if (spec->sink)
        memcpy(smelt__problem_data(to, SMELT__SPARSE_ATTN_SINK),
               smelt__problem_data(from, SMELT__SPARSE_ATTN_SINK),
               (size_t)spec->heads * sizeof(float));
    for (int64_t token = 0; token < TOKENS; token++) {
        const size_t source = (size_t)(batch * TOKENS + token);
        const size_t place = (size_t)((token * 7 + 3) % OTHER_TOKENS);
        memcpy(q + place * query, from_q + source * query, query);
        memcpy(indices + place * row, from_indices + source * row, row);
        lengths[place] = from_lengths[source];
    }
}

static void elsewhere(struct suite *suite, struct workload *base, char *message, size_t size) {
    struct workload other;
    struct smelt__problem_options options = base_options(suite);
    options.seed++;
    options.batches = 1;
    options.tokens = OTHER_TOKENS;
    int opened = workload_open(&other, suite, base->spec.text, &options, message, size);
    if (opened != 0)
        return;
    for (int64_t batch = 0; batch < 2 && !message[0]; batch++) {
        transplant(&base->problem, batch, &other.problem);
        if (suite_ok(smelt__placed_refresh(&other.placed), "upload", message, size) != 0 ||
            suite_ok(smelt__placed_run(&other.placed, other.object, NULL), "forward", message,
                     size))
            break;
        for (int64_t token = 0; token < TOKENS && !message[0]; token++)
            compare_bits(&base->placed, batch * TOKENS + token, &other.placed,
                         (token * 7 + 3) % OTHER_TOKENS, message, size);
    }
    workload_close(&other);
}

/* The same problem through a query list in random order. */
static void listed(struct suite *suite, struct workload *base, char *message, size_t size) {
    struct workload other;
    struct smelt__problem_options options = base_options(suite);
    options.query_list = SMELT__QUERY_LIST_PARTIAL;
    int opened = workload_open(&other, suite, base->spec.text, &options, message, size);
    if (opened != 0)
        return;
    if (suite_ok(smelt__placed_run(&other.placed, other.object, NULL), "forward", message, size) ==
        0)
        for (int64_t query = 0; query < 2 * TOKENS && !message[0]; query++)
            if (other.problem.listed[query])
                compare_bits(&base->placed, query, &other.placed, query, message, size);
    workload_close(&other);
}

/* A query list that names queries several times, adjacent and far apart. */
static void listed_again(struct suite *suite, struct workload *base, char *message, size_t size) {
    struct workload other;
    struct smelt__problem_options options = base_options(suite);
    options.query_list = SMELT__QUERY_LIST_REPEATED;
    int opened = workload_open(&other, suite, base->spec.text, &options, message, size);
    if (opened != 0)
        return;
    int32_t *const list = smelt__problem_data(&other.problem, SMELT__SPARSE_ATTN_QUERIES);
    const smelt_sparse_attn_args *const args = other.placed.args;
    /* Invalid entries are replaced by queries of the list: query 0, or the previous entry. */
    for (int64_t i = 0, again = 0; i < args->query_capacity; i++)
        if (list[i] < 0 || list[i] >= 2 * TOKENS)
            list[i] = again++ % 2 && i > 0 ? list[i - 1] : 0;
    if (suite_ok(smelt__placed_refresh(&other.placed), "upload", message, size) == 0) {
        const smelt_status status = smelt__placed_run(&other.placed, other.object, NULL);
        if (suite_ok(status, "forward", message, size) == 0)
            for (int64_t query = 0; query < 2 * TOKENS && !message[0]; query++)
                if (other.problem.listed[query])
                    compare_bits(&base->placed, query, &other.placed, query, message, size);
    }
    workload_close(&other);
}

static void repeated(struct suite *suite, struct workload *base, char *message, size_t size) {
    struct smelt__placed again;
    const int repetitions = suite->quick ? 3 : suite->emulated ? 8 : 100;
    if (suite_ok(smelt__placed_create(&again, suite->context, &base->problem), "placing", message,
                 size) != 0)
        return;
    for (int i = 0; i < repetitions && !message[0]; i++) {
        /* On the emulator, with another schedule each time; elsewhere this has no effect. */
        smelt__emulator_configure(smelt_context_arch(suite->context),
                                  smelt__schedule_at(suite->seed, i), 0);
        if (suite_ok(smelt__placed_run(&again, base->object, NULL), "forward", message, size) != 0)
            break;
        for (int64_t query = 0; query < 2 * TOKENS && !message[0]; query++)
            compare_bits(&base->placed, query, &again, query, message, size);
    }
    smelt__placed_destroy(&again);
}

static const struct {
    const char *name;
    invariance_function run;
} comparisons[] = {{"alone", alone},
                   {"elsewhere", elsewhere},
                   {"listed", listed},
                   {"listed again", listed_again},
                   {"repeated", repeated}};

static void run_one(struct suite *suite, const char *spec, invariance_function run, char *message,
                    size_t size) {
    struct workload base;
    struct smelt__problem_options options = base_options(suite);
    if (workload_open(&base, suite, spec, &options, message, size) != 0)
        return;
    if (suite_ok(smelt__placed_run(&base.placed, base.object, NULL), "forward", message, size) ==
        0) {
        run(suite, &base, message, size);
        if (!message[0])
            workload_judge(&base, message, size);
    }
    workload_close(&base);
}

void run_invariance(struct suite *suite) {
    const int small = suite->quick || suite->emulated;
    static const int small_specs[] = {3, 5};
    size_t count = small ? 2 : sizeof specs / sizeof specs[0];
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof comparisons / sizeof comparisons[0]; k++) {
            char name[256], message[1024] = "";
            const char *spec = specs[small ? (size_t)small_specs[i] : i];
            snprintf(name, sizeof name, "invariance: %s %s", comparisons[k].name, spec);
            if (!suite_wants(suite, name))
                continue;
            if (suite->emulated && comparisons[k].run == listed_again && strstr(spec, "buckets")) {
                suite_skip(suite, name,
                           "the emulator ends a chain at its first report, see listed_again");
                continue;
            }
            run_one(suite, spec, comparisons[k].run, message, sizeof message);
            suite_report(suite, name, message);
        }
}
