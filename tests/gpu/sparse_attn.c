/* sparse_attn's cases of the GPU suite. */
#include <stdio.h>
#include <string.h>

#include "harness/random.h"
#include "ops/sparse_attn_table.h"
#include "parts.h"
#include "smelt/sparse_attn.h"
#include "sparse_attn_groups.h"

/* ---- matrix: heads x topk x widths, each with several kinds of lists ------------------------- */

static const int all_heads[] = {1, 7, 8, 16, 24, 32, 64, 128, 192};
static const int all_topk[] = {1, 63, 64, 65, 100, 640, 2048};
static const int quick_heads[] = {1, 16, 64, 128};
static const int quick_topk[] = {1, 65, 100};
static const int other_topk[] = {64, 100, 640};

struct widths {
    int dqk, dv;
};
static const struct widths main_widths[] = {{576, 512}, {512, 512}},
                           other_widths[] = {{48, 16},   {160, 128}, {128, 128},
                                             {192, 128}, {256, 256}, {336, 304}};

enum { OTHERS = COUNT(other_widths), REPEATS = 3 /* for each spec of the main widths */ };

struct shape {
    struct widths widths;
    int heads, topk, variation, backward;
};

/* The parts of the lists that a run uses. */
struct lists {
    const int *heads, *topk, *other_topk;
    int head_count, topk_count, other_count; /* other_count: number of values of topk with other
                                                widths */
    int repeats;
};

static struct lists lists_of(const struct suite *suite, int backward) {
    const int repeats = suite->quick || backward ? 1 : REPEATS;
    return suite->quick
               ? (struct lists){quick_heads,       quick_topk, quick_topk + 2, COUNT(quick_heads),
                                COUNT(quick_topk), 1,          repeats}
               : (struct lists){all_heads,       all_topk,          other_topk, COUNT(all_heads),
                                COUNT(all_topk), COUNT(other_topk), repeats};
}

/* Shapes: the main widths with everything, then the others with less. 0 past the last; *count:
 * their number. */
static int pass_shape_at(const struct suite *suite, int number, int backward, struct shape *shape,
                         int *count) {
    const struct lists lists = lists_of(suite, backward);
    const int per_width = lists.head_count * lists.topk_count * lists.repeats;
    const int main_count = COUNT(main_widths) * per_width, other = number - main_count;
    const int per_other = suite->quick ? 1 : COUNT(quick_heads) * lists.other_count;
    *count = main_count + OTHERS * per_other;
    if (number >= *count)
        return 0;
    if (other < 0)
        *shape = (struct shape){
            main_widths[number / per_width],
            lists.heads[number / (lists.topk_count * lists.repeats) % lists.head_count],
            lists.topk[number / lists.repeats % lists.topk_count],
            number % lists.repeats == REPEATS - 1, backward};
    else if (suite->quick)
        *shape = (struct shape){other_widths[other], quick_heads[other % COUNT(quick_heads)],
                                lists.other_topk[0], 0, backward};
    else
        *shape = (struct shape){other_widths[other / per_other],
                                quick_heads[other / lists.other_count % COUNT(quick_heads)],
                                lists.other_topk[other % lists.other_count],
                                other % lists.other_count % 2, backward};
    return 1;
}

/* The forward pass's shapes, then the backward pass's. */
static int shape_at(const struct suite *suite, int number, struct shape *shape) {
    int count;
    return pass_shape_at(suite, number, 0, shape, &count) ||
           pass_shape_at(suite, number - count, 1, shape, &count);
}

/* Reduces the problem to about a second on the emulator. */
static void shrink(struct smelt__problem_options *problem) {
    problem->batches = problem->batches > 2 ? 2 : problem->batches;
    problem->tokens = 3;
    problem->rows = problem->rows > 1000 ? 1000 : problem->rows;
    problem->width = problem->width > 200 ? 200 : problem->width;
}

/* Some settings cycle with the case's number, the others are drawn. `bucketed`: rows may be
 * wider. */
