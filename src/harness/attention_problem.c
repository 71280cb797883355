/* Problems of operators over lists of slots: their options, the contents of the tensors, and the bytes
 * that a call may access. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/attention.h"
#include "harness/normal.h"
#include "harness/parallel.h"
#include "harness/random.h"
#include "reference/bf16.h"

enum {
    STREAM_Q = 1,
    STREAM_K,
    STREAM_V,
    STREAM_SINK,
    STREAM_QUERIES,
    STREAM_GRAD_OUT = 11,
    STREAM_OUT,
    STREAM_DK_SUM,
    STREAM_DV_SUM
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t granularity_of(const struct smelt__attention_spec *spec) {
    return spec->granularity ? spec->granularity : 1;
}

/* ---- options --------------------------------------------------------------------------------- */

const struct smelt__problem_options smelt__attention_kinds[SMELT__ATTENTION_KINDS] = {
    {.lists = SMELT__LISTS_RANDOM},
    {.lists = SMELT__LISTS_CAUSAL, .own[SMELT__LIMITS] = SMELT__LIMITS_CAUSAL},
    {.lists = SMELT__LISTS_WINDOW, .own[SMELT__LIMITS] = SMELT__LIMITS_ODD},
    {.lists = SMELT__LISTS_ADVERSARIAL},
    {.lists = SMELT__LISTS_CAUSAL,
     .own[SMELT__LIMITS] = SMELT__LIMITS_CAUSAL,
     .topk_length = 1,
     .max_logits = 1,
     .dkv = SMELT__DKV_ADD},
    {.lists = SMELT__LISTS_ADVERSARIAL,
     .own[SMELT__LIMITS] = SMELT__LIMITS_ODD,
     .topk_length = 1,
     .max_logits = 1,
     .dkv = SMELT__DKV_FP32},
};

/* ---- figures --------------------------------------------------------------------------------- */

/* A query's rows and heads, in all. */
static double pairs(const struct smelt__attention_spec *spec,
                    const struct smelt__problem_options *of) {
    return (double)(of->batches * of->tokens * of->width * granularity_of(spec)) * spec->heads;
}

double smelt__attention_forward_work(const void *of, const struct smelt__problem_options *options) {
    const struct smelt__attention_spec *const spec = of;
    return pairs(spec, options) * (spec->dqk + spec->dv);
}

/* Includes one pass over the keys' gradients. */
double smelt__attention_backward_work(const void *of,
                                      const struct smelt__problem_options *options) {
    const struct smelt__attention_spec *const spec = of;
    const int kv_heads = spec->kv_heads ? spec->kv_heads : 1;
    return pairs(spec, options) * (3 * spec->dqk + 2 * spec->dv) +
           (double)(options->batches * options->rows) * kv_heads * (spec->dqk + spec->dv);
}

double smelt__attention_target_work(const void *of, const struct smelt__problem_options *options) {
    const struct smelt__attention_spec *const spec = of;
    return pairs(spec, options) * spec->dqk;
}

/* Measured on one H200: a large bf16 matrix product under sustained load. */
static const double TFLOPS_CEILING = 690;

/* A rate measured on an H200, by rows of the table. */
struct measured {
    int64_t rows; /* for tables of at most so many rows */
    double tbs;
};

/* The rates of a gather of 1152-byte rows without arithmetic, of a reduction of fp32 rows of 2304 bytes,
 * and of a gather of grouped heads' rows, which stay in the L2 cache. */
static const struct measured gather[] = {
    {16384, 9.5}, {32768, 9.0}, {65536, 6.5}, {INT64_MAX, 5.2}};
static const struct measured reduction[] = {{16384, 3.7}, {65536, 2.25}, {INT64_MAX, 1.55}};
static const struct measured gather_in_l2[] = {{INT64_MAX, 9.4}};

static double ceiling_of(const struct measured *measured, int64_t rows) {
    while (rows > measured->rows)
        measured++;
    return measured->tbs;
}

/* Arithmetic: `columns` multiplications for each valid row and head of its group. Gather: `gathered`
 * columns of each row once for each KV head, though queries that share a tile may gather a row once. */
