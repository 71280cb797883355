/* sparse_scores's cases of the GPU suite. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/random.h"
#include "indexer_training_groups.h"
#include "ops/sparse_scores_table.h"
#include "parts.h"
#include "suite.h"

/* ---- matrix: heads x widths x both variants, lists and sizes in turn ------------------------- */

static const int all_heads[] = {1, 7, 8, 16, 24, 32, 33, 64, 72, 128, 192};
static const int quick_heads[] = {7, 64, 128};
enum { HEADS_AS_COLUMNS = 40 }; /* the rule's limit; and above 64 */
static const struct widths {
    int dqk, dv;
} widths[] = {{576, 512}, {512, 512}, {80, 48}, {192, 128}, {336, 320}};
static const int topks[] = {1, 63, 64, 65, 130, 640, 2048};

enum {
    ONE_PART = 16, /* heads that a block of any variant processes at a time: a query may then be
               repeated */
    QUERY_LISTS = SMELT__QUERY_LIST_REPEATED /* kinds other than this last one */
};

static void draw_problem(const struct suite *suite, int number, int topk, int heads,
                         struct smelt__problem_options *problem) {
    const int lists = heads <= ONE_PART ? QUERY_LISTS + 1 : QUERY_LISTS;
    struct smelt__random random = smelt__random_at(suite->seed, 9, (uint64_t)number);
    problem->seed = suite->seed * 1000 + (uint64_t)number;
    problem->batches = PICK(&random, 1, 1, 2, 3);
    problem->tokens = suite->quick ? 5 : PICK(&random, 11, 20, 37, 200);
    problem->rows = PICK(&random, topk / 2 + 3, topk + 1, 4096, 10007);
    problem->width = number % 3 == 0 ? 1 + smelt__random_below(&random, topk) : topk;
    problem->lists = (enum smelt__lists)((number + number / 4) % 4);
    const int list = (number + QUERY_LISTS) % 9;
    problem->query_list = (enum smelt__query_list)(list < lists ? list : 0);
    problem->spiky = number % 4 == 1;
    problem->topk_length = smelt__random_below(&random, 3) == 0;
    problem->strided = smelt__random_below(&random, 3) == 0;
    if (suite->emulated) { /* to what it does in a second or so */
        problem->batches = problem->batches > 2 ? 2 : problem->batches;
        problem->tokens = 3;
        problem->rows = problem->rows > 700 ? 700 : problem->rows;
        problem->width = problem->width > 200 ? 200 : problem->width;
    }
}

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const int heads = suite->quick ? COUNT(quick_heads) : COUNT(all_heads);
    const int h = number / 2 % heads, w = number / 2 / heads % COUNT(widths);
    const int repeat = number / 2 / heads / COUNT(widths), mma = number % 2;
    const int topk = topks[(h + 2 * w + 3 * repeat + mma) % COUNT(topks)];
    const int head = suite->quick ? quick_heads[h] : all_heads[h];
    const int other = head <= 64 && w % 2 == 1; /* than the rule's */
    if (repeat >= (suite->quick ? 1 : 2))
        return 0;
    snprintf(one->spec, sizeof one->spec, "sparse_scores:heads=%d,dqk=%d,dv=%d,topk=%d%s%s", head,
             widths[w].dqk, widths[w].dv, topk, (h + w + repeat) % 2 ? ",sink=1" : "",
             mma     ? ",variant=mma"
             : other ? head > HEADS_AS_COLUMNS ? ",orientation=keys" : ",orientation=heads"
                     : "");
    one->sample = suite->quick ? 4 : 24;
    draw_problem(suite, number, topk, head, &one->problem);
    return 1;
}

/* ---- offsets beyond 32 bits ------------------------------------------------------------------ */

static const struct suite_case large[] = {
    SUITE_CASE("large: sparse_scores, S x dqk above 2^31",
               "sparse_scores:heads=16,dqk=576,dv=512,topk=640", 64, .tokens = 32,
               .rows = (1 << 22) + 7),
    SUITE_CASE("large: sparse_scores, T x H x dqk above 2^31",
               "sparse_scores:heads=128,dqk=576,dv=512,topk=64", 64, .tokens = 33000, .rows = 4096),
    {.name = NULL},
};