static void draw_problem(const struct suite *suite, const struct shape *shape, int number,
                         int bucketed, struct smelt__problem_options *problem) {
    const int topk = shape->topk;
    struct smelt__random random = smelt__random_at(suite->seed, 0, (uint64_t)number);
    problem->seed = suite->seed * 1000 + (uint64_t)number;
    problem->batches = PICK(&random, 1, 1, 2, 3);
    problem->tokens = suite->quick ? 5 : PICK(&random, 11, 13, 20, 37);
    problem->rows = PICK(&random, topk / 2 + 3, topk + 1, 4096, 10007);
    problem->width = number % 3 == 0 ? 1 + smelt__random_below(&random, topk) : topk;
    if (bucketed && smelt__random_below(&random, 2) == 0)
        problem->width = topk + 1 + smelt__random_below(&random, topk);
    problem->lists = (enum smelt__lists)((number + shape->variation + bucketed * number / 4) % 4);
    problem->query_list = (enum smelt__query_list)(number % 9 < 6 ? number % 9 : 0);
    problem->spiky = number % 4 == 1;
    problem->topk_length = smelt__random_below(&random, 3) == 0;
    problem->strided = smelt__random_below(&random, 3) == 0;
    problem->max_logits = (int)smelt__random_below(&random, 2);
    if (smelt__random_below(&random, 8) == 0)
        problem->scale = 0.5F;
    problem->dkv = (enum smelt__dkv)smelt__random_below(&random, 3);
    if (suite->emulated)
        shrink(problem);
}

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    struct shape shape;
    char buckets[64] = "";
    if (!shape_at(suite, number, &shape))
        return 0;
    const int sink = /* with and without a sink, cyclically */
        (shape.heads + shape.topk + shape.widths.dqk / 64 + shape.variation) % 2;
    const char *knobs = shape.widths.dv == 512 && suite->knobs ? suite->knobs : "";
    if (number % (suite->quick ? 8 : 4) == 3)
        snprintf(buckets, sizeof buckets, ",buckets=%d/%d", 1 + shape.topk / 9, 2 + shape.topk / 3);
    snprintf(one->spec, sizeof one->spec, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=%d%s%s%s%s%s%s",
             shape.heads, shape.widths.dqk, shape.widths.dv, shape.topk, sink ? ",sink=1" : "",
             buckets, shape.backward ? ",passes=backward" : "",
             shape.backward && number % 3 == 1 ? ",deterministic=1" : "", *knobs ? "," : "", knobs);
    one->sample = suite->quick ? 4 : 24;
    draw_problem(suite, &shape, number, buckets[0] != 0, &one->problem);
    return 1;
}

/* ---- offsets beyond 32 bits ------------------------------------------------------------------ */

#define BACKWARD ",passes=backward"

/* Rows x dqk, and queries x heads x dqk and dv, exceed 2^31 elements. */
static const struct suite_case large[] = {
    SUITE_CASE("large: S above 2^22", "sparse_attn:heads=16,dqk=128,dv=64,topk=640", 64,
               .tokens = 64, .rows = (1 << 22) + 7, .max_logits = 1),
    SUITE_CASE("large: S x dqk above 2^31", "sparse_attn:heads=16,dqk=576,dv=512,topk=640", 64,
               .tokens = 32, .rows = (1 << 22) + 7, .max_logits = 1),
    SUITE_CASE("large: T x H x dqk above 2^31", "sparse_attn:heads=128,dqk=576,dv=512,topk=64", 64,
               .tokens = 33000, .rows = 4096, .max_logits = 1),
    SUITE_CASE("large: backward, S above 2^22",
               "sparse_attn:heads=16,dqk=128,dv=64,topk=640" BACKWARD, 64, .tokens = 64,
               .rows = (1 << 22) + 7, .max_logits = 1),
    SUITE_CASE("large: backward, S x dqk above 2^31",
               "sparse_attn:heads=16,dqk=576,dv=512,topk=640" BACKWARD, 64, .tokens = 32,
               .rows = (1 << 22) + 7, .max_logits = 1),
    SUITE_CASE("large: backward, T x H x dqk above 2^31",
               "sparse_attn:heads=128,dqk=576,dv=512,topk=64" BACKWARD, 64, .tokens = 33000,
               .rows = 4096, .max_logits = 1),
    SUITE_CASE("large: backward, deterministic, S x dqk above 2^31",
               "sparse_attn:heads=16,dqk=576,dv=512,topk=640" BACKWARD ",deterministic=1", 64,
               .tokens = 64, .rows = (1 << 22) + 7, .max_logits = 1),
    SUITE_CASE("large: backward, deterministic, in chunks, two rounds",
               "sparse_attn:heads=64,dqk=576,dv=512,topk=2048" BACKWARD ",deterministic=1", 64,
               .tokens = 4000, .rows = 8192, .max_logits = 1),
    {.name = NULL},
};