static int find_rates(const struct smelt__problem *problem, int columns, int gathered,
                      struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__attention_spec *const spec = problem->spec;
    const double slots = (double)problem->valid_slots, tera = 1e12;
    const int group = spec->kv_heads ? spec->heads / spec->kv_heads : spec->heads;
    found[0] = SMELT__TFLOPS(2 * slots * columns * group / tera, TFLOPS_CEILING);
    found[1] =
        SMELT__TBS("gather", 2, slots * gathered * 2 / tera,
                   ceiling_of(spec->kv_heads ? gather_in_l2 : gather, problem->options.rows));
    return 2;
}

int smelt__attention_forward_rates(const struct smelt__problem *problem,
                                   struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__attention_spec *const spec = problem->spec;
    const int columns = spec->dqk + spec->dv;
    return find_rates(problem, columns, spec->kv_heads ? columns : spec->dqk, found);
}

int smelt__attention_target_rates(const struct smelt__problem *problem,
                                  struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__attention_spec *const spec = problem->spec;
    return find_rates(problem, spec->dqk, spec->dqk, found);
}

/* Arithmetic: five products, of the scores, dp, dq, dk and dv; the only rate for grouped heads. Reduction:
 * each slot's fp32 row once, although queries that share a tile may reduce a common row. */
int smelt__attention_backward_rates(const struct smelt__problem *problem,
                                    struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__attention_spec *const spec = problem->spec;
    const int count = find_rates(problem, 3 * spec->dqk + 2 * spec->dv, spec->dqk, found);
    if (spec->kv_heads)
        return 1;
    found[count] = SMELT__TBS("reduction", 2, (double)problem->valid_slots * spec->dqk * 4 / 1e12,
                              ceiling_of(reduction, problem->options.rows));
    return count + 1;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int find(const struct smelt__problem *problem, const char *name) {
    const struct smelt__args_table *const table = problem->pass->tensors;
    for (int i = 0; i < table->count; i++)
        if (strcmp(table->rows[i].name, name) == 0)
            return i;
    return -1;
}

/* The first of two names that the table has. */
static int find_either(const struct smelt__problem *problem, const char *name, const char *other) {
    const int tensor = find(problem, name);
    return tensor < 0 ? find(problem, other) : tensor;
}

struct smelt__attention_tensors smelt__attention_tensors(const struct smelt__problem *problem) {
    const struct smelt__attention_spec *const spec = problem->spec;
    return (struct smelt__attention_tensors){
        .q = find(problem, "q"),
        .k = find_either(problem, "k", "kv"),
        .v = find(problem, "v"),
        .indices = find(problem, "indices"),
        .topk_length = find(problem, "topk_length"),
        .limit = find(problem, "limit"),
        .sink = find(problem, "sink"),
        .queries = find(problem, "queries"),
        .query_count = find(problem, "query_count"),
        .out = find(problem, "out"),
        .lse = find(problem, "lse"),
        .max_logits = find(problem, "max_logits"),
        .target = find(problem, "target"),
        .grad_out = find(problem, "grad_out"),
        .dq = find(problem, "dq"),
        .dk = {find_either(problem, "dk", "dkv"), find_either(problem, "dk_fp32", "dkv_fp32"),
               find_either(problem, "dk_sum", "dkv_sum"), spec->dqk},
        .dv = {find(problem, "dv"), find(problem, "dv_fp32"), find(problem, "dv_sum"), spec->dv},
        .dsink = find(problem, "dsink"),
    };
}

struct smelt__attention smelt__problem_attention(const struct smelt__problem *problem) {
    return problem->pass->attention(problem->spec, problem->args);
}

int64_t smelt__problem_valid_slots(const struct smelt__problem *problem, int64_t query) {
    const struct smelt__attention call = smelt__problem_attention(problem);
    return smelt__attention_rows(&call, query, 0, NULL);
}

int smelt__query_is_computed(const struct smelt__problem *problem, int64_t query) {
    return !problem->listed || problem->listed[query];
}

int smelt__attention_given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__attention_spec *const spec = problem->spec;
    const struct smelt__problem_options *const options = &problem->options;
    const struct smelt__attention_tensors tensors = smelt__attention_tensors(problem);
    if (tensor == tensors.topk_length)
        return options->topk_length;
    if (tensor == tensors.limit)
        return options->own[SMELT__LIMITS] != SMELT__LIMITS_NONE;
    if (tensor == tensors.sink || tensor == tensors.dsink)
        return spec->sink;
    if (tensor == tensors.max_logits)
        return options->max_logits;
    if (tensor == tensors.queries)
        return options->query_list != SMELT__QUERY_LIST_NONE;
    if (tensor == tensors.query_count)
        return options->query_list != SMELT__QUERY_LIST_NONE &&
               options->query_list != SMELT__QUERY_LIST_WHOLE &&
               options->query_list != SMELT__QUERY_LIST_REPEATED;
    if (problem->pass->tensors->rows[tensor].one_of)
        return smelt__key_rows_given(problem, &tensors.dk, tensor) ||
               smelt__key_rows_given(problem, &tensors.dv, tensor);
    return 1;
}