/* ---- one launch a thousand times ------------------------------------------------------------- */

#define REPEATED(spec_)                                                                            \
    SUITE_CASE(NULL, spec_, 0, .tokens = 1000, .rows = 8192, .lists = SMELT__LISTS_LOG)
static const struct suite_case repeated[] = {
    REPEATED("sparse_scores:heads=64,dqk=576,dv=512,topk=2048"),
    REPEATED("sparse_scores:heads=128,dqk=576,dv=512,topk=640"),
    REPEATED("sparse_scores:heads=16,dqk=576,dv=512,topk=640,sink=1"),
    REPEATED("sparse_scores:heads=64,dqk=576,dv=512,topk=640,orientation=keys"),
    {.spec = ""},
};

/* ---- launches -------------------------------------------------------------------------------- */

static const char *const launches[] = {
    "sparse_scores:heads=16,dqk=576,dv=512,topk=256",
    "sparse_scores:heads=16,dqk=576,dv=512,topk=256,variant=mma",
    NULL,
};

/* ---- a slot's target depends on its query and its row alone ---------------------------------- */

enum { CUT_QUERIES = 2, CUT_SLOTS = 37 }; /* from the front */

/* The same call without its first queries and slots. */
static smelt_status launch_part(const struct workload *workload, struct CUstream_st *stream) {
    const struct smelt__attention_spec *spec = workload->spec.spec;
    smelt_sparse_scores_args args = *(const smelt_sparse_scores_args *)workload->placed.args;
    const int64_t width = args.width;
    args.tokens -= CUT_QUERIES;
    args.width -= CUT_SLOTS;
    args.q.data = (const uint16_t *)args.q.data + CUT_QUERIES * spec->heads * spec->dqk;
    args.lse.data = (const float *)args.lse.data + CUT_QUERIES * spec->heads;
    args.indices.data = (const int32_t *)args.indices.data + CUT_QUERIES * width + CUT_SLOTS;
    args.indices.strides[0] = args.indices.strides[1] = width;
    args.target.strides[0] = args.target.strides[1] = width;
    return smelt_operator_launch(workload->object, workload->pass->pass, &args, stream);
}

static void compare_invariant(struct suite *suite, const char *name, const char *spec) {
    const struct part part = {.name = name,
                              .spec = spec,
                              .problem = {.seed = suite->seed,
                                          .batches = 1,
                                          .tokens = suite->emulated || suite->quick ? 5 : 300,
                                          .rows = 700,
                                          .lists = SMELT__LISTS_ADVERSARIAL},
                              .output = SMELT__SPARSE_SCORES_TARGET,
                              .launch = launch_part,
                              .queries = CUT_QUERIES,
                              .columns = CUT_SLOTS};
    run_part(suite, &part);
}

static void run_invariance(struct suite *suite) {
    compare_invariant(suite, "invariance: sparse_scores",
                      "sparse_scores:heads=12,dqk=576,dv=512,topk=200");
    compare_invariant(suite, "invariance: sparse_scores, many heads",
                      "sparse_scores:heads=72,dqk=64,dv=64,topk=200,sink=1");
    compare_invariant(suite, "invariance: sparse_scores, variant mma",
                      "sparse_scores:heads=72,dqk=128,dv=64,topk=200,variant=mma");
}

/* ---- ranks that share the heads add their targets up ----------------------------------------- */

/* Adds to `sums` the target of `count` heads from `first` on, as a rank with these heads computes
 * it: an operator of `count` heads on its part of the tensors. */