/* ---- one launch a thousand times ------------------------------------------------------------- */

#define REPEATED(spec_, tokens_, lists_)                                                           \
    SUITE_CASE(NULL, spec_, 0, .tokens = (tokens_), .rows = 8192, .lists = SMELT__LISTS_##lists_,  \
               .max_logits = 1)
static const struct suite_case repeated[] = {
    REPEATED("sparse_attn:heads=64,dqk=576,dv=512,topk=2048", 1000, LOG),
    REPEATED("sparse_attn:heads=128,dqk=576,dv=512,topk=512", 1000, LOG),
    REPEATED("sparse_attn:heads=64,dqk=512,dv=512,topk=640,sink=1", 1000, LOG),
    REPEATED("sparse_attn:heads=8,dqk=576,dv=512,topk=2048", 1000, LOG),
    REPEATED("sparse_attn:heads=16,dqk=576,dv=512,topk=2048", 1000, LOG),
    REPEATED("sparse_attn:heads=32,dqk=576,dv=512,topk=2048", 1000, LOG),
    REPEATED("sparse_attn:heads=32,dqk=576,dv=512,topk=512", 1000, LOG),
    REPEATED("sparse_attn:heads=8,dqk=576,dv=512,topk=2048,buckets=auto", 1000, LOG),
    /* At least two items per thread block. */
    REPEATED("sparse_attn:heads=64,dqk=576,dv=512,topk=640" BACKWARD, 400, LOG),
    REPEATED("sparse_attn:heads=16,dqk=576,dv=512,topk=640,sink=1" BACKWARD, 1200, LOG),
    REPEATED("sparse_attn:heads=128,dqk=576,dv=512,topk=640" BACKWARD, 200, LOG),
    REPEATED("sparse_attn:heads=72,dqk=512,dv=512,topk=640,sink=1" BACKWARD, 200, LOG),
    /* Repeated rows: many concurrent additions to one row. */
    REPEATED("sparse_attn:heads=64,dqk=576,dv=512,topk=600" BACKWARD, 300, ADVERSARIAL),
    REPEATED("sparse_attn:heads=128,dqk=576,dv=512,topk=600" BACKWARD, 300, ADVERSARIAL),
    REPEATED("sparse_attn:heads=100,dqk=512,dv=512,topk=127" BACKWARD, 300, ADVERSARIAL),
    REPEATED("sparse_attn:heads=64,dqk=576,dv=512,topk=640,sink=1" BACKWARD ",deterministic=1", 400,
             LOG),
    REPEATED("sparse_attn:heads=128,dqk=512,dv=512,topk=640,buckets=auto" BACKWARD
             ",deterministic=1",
             200, LOG),
    REPEATED("sparse_attn:heads=16,dqk=576,dv=512,topk=640" BACKWARD ",deterministic=1", 1200, LOG),
    REPEATED("sparse_attn:heads=16,dqk=192,dv=128,topk=640" BACKWARD ",deterministic=1", 400, LOG),
    {.spec = ""},
};

/* ---- strides of billions ---------------------------------------------------------------------- */