/* Whether a tensor has the same bits in every run: dq, dsink and a forward pass's results do. Sums of
 * gradients by key have no fixed order unless the operator is deterministic. With unite=1 a query that is
 * listed several times has a result for each of its neighbourhoods, any of which may be written last. */
int smelt__attention_reproducible(const struct smelt__problem *problem, int tensor) {
    const struct smelt__attention_spec *const spec = problem->spec;
    if (problem->pass->pass == SMELT_PASS_FORWARD)
        return !spec->unite || problem->options.query_list != SMELT__QUERY_LIST_REPEATED;
    return spec->deterministic || !problem->pass->tensors->rows[tensor].one_of;
}

/* ---- query lists ----------------------------------------------------------------------------- */

enum {
    STRANGERS = 4, /* entries of a query list that name no query */
    MOST_TIMES = 3 /* maximum repetitions of a query */
};

/* A number's field of the args struct; NULL: it has none. */
static void *number_of(const struct smelt__problem *problem, const char *name) {
    const struct smelt__args_table *const table = problem->pass->tensors;
    for (int i = 0; i < table->scalar_count; i++)
        if (strcmp(table->scalars[i].name, name) == 0)
            return (char *)problem->args + table->scalars[i].field;
    return NULL;
}

void smelt__attention_shape(struct smelt__problem *problem) {
    const struct smelt__problem_options *const options = &problem->options;
    size_t *const workspace_limit = number_of(problem, "workspace_limit");
    const int repeats = options->query_list == SMELT__QUERY_LIST_REPEATED ? MOST_TIMES : 1;
    const int queries = find(problem, "queries");
    problem->extents[problem->pass->tensors->rows[queries].shape[0]] =
        options->batches * options->tokens * repeats + STRANGERS;
    if (options->far && workspace_limit) /* all partial rows at once */
        *workspace_limit = SIZE_MAX;
}

/* A random half of the queries, in random order, with some entries that name no query. */
static int32_t fill_query_list(struct smelt__problem *problem, int32_t *queries) {
    const struct smelt__problem_options *options = &problem->options;
    const int64_t total = options->batches * options->tokens;
    const int32_t strangers[STRANGERS] = {-1, (int32_t)total, INT32_MAX, INT32_MIN};
    struct smelt__random random = smelt__random_at(options->seed, STREAM_QUERIES, 0);
    int32_t count = 0;
    for (int64_t query = 0; query < total; query++) {
        int times = query == 0 || (smelt__random_next(&random) & 1);
        if (times > 0 && options->query_list == SMELT__QUERY_LIST_REPEATED)
            times += (int)smelt__random_below(&random, MOST_TIMES);
        problem->listed[query] = (uint8_t)times;
        for (int k = 0; k < times; k++)
            queries[count++] = (int32_t)query;
    }
    for (int k = 0; k < STRANGERS; k++)
        queries[count++] = strangers[k];
    for (int32_t i = count - 1; i > 0; i--) {
        const int32_t j = (int32_t)smelt__random_below(&random, i + 1), kept = queries[i];
        queries[i] = queries[j];
        queries[j] = kept;
    }
    return count;
}