static int add_rank(struct suite *suite, struct workload *all, int first, int count, float *sums,
                    char *message, size_t size) {
    struct smelt__placed *const placed = &all->placed;
    const struct smelt__problem_options *options = &all->problem.options;
    struct smelt__attention_spec spec = *(const struct smelt__attention_spec *)all->spec.spec;
    smelt_sparse_scores_args args = *(const smelt_sparse_scores_args *)placed->args;
    smelt_operator *rank = NULL;
    args.q.data = (const uint16_t *)args.q.data + first * spec.dqk;
    args.q.strides[2] = spec.dqk;
    args.q.strides[1] = (int64_t)spec.heads * spec.dqk;
    args.q.strides[0] = options->tokens * args.q.strides[1];
    args.lse.data = (const float *)args.lse.data + first;
    args.lse.strides[2] = 1;
    args.lse.strides[1] = spec.heads;
    args.lse.strides[0] = options->tokens * spec.heads;
    args.sink.data = (const float *)args.sink.data + first;
    char text[128];
    snprintf(text, sizeof text, "sparse_scores:heads=%d,dqk=%d,dv=%d,topk=%d,sink=%d", count,
             spec.dqk, spec.dv, spec.topk, spec.sink);
    const int good =
        suite_ok(smelt_operator_create(&rank, suite->context, text), "create", message, size) ==
            0 &&
        suite_ok(smelt__placed_poison(placed), "poison", message, size) == 0 &&
        suite_ok(smelt_sparse_scores_forward(rank, &args, NULL), "a rank", message, size) == 0 &&
        suite_ok(smelt_stream_synchronize(suite->context, NULL), "waiting", message, size) == 0 &&
        suite_ok(smelt__placed_download(placed), "download", message, size) == 0;
    const float *const target =
        good ? smelt__placed_row(placed, SMELT__SPARSE_SCORES_TARGET, 0, 0, 0) : NULL;
    for (int64_t i = 0; target && i < options->tokens * options->width; i++)
        sums[i] += target[i];
    smelt_operator_destroy(&rank);
    return good;
}

/* The sum over ranks must equal the target of one rank with all heads. */
static void run_ranks(struct suite *suite) {
    enum { FIRST = 5, SECOND = 7 };
    static const char name[] = "ranks: sparse_scores, 5 and 7 heads of 12";
    const struct smelt__problem_options options = {.seed = suite->seed,
                                                   .batches = 1,
                                                   .tokens = suite->emulated ? 4 : 100,
                                                   .rows = 500,
                                                   .lists = SMELT__LISTS_ADVERSARIAL};
    struct workload workload;
    char message[1024] = "";
    if (!suite_wants(suite, name))
        return;
    if (workload_open(&workload, suite, "sparse_scores:heads=12,dqk=128,dv=64,topk=200,sink=1",
                      &options, message, sizeof message) != 0) {
        suite_report(suite, name, message);
        return;
    }
    const int64_t count = workload.problem.options.tokens * workload.problem.options.width;
    float *const sums = calloc((size_t)count, sizeof *sums);
    if (!sums)
        snprintf(message, sizeof message, "out of memory");
    else if (add_rank(suite, &workload, 0, FIRST, sums, message, sizeof message) &&
             add_rank(suite, &workload, FIRST, SECOND, sums, message, sizeof message)) {
        /* Compared like a single call's result. */
        float *const target = (float *)(uintptr_t)smelt__placed_row(
            &workload.placed, SMELT__SPARSE_SCORES_TARGET, 0, 0, 0);
        memcpy(target, sums, (size_t)count * sizeof *sums);
        workload_judge(&workload, message, sizeof message);
    }
    free(sums);
    workload_close(&workload);
    suite_report(suite, name, message);
}

/* ---- strides of billions ---------------------------------------------------------------------- */

#define FAR(keys)                                                                                  \
    SUITE_FAR("sparse_scores:heads=3,dqk=64,dv=64,topk=40" keys, .batches = 2, .tokens = 3,        \
              .rows = 100, .query_list = SMELT__QUERY_LIST_PARTIAL, .topk_length = 1)
static const struct suite_case far[] = {FAR(""), FAR(",sink=1"), {.spec = ""}};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct suite_group groups[] = {
    {"invariance", run_invariance},
    {"ranks", run_ranks},
    {"boundaries", run_sparse_scores_boundaries},
    {NULL, NULL},
};

const struct suite_operator suite_operator_sparse_scores = {
    .matrix = matrix_case,
    .large = large,
    .repeated = repeated,
    .quick_repeated = {.tokens = 5, .rows = 300},
    .launches = launches,
    .launch = {.tokens = 64, .rows = 5000},
    .quick_launch = {.tokens = 4, .rows = 300, .width = 80},
    .far = far,
    .groups = groups};