#define FAR(keys)                                                                                  \
    SUITE_FAR("sparse_attn:heads=8,dqk=128,dv=64,topk=32" keys, .batches = 2, .tokens = 4,         \
              .rows = 64, .query_list = SMELT__QUERY_LIST_PARTIAL, .topk_length = 1,               \
              .max_logits = 1)
static const struct suite_case far[] = {
    FAR(""), FAR(",sink=1"), FAR(BACKWARD), FAR(",sink=1,deterministic=1" BACKWARD), {.spec = ""}};

/* ---- a query's bits do not depend on its neighbours or the shape of the call ------------------ */

enum { CUT_QUERIES = 5 }; /* from the front */

/* The same call without its first queries. */
static smelt_status launch_part(const struct workload *workload, struct CUstream_st *stream) {
    const struct smelt__attention_spec *spec = workload->spec.spec;
    smelt_sparse_attn_args args = *(const smelt_sparse_attn_args *)workload->placed.args;
    args.tokens -= CUT_QUERIES;
    args.q.data = (const uint16_t *)args.q.data + CUT_QUERIES * spec->heads * spec->dqk;
    args.indices.data = (const int32_t *)args.indices.data + CUT_QUERIES * args.width;
    args.topk_length.data = (const int32_t *)args.topk_length.data + CUT_QUERIES;
    return smelt_operator_launch(workload->object, workload->pass->pass, &args, stream);
}

/* All queries but the first five, then the last one alone. */
static void run_invariance(struct suite *suite) {
    static const char *const specs[] = {
        "sparse_attn:heads=7,dqk=128,dv=128,topk=65,sink=1",
        "sparse_attn:heads=7,dqk=128,dv=128,topk=65,sink=1,buckets=8/40",
        "sparse_attn:heads=64,dqk=576,dv=512,topk=640",
        "sparse_attn:heads=8,dqk=512,dv=512,topk=640,sink=1",
        "sparse_attn:heads=128,dqk=576,dv=512,topk=100",
        "sparse_attn:heads=64,dqk=576,dv=512,topk=640,buckets=64/256",
    };
    const int small = suite->quick || suite->emulated;
    for (int i = 0; i < 2 * (small ? 2 : COUNT(specs)); i++) {
        char name[SUITE_SPEC + 32];
        const struct part part = {.name = name,
                                  .spec = specs[i / 2],
                                  .problem = {.seed = suite->seed,
                                              .tokens = i % 2 ? CUT_QUERIES + 1 : 24,
                                              .rows = 3000,
                                              .lists = SMELT__LISTS_ADVERSARIAL,
                                              .topk_length = 1,
                                              .max_logits = 1},
                                  .output = SMELT__SPARSE_ATTN_OUT,
                                  .launch = launch_part,
                                  .queries = CUT_QUERIES};
        snprintf(name, sizeof name, "invariance: %s%s", part.spec, i % 2 ? ", one query" : "");
        run_part(suite, &part);
    }
}

/* ---- the row --------------------------------------------------------------------------------- */

static const char *const launches[] = {
    "sparse_attn:heads=16,dqk=576,dv=512,topk=256",
    "sparse_attn:heads=16,dqk=576,dv=512,topk=256,buckets=64/128",
    "sparse_attn:heads=16,dqk=576,dv=512,topk=256,passes=backward",
    "sparse_attn:heads=16,dqk=576,dv=512,topk=256,buckets=64/128,passes=backward,deterministic=1",
    NULL,
};

static const struct suite_group groups[] = {
    {"boundaries", run_boundaries}, {"heads", run_heads},     {"rises", run_rises},
    {"invariance", run_invariance}, {"buckets", run_buckets}, {NULL, NULL},
};

const struct suite_operator suite_operator_sparse_attn = {
    .matrix = matrix_case,
    .large = large,
    .repeated = repeated,
    .quick_repeated = {.tokens = 5, .rows = 300},
    .launches = launches,
    .launch = {.tokens = 64, .rows = 5000, .max_logits = 1},
    .quick_launch = {.tokens = 4, .rows = 300, .width = 136, .max_logits = 1}, /* three buckets */
    .far = far,
    .groups = groups};