/* Queries that are not in the list follow it, so that a kernel that reads too far computes them. */
static int make_query_list(struct smelt__problem *problem,
                           const struct smelt__attention_tensors *tensors) {
    const struct smelt__problem_options *options = &problem->options;
    const int64_t total = options->batches * options->tokens;
    int32_t *queries = smelt__problem_data(problem, tensors->queries);
    int32_t *query_count = smelt__problem_data(problem, tensors->query_count);
    problem->listed = calloc((size_t)total + 1, 1);
    if (!problem->listed)
        return -1;
    const int32_t count = fill_query_list(problem, queries);
    int64_t all = count;
    for (int64_t query = 0; query < total; query++)
        if (!problem->listed[query])
            queries[all++] = (int32_t)query;
    *(int64_t *)number_of(problem, "query_capacity") =
        options->query_list == SMELT__QUERY_LIST_PARTIAL ? all : count;
    if (options->query_list == SMELT__QUERY_LIST_EMPTY)
        memset(problem->listed, 0, (size_t)total);
    if (query_count)
        *query_count = options->query_list == SMELT__QUERY_LIST_CLAMPED ? count + 1000
                       : options->query_list == SMELT__QUERY_LIST_EMPTY ? -5
                                                                        : count;
    return 0;
}

/* ---- what the inputs hold -------------------------------------------------------------------- */

/* Spiky heads. In the last column every key holds 8; through it all scores of a head move by 110 or
 * -110. In every second query the scores are multiplied by 1, 8 or 40. In the others they change from
 * the table's first row to its last, through the column before, where a key holds its place in the
 * table: in every second head they rise by 1000, else fall by 1000 or 128. So key blocks in order each
 * raise the maximum, leave it far above, or in long lists a little above; over the whole table scores
 * change by more than fp32's exponents reach. */
static const float SPIKE_KEY = 8.0F, SPIKE_SHIFT = 110.0F, SPIKE_RISE = 1000.0F,
                   SPIKE_SLOW_FALL = 128.0F;

/* A head's row of q, number query * heads + head. */
static void make_spiky(const struct smelt__problem_options *options, int heads, int dqk,
                       uint64_t row, uint16_t *q) {
    static const float factors[] = {1.0F, 8.0F, 40.0F};
    const float scale = options->scale;
    const int rises = row / (uint64_t)heads % 2 == 1;
    struct smelt__random random = smelt__random_at(options->seed, STREAM_Q, ~row);
    float factor = rises ? 1.0F : factors[smelt__random_below(&random, 3)];
    float shift = SPIKE_SHIFT / (SPIKE_KEY * scale);
    for (int d = 0; d < dqk; d++)
        q[d] = smelt__bf16_from_float(factor * smelt__bf16_to_float(q[d]));
    q[dqk - 1] = smelt__bf16_from_float(smelt__random_next(&random) & 1 ? shift : -shift);
    float rise = row % 2 == 0 ? SPIKE_RISE : row % 4 == 1 ? -SPIKE_RISE : -SPIKE_SLOW_FALL;
    q[dqk - 2] = smelt__bf16_from_float(rises ? rise / scale : 0.0F);
}

/* Normal values; with enough heads also -inf (no sink), one sink that has all of the weight, and
 * one whose exponential is subnormal. */
static void fill_sinks(uint64_t seed, uint64_t heads, float *sink) {
    const struct smelt__normals *const normals = smelt__normals();
    struct smelt__random random = smelt__random_at(seed, STREAM_SINK, 0);
    for (uint64_t head = 0; head < heads; head++) {
        uint64_t bits = smelt__random_next(&random);
        sink[head] = 2.0F * smelt__bf16_to_float(normals->values[bits & (SMELT__NORMALS - 1)]);
    }
    if (heads >= 3) {
        sink[seed % heads] = -INFINITY;
        sink[(seed + 1) % heads] = INFINITY;
    }
    if (heads >= 4)
        sink[(seed + 2) % heads] = -90.0F;
}

struct fill {
    struct smelt__problem *problem;
    struct smelt__attention_tensors tensors;
    struct smelt__attention call;
    int64_t entries;
    _Atomic int32_t *reach; /* [B, lists, entries] rows of the entry that some query reads */
    _Atomic int64_t valid_rows, computed;
};

/* Lists of blocks are lists of rows in a smaller table; those of a query are drawn apart. */
static void fill_lists(const struct fill *fill, int64_t query) {
    const int64_t tokens = fill->call.tokens, b = query / tokens, t = query % tokens;
    const int indices = fill->tensors.indices, topk_length = fill->tensors.topk_length;
    int32_t *const rows = smelt__problem_data(fill->problem, indices);
    int32_t *const lengths = smelt__problem_data(fill->problem, topk_length);
    for (int64_t list = 0; list < fill->call.lists; list++) {
        struct smelt__problem_options of = fill->problem->options;
        of.rows = fill->entries;
        of.seed += 1000003 * (uint64_t)list;
        const int64_t count = smelt__lists_make(
            &of, query, rows + smelt__problem_at(fill->problem, indices, b, t, list));
        if (lengths)
            lengths[smelt__problem_at(fill->problem, topk_length, b, t, list)] =
                smelt__lists_counted(&of) ? (int32_t)count : smelt__lists_length(&of, query);
    }
}

static void fill_queries(void *user, int64_t begin, int64_t end) {
    const struct fill *fill = user;
    struct smelt__problem *const problem = fill->problem;
    const struct smelt__problem_options *const of = &problem->options;
    const int heads = fill->call.spec.heads, dqk = fill->call.spec.dqk, limit = fill->tensors.limit;
    int32_t *const limits = limit < 0 ? NULL : smelt__problem_data(problem, limit);
    uint16_t *const q = smelt__problem_data(problem, fill->tensors.q);
    for (int64_t query = begin; query < end; query++) {
        fill_lists(fill, query);
        if (limits)
            limits[smelt__problem_at(problem, limit, query / of->tokens, query % of->tokens, 0)] =
                smelt__lists_limit(of, query);
        for (int64_t row = query * heads; of->spiky && row < (query + 1) * heads; row++)
            make_spiky(of, heads, dqk, (uint64_t)row,
                       q + smelt__problem_row(problem, fill->tensors.q, row));
    }
}

static void enlarge(_Atomic int32_t *to, int32_t value) {
    int32_t before = atomic_load_explicit(to, memory_order_relaxed);
    while (before < value && !atomic_compare_exchange_weak(to, &before, value))
        ;
}

/* Which rows the computed queries read, and how many. */
static void mark_rows(void *user, int64_t begin, int64_t end) {
    struct fill *const fill = user;
    const struct smelt__attention *const call = &fill->call;
    const int64_t r = call->spec.granularity;
    for (int64_t query = begin; query < end; query++) {
        const int times = fill->problem->listed ? fill->problem->listed[query] : 1;
        const int64_t limit = smelt__attention_limit(call, query);
        for (int64_t list = 0; times > 0 && list < call->lists; list++) {
            const int32_t *const row = smelt__attention_list(call, query, list);
            const int64_t slots = smelt__attention_slots(call, query, list);
            int64_t valid = 0, taken = 0;
            for (int64_t i = 0; i < slots && taken < call->spec.topk; i++) {
                const int64_t reached = row[i] < 0 ? 0 : least(limit - row[i] * r, r);
                if (reached <= 0)
                    continue;
                taken++;
                valid += reached;
                enlarge(&fill->reach[(query / call->tokens * call->lists + list) * fill->entries +
                                     row[i]],
                        (int32_t)reached);
            }
            atomic_fetch_add(&fill->valid_rows,
                             times * valid * (call->spec.kv_heads / call->lists));
        }
        atomic_fetch_add(&fill->computed, times);
    }
}

/* Makes keys spiky. Rows that no query reads hold NaN. */
static void finish_rows(void *user, int64_t begin, int64_t end) {
    const struct fill *const fill = user;
    struct smelt__problem *const problem = fill->problem;
    const struct smelt__attention *const call = &fill->call;
    const struct smelt__attention_spec *const spec = &call->spec;
    const int tensors[] = {fill->tensors.k, fill->tensors.v};
    const int columns[] = {spec->dqk, spec->dv};
    for (int64_t at = begin; at < end; at++) {
        const int64_t row = at / spec->kv_heads % call->rows;
        const int64_t b = at / spec->kv_heads / call->rows;
        const int64_t list = call->lists > 1 ? at % spec->kv_heads : 0, r = spec->granularity;
        const int is_read =
            row % r < fill->reach[(b * call->lists + list) * fill->entries + row / r];
        uint16_t *const key = (uint16_t *)smelt__problem_data(problem, fill->tensors.k) +
                              smelt__problem_row(problem, fill->tensors.k, at);
        if (problem->options.spiky) {
            key[spec->dqk - 1] = smelt__bf16_from_float(SPIKE_KEY);
            key[spec->dqk - 2] = smelt__bf16_from_float((float)row / (float)call->rows);
        }
        for (int i = 0; i < 2 && !is_read; i++)
            if (tensors[i] >= 0)
                memset((uint16_t *)smelt__problem_data(problem, tensors[i]) +
                           smelt__problem_row(problem, tensors[i], at),
                       0xff, (size_t)columns[i] * sizeof *key);
    }
}

static int fill_inputs(struct fill *fill) {
    struct smelt__problem *const problem = fill->problem;
    const struct smelt__attention_tensors *const tensors = &fill->tensors;
    const int64_t queries = fill->call.batches * fill->call.tokens;
    float *const sink = smelt__problem_data(problem, tensors->sink);
    smelt__normals_fill(problem, tensors->q, STREAM_Q);
    smelt__normals_fill(problem, tensors->k, STREAM_K);
    if (tensors->v >= 0)
        smelt__normals_fill(problem, tensors->v, STREAM_V);
    smelt__parallel_for(queries, 16, fill_queries, fill);
    if (sink)
        fill_sinks(problem->options.seed, (uint64_t)fill->call.spec.heads, sink);
    if (problem->options.query_list && make_query_list(problem, tensors) != 0)
        return -1;
    smelt__parallel_for(queries, 16, mark_rows, fill);
    smelt__parallel_for(fill->call.batches * fill->call.rows * fill->call.spec.kv_heads, 256,
                        finish_rows, fill);
    problem->valid_slots = atomic_load(&fill->valid_rows);
    problem->computed = atomic_load(&fill->computed);
    return 0;
}

/* ---- a forward pass's results, as inputs ------------------------------------------------------ */

/* Up to so many multiplications (a second or two on a few processors) results are the
 * reference's. */
static const double EXACT_WORK = 4e9;

/* No score of any problem is so many standard deviations above the mean (probability 10^-12). */
static const double RARE_DEVIATIONS = 7;

struct results {
    const struct smelt__problem *problem;
    struct smelt__attention_tensors tensors;
    struct smelt__attention call;
    double work; /* multiplications of all results */
    _Atomic int failed;
};

/* A plausible lse of a row of q with so many valid slots (at least one): the lse of as many newly drawn
 * keys, but at least as high as any score of the problem. */
static double estimate_lse(const struct smelt__problem *problem, int dqk, const uint16_t *q,
                           int64_t valid) {
    const double scale = (double)problem->options.scale;
    const int spikes = problem->options.spiky ? 2 : 0; /* columns of a key that are not random */
    double square = 0, middle = 0;
    for (int d = 0; d < dqk - spikes; d++)
        square += pow((double)smelt__bf16_to_float(q[d]), 2);
    if (spikes)
        middle = (double)(SPIKE_KEY * smelt__bf16_to_float(q[dqk - 1])) +
                 fmax(0, (double)smelt__bf16_to_float(q[dqk - 2]));
    const double deviation = scale * sqrt(square);
    return scale * middle +
           fmax(log((double)valid) + deviation * deviation / 2, RARE_DEVIATIONS * deviation);
}

/* out is normally distributed, with the variance of a mean of so many values, times the share that
 * the sink leaves. */
static void invent(const struct results *of, int64_t query, double *out, double *lse) {
    const struct smelt__problem *const problem = of->problem;
    const int heads = of->call.spec.heads, dv = of->call.spec.dv;
    uint16_t values[1024];
    for (int head = 0; head < heads; head++) {
        const int64_t row = query * heads + head;
        const int64_t list = head / (heads / of->call.lists);
        const int64_t valid = smelt__attention_rows(&of->call, query, list, NULL);
        const uint16_t *const q = (const uint16_t *)smelt__problem_data(problem, of->tensors.q) +
                                  smelt__problem_row(problem, of->tensors.q, row);
        lse[head] = valid > 0 ? estimate_lse(problem, of->call.spec.dqk, q, valid) : -INFINITY;
        if (!out)
            continue;
        const double denominator = smelt__attention_denominator(&of->call, head, lse[head]);
        const double share = valid > 0 ? exp(lse[head] - denominator) / sqrt((double)valid) : 0;
        smelt__normals_row(smelt__normals(), problem->options.seed, STREAM_OUT, (uint64_t)row,
                           values, dv);
        for (int d = 0; d < dv; d++)
            out[head * dv + d] = share * (double)smelt__bf16_to_float(values[d]);
    }
}

static void put(const struct results *of, int64_t query, const double *out, const double *lse) {
    const struct smelt__problem *const problem = of->problem;
    const int heads = of->call.spec.heads, dv = of->call.spec.dv;
    float *const lse_data = smelt__problem_data(problem, of->tensors.lse);
    for (int head = 0; head < heads; head++) {
        const int64_t row = query * heads + head;
        lse_data[smelt__problem_row(problem, of->tensors.lse, row)] = (float)lse[head];
        if (!out)
            continue;
        uint16_t *const to = (uint16_t *)smelt__problem_data(problem, of->tensors.out) +
                             smelt__problem_row(problem, of->tensors.out, row);
        for (int d = 0; d < dv; d++)
            to[d] = smelt__bf16_from_float((float)out[head * dv + d]);
    }
}

static void fill_results(void *user, int64_t begin, int64_t end) {
    struct results *const of = user;
    const size_t heads = (size_t)of->call.spec.heads, dv = (size_t)of->call.spec.dv;
    double *const lse = malloc(heads * (dv + 1) * sizeof *lse);
    double *const out = lse && of->tensors.out >= 0 ? lse + heads : NULL;
    const struct smelt__attention_results results = {.out = out, .lse = lse};
    int failed = !lse;
    for (int64_t query = begin; query < end && !failed; query++) {
        if (!smelt__query_is_computed(of->problem, query))
            continue;
        if (of->work > EXACT_WORK)
            invent(of, query, out, lse);
        else
            failed = smelt__attention_forward(&of->call, &query, 1, &results);
        if (!failed)
            put(of, query, out, lse);
    }
    if (failed)
        atomic_store(&of->failed, 1);
    free(lse);
}

/* Makes the rows of queries that are not computed NaN, so that their use shows in the results. */
static void fill_unlisted(struct smelt__problem *problem, int tensor) {
    const struct smelt__tensor_row *const row = &problem->pass->tensors->rows[tensor];
    const size_t element = smelt__element_bytes(row->element);
    const int64_t rows = smelt__problem_rows(problem, tensor);
    const int64_t each = rows / (problem->options.batches * problem->options.tokens);
    for (int64_t number = 0; problem->listed && !problem->options.far && number < rows; number++)
        if (!problem->listed[number / each]) /* far ones the emulator checks */
            memset((char *)smelt__problem_data(problem, tensor) +
                       smelt__problem_row(problem, tensor, number) * (int64_t)element,
                   0xff, (size_t)problem->extents[row->shape[row->dimensions - 1]] * element);
}

/* lse, and out if there is one, of the queries that are computed; those of others are NaN. In large
 * problems they are invented: the pass that reads them is defined for any values and takes as long. */
static int make_results(struct smelt__problem *problem,
                        const struct smelt__attention_tensors *tensors) {
    const struct smelt__attention_spec *const spec = problem->spec;
    const int group = spec->kv_heads ? spec->heads / spec->kv_heads : spec->heads;
    struct results of = {.problem = problem, .tensors = *tensors};
    of.call = smelt__problem_attention(problem);
    of.work = (double)problem->valid_slots * group * (spec->dqk + spec->dv);
    smelt__parallel_for(problem->options.batches * problem->options.tokens,
                        of.work > EXACT_WORK ? 16 : 1, fill_results, &of);
    fill_unlisted(problem, tensors->lse);
    if (tensors->out >= 0)
        fill_unlisted(problem, tensors->out);
    return atomic_load(&of.failed) ? -1 : 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* The other inputs of a backward pass. */
static int fill_gradients(struct smelt__problem *problem,
                          const struct smelt__attention_tensors *tensors) {
    smelt__normals_fill(problem, tensors->grad_out, STREAM_GRAD_OUT);
    fill_unlisted(problem, tensors->grad_out);
    return smelt__key_rows_fill(problem, &tensors->dk, STREAM_DK_SUM) != 0 ||
                   (tensors->dv.bf16 >= 0 &&
                    smelt__key_rows_fill(problem, &tensors->dv, STREAM_DV_SUM) != 0)
               ? -1
               : 0;
}

int smelt__attention_fill(struct smelt__problem *problem) {
    struct fill *const fill = calloc(1, sizeof *fill);
    int failed = !fill;
    if (fill) {
        fill->problem = problem;
        fill->tensors = smelt__attention_tensors(problem);
        fill->call = smelt__problem_attention(problem);
        const int64_t r = fill->call.spec.granularity;
        const struct smelt__attention_tensors *const tensors = &fill->tensors;
        fill->entries = (fill->call.rows + r - 1) / r;
        fill->reach = calloc((size_t)(fill->call.batches * fill->call.lists * fill->entries) + 1,
                             sizeof *fill->reach);
        failed = !fill->reach || fill_inputs(fill) != 0;
        if (!failed && problem->pass->tensors->rows[tensors->lse].role == SMELT__INPUT)
            failed = make_results(problem, tensors) != 0;
        if (!failed && tensors->grad_out >= 0)
            failed = fill_gradients(problem, tensors) != 0;
        free((void *)fill->reach);
    }
    free(fill);
    return failed ? -1 : 0;
}

/* ---- footprint ------------------------------------------------------------------------------- */

/* `rows`: [width * granularity], scratch. */
static void touch_list(const struct smelt__problem *problem, const struct smelt__attention *call,
                       const struct smelt__attention_tensors *tensors, int64_t query, int64_t list,
                       int64_t *rows, struct smelt__footprints *footprints) {
    const int64_t b = query / call->tokens, t = query % call->tokens;
    const int64_t count = smelt__attention_rows(call, query, list, rows);
    smelt__touch(footprints, tensors->indices,
                 smelt__problem_at(problem, tensors->indices, b, t, list),
                 smelt__attention_slots(call, query, list));
    for (int64_t i = 0; i < count; i++)
        for (int64_t head = list; head < call->spec.kv_heads; head += call->lists) {
            smelt__touch_row(footprints, tensors->k, b, rows[i], head);
            if (tensors->v >= 0)
                smelt__touch_row(footprints, tensors->v, b, rows[i], head);
        }
}

void smelt__attention_footprint(const struct smelt__problem *problem,
                                struct smelt__footprints *footprints) {
    const struct smelt__attention_tensors tensors = smelt__attention_tensors(problem);
    const struct smelt__attention call = smelt__problem_attention(problem);
    const int32_t *const count = smelt__problem_data(problem, tensors.query_count);
    int64_t *const rows = malloc((size_t)(call.width * call.spec.granularity) * sizeof *rows);
    footprints->failed |= !rows;
    for (int64_t query = 0; rows && footprints->inputs && query < call.batches * call.tokens;
         query++)
        for (int64_t list = 0; smelt__query_is_computed(problem, query) && list < call.lists;
             list++)
            touch_list(problem, &call, &tensors, query, list, rows, footprints);
    smelt__touch(footprints, tensors.queries, 0,
                 count ? least(*count, call.query_capacity) : call.query_capacity);
    free(rows);
}
