/* Compares indexer_topk with indexer_logits and topk_select: the same bits for any chunks. And
 * calls without keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "indexer_topk_groups.h"
#include "ops/indexer_topk_table.h"
#include "reference/bf16.h"

#define TENSOR(name) SMELT__INDEXER_TOPK_##name

/* Opens a workload, judges it if it was opened, and reports. */
static void run_case(struct suite *suite, const char *name, const char *spec,
                     const struct smelt__problem_options *options,
                     void (*judge)(struct suite *suite, struct workload *workload, char *message,
                                   size_t size)) {
    struct workload workload;
    char message[1024] = "";
    if (!suite_wants(suite, name))
        return;
    if (workload_open(&workload, suite, spec, options, message, sizeof message) == 0) {
        judge(suite, &workload, message, sizeof message);
        workload_close(&workload);
    }
    suite_report(suite, name, message);
}

/* ---- the two steps --------------------------------------------------------------------------- */

/* The two steps' results on the device. */
struct steps {
    smelt_operator *scorer;
    smelt_operator *select;
    void *logits, *workspace;
};

static int works(smelt_status status, const char *call, char *message, size_t size) {
    return suite_ok(status, call, message, size) == 0;
}

static int make_steps(struct suite *suite, const struct workload *workload, struct steps *steps,
                      char *message, size_t size) {
    const struct smelt__indexer_topk_spec *spec = workload->problem.spec;
    const smelt_indexer_topk_args *args = workload->placed.args;
    char logits[160], select[160];
    snprintf(logits, sizeof logits,
             "indexer_logits:heads=%d,dim=%d,dtype=%s,activation=%s,weights=%d,groups=%d",
             spec->heads, spec->dim, spec->dtype == SMELT__DTYPE_FP8 ? "fp8" : "bf16",
             spec->activation == SMELT__ACTIVATION_RELU ? "relu" : "none", spec->weights,
             spec->groups);
    snprintf(select, sizeof select,
             "topk_select:topk=%d,order=%s,groups=%d,pinned=%d,expand=%d,tail=%d,dtype=%s",
             spec->topk, spec->order == SMELT__ORDER_SCORE ? "score" : "index", spec->groups,
             spec->pinned, spec->expand, spec->tail, spec->logits ? "bf16" : "fp32");
    return works(smelt_operator_create(&steps->scorer, suite->context, logits), "logits", message,
                 size) &&
           works(smelt_operator_create(&steps->select, suite->context, select), "select", message,
                 size) &&
           works(smelt_device_alloc(suite->context,
                                    (size_t)(args->tokens * spec->groups * args->rows) *
                                        sizeof(float),
                                    &steps->logits),
                 "memory", message, size);
}

static void free_steps(struct suite *suite, struct steps *steps) {
    smelt_device_free(suite->context, steps->workspace);
    smelt_device_free(suite->context, steps->logits);
    smelt_operator_destroy(&steps->select);
    smelt_operator_destroy(&steps->scorer);
}

/* Rounds the logits to bf16. */
static int round_logits(struct suite *suite, const smelt_indexer_topk_args *given, int groups,
                        struct steps *steps, char *message, size_t size) {
    const size_t count = (size_t)(given->tokens * groups * given->rows);
    float *const logits = malloc(count * sizeof *logits);
    uint16_t *const rounded = malloc(count * sizeof *rounded);
    int good =
        logits && rounded &&
        works(smelt_stream_synchronize(suite->context, NULL), "wait", message, size) &&
        works(smelt_device_download(suite->context, logits, steps->logits, count * sizeof *logits),
              "download", message, size);
    for (size_t i = 0; good && i < count; i++)
        rounded[i] = smelt__bf16_from_float(logits[i]);
    good = good && works(smelt_device_upload(suite->context, steps->logits, rounded,
                                             count * sizeof *rounded),
                         "upload", message, size);
    free(rounded);
    free(logits);
    return good;
}

/* Runs both steps on the workload's inputs and outputs. */
static int run_steps(struct suite *suite, const struct workload *workload, struct steps *steps,
                     char *message, size_t size) {
    const smelt_indexer_topk_args *given = workload->placed.args;
    const struct smelt__indexer_topk_spec *spec = workload->problem.spec;
    smelt_indexer_logits_args logits = SMELT_INDEXER_LOGITS_ARGS_INIT;
    smelt_topk_select_args select = SMELT_TOPK_SELECT_ARGS_INIT;
    logits.tokens = select.tokens = given->tokens;
    logits.rows = select.rows = given->rows;
    logits.scale = given->scale;
    select.width = given->width;
    select.limit = given->limit;
    logits.q = given->q;
    logits.k = given->k;
    logits.weights = given->weights;
    logits.k_scale = given->k_scale;
    logits.window_begin = select.window_begin = given->window_begin;
    logits.window_end = select.window_end = given->window_end;
    logits.logits.data = steps->logits;
    select.logits.data = steps->logits;
    select.offset = given->offset;
    select.index_offset = given->index_offset;
    select.indices = given->indices;
    select.values = given->values;
    select.lengths = given->lengths;
    if (!works(smelt_topk_select_forward_workspace(steps->select, &select, &select.workspace_bytes),
               "workspace", message, size))
        return 0;
    if (select.workspace_bytes > 0 &&
        !works(smelt_device_alloc(suite->context, select.workspace_bytes, &steps->workspace),
               "memory", message, size))
        return 0;
    select.workspace = steps->workspace;
    return works(smelt_indexer_logits_forward(steps->scorer, &logits, NULL), "logits", message,
                 size) &&
           (!spec->logits || round_logits(suite, given, spec->groups, steps, message, size)) &&
           works(smelt_topk_select_forward(steps->select, &select, NULL), "select", message,
                 size) &&
           works(smelt_stream_synchronize(suite->context, NULL), "wait", message, size);
}

/* ---- the comparison -------------------------------------------------------------------------- */

/* A copy of all outputs, as they were downloaded; NULL: out of memory. */
static unsigned char *copy_outputs(const struct workload *workload, size_t *bytes) {
    static const int tensors[] = {TENSOR(INDICES), TENSOR(VALUES), TENSOR(LENGTHS)};
    unsigned char *copy = NULL;
    *bytes = 0;
    for (int i = 0; i < COUNT(tensors); i++) {
        const size_t more = smelt__problem_bytes(&workload->problem, tensors[i]);
        unsigned char *larger = more ? realloc(copy, *bytes + more) : copy;
        if (more && !larger) {
            free(copy);
            return NULL;
        }
        copy = larger;
        if (more)
            memcpy(copy + *bytes, smelt__placed_row(&workload->placed, tensors[i], 0, 0, 0), more);
        *bytes += more;
    }
    return copy;
}

/* Compares a call with limited workspace with the two steps' results. */
static void compare_call(struct workload *workload, size_t limit, int64_t causal_limit,
                         const unsigned char *expected, size_t bytes, char *message, size_t size) {
    smelt_indexer_topk_args *args = workload->placed.args;
    size_t needed = 0;
    args->workspace_limit = limit;
    args->causal_limit = causal_limit;
    if (!works(smelt_operator_workspace(workload->object, workload->pass->pass, args, &needed),
               "workspace", message, size) ||
        !works(smelt__placed_run(&workload->placed, workload->object, NULL), "forward", message,
               size))
        return;
    const size_t most = limit ? limit : SMELT_INDEXER_TOPK_WORKSPACE;
    unsigned char *got = copy_outputs(workload, &bytes);
    if (needed > most)
        snprintf(message, size, "asks for %zu bytes of workspace, above %zu", needed, most);
    else if (!got || memcmp(got, expected, bytes) != 0)
        snprintf(message, size,
                 "in %zu bytes of workspace, causal_limit %lld: other bits than the two steps",
                 needed, (long long)causal_limit);
    free(got);
}

/* Compares calls with workspace for one query's logits and the selection, for a few queries', and
 * by default; if windows grow with the query's number, also with growing chunks. */
static void compare_all(struct suite *suite, struct workload *workload, char *message,
                        size_t size) {
    const int64_t rows = workload->problem.options.rows;
    const int64_t causal = ((const smelt_indexer_topk_args *)workload->placed.args)->causal_limit;
    const struct smelt__indexer_topk_spec *spec = workload->problem.spec;
    const size_t row = ((size_t)rows + 3) / 4 * 16 * (size_t)spec->groups, one = 512 + row;
    const size_t room = rows < 32768 ? 0 : 40000000; /* the selection's */
    const size_t limits[] = {one + room, one + 4 * row + room, one + 33 * row + room, 0};
    struct steps steps = {NULL, NULL, NULL, NULL};
    size_t bytes = 0;
    unsigned char *expected = NULL;
    if (make_steps(suite, workload, &steps, message, size) &&
        works(smelt__placed_poison(&workload->placed), "poison", message, size) &&
        run_steps(suite, workload, &steps, message, size) &&
        works(smelt__placed_download(&workload->placed), "download", message, size))
        expected = copy_outputs(workload, &bytes);
    for (int i = 0; i < COUNT(limits) && expected && !message[0]; i++)
        for (int growing = 0; growing <= (causal > 0) && !message[0]; growing++)
            compare_call(workload, limits[i], growing ? causal : 0, expected, bytes, message, size);
    free(expected);
    free_steps(suite, &steps);
}

void run_two_steps(struct suite *suite) {
    static const struct {
        const char *name, *spec;
        int64_t tokens, rows;
        enum smelt__lists lists;
    } cases[] = {
        {"two steps: bf16, random windows", "indexer_topk:heads=4,dim=64,dtype=bf16,topk=20", 11,
         300, SMELT__LISTS_RANDOM},
        {"two steps: fp8, by score, damaged windows",
         "indexer_topk:heads=6,dim=64,dtype=fp8,topk=100,order=score", 13, 250,
         SMELT__LISTS_ADVERSARIAL},
        {"two steps: bf16, a query a key", "indexer_topk:heads=2,dim=64,dtype=bf16,topk=20", 90, 90,
         SMELT__LISTS_CAUSAL},
        {"two steps: groups, lists of rows",
         "indexer_topk:heads=4,dim=64,dtype=bf16,activation=none,weights=0,groups=2,topk=20,pinned="
         "2,"
         "expand=4,tail=1",
         60, 60, SMELT__LISTS_CAUSAL},
        {"two steps: bf16 logits, by score",
         "indexer_topk:heads=3,dim=64,dtype=bf16,groups=3,topk=40,order=score,logits=bf16", 40, 150,
         SMELT__LISTS_CAUSAL},
        {"two steps: the shortest window that is scored",
         "indexer_topk:heads=2,dim=64,dtype=bf16,topk=20", 1, 21, SMELT__LISTS_FULL},
        {"two steps: fp8, bf16 logits",
         "indexer_topk:heads=64,dim=128,dtype=fp8,topk=512,logits=bf16", 300, 40000,
         SMELT__LISTS_FULL},
        {"two steps: fp8, causal", "indexer_topk:heads=32,dim=128,dtype=fp8,topk=2048", 1000, 9000,
         SMELT__LISTS_CAUSAL},
        {"two steps: bf16, causal, long rows", "indexer_topk:heads=8,dim=64,dtype=bf16,topk=512",
         34000, 34000, SMELT__LISTS_CAUSAL},
        {"two steps: bf16, long rows", "indexer_topk:heads=64,dim=128,dtype=bf16,topk=512", 300,
         70001, SMELT__LISTS_FULL},
        {"two steps: fp8, few long rows", "indexer_topk:heads=64,dim=128,dtype=fp8,topk=2048", 7,
         1 << 20, SMELT__LISTS_LOG},
    };
    const int count = suite->emulated || suite->quick ? 6 : COUNT(cases);
    for (int i = 0; i < count; i++) {
        const struct smelt__problem_options options = {.seed = suite->seed + (uint64_t)i,
                                                       .tokens = cases[i].tokens,
                                                       .rows = cases[i].rows,
                                                       .lists = cases[i].lists,
                                                       .topk_length = i % 2,
                                                       .max_logits = i % 3 == 1};
        run_case(suite, cases[i].name, cases[i].spec, &options, compare_all);
    }
}

/* ---- no keys --------------------------------------------------------------------------------- */

/* No keys give indices of -1. */
static void choose_none(struct suite *suite, struct workload *workload, char *message,
                        size_t size) {
    smelt_indexer_topk_args *args = workload->placed.args;
    const struct smelt__indexer_topk_spec *spec = workload->problem.spec;
    const int64_t rows = args->rows;
    (void)suite;
    args->rows = 0;
    if (works(smelt__placed_run(&workload->placed, workload->object, NULL), "no key", message,
              size))
        for (int64_t i = 0; i < args->tokens * spec->topk; i++)
            if (((const int32_t *)smelt__placed_row(&workload->placed, TENSOR(INDICES), 0, 0,
                                                    0))[i] != -1)
                snprintf(message, size, "an index without a key is not -1");
    args->rows = rows;
}

/* Without candidates lists have only the tail, which begins at the window's end or after it: here it is empty. */
static void choose_tails(struct suite *suite, struct workload *workload, char *message,
                         size_t size) {
    smelt_indexer_topk_args *const host = workload->problem.args, *args = workload->placed.args;
    (void)suite;
    host->candidate_count = args->candidate_count = workload->problem.extents[TENSOR(C)] = 0;
    for (int64_t i = 0; i < args->tokens; i++)
        ((int32_t *)smelt__problem_data(&workload->problem, TENSOR(LIMIT)))[i] = 4 * (int32_t)i + 3;
    if (works(smelt__placed_refresh(&workload->placed), "upload", message, size) &&
        works(smelt__placed_run(&workload->placed, workload->object, NULL), "no candidate", message,
              size))
        workload_judge(workload, message, size);
}

void run_without_keys(struct suite *suite) {
    static const struct {
        const char *name, *spec;
        void (*judge)(struct suite *suite, struct workload *workload, char *message, size_t size);
    } cases[] = {
        {"no keys: indexer_topk", "indexer_topk:heads=4,dim=64,dtype=fp8,topk=20", choose_none},
        {"no keys: indexer_topk, no candidate",
         "indexer_topk:heads=2,dim=64,dtype=bf16,topk=3,candidate_block=2,expand=4,tail=1",
         choose_tails},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        const struct smelt__problem_options options = {.seed = suite->seed,
                                                       .tokens = 5,
                                                       .rows = 200,
                                                       .lists = SMELT__LISTS_FULL,
                                                       .topk_length = 1};
        run_case(suite, cases[i].name, cases[i].spec, &options, cases[i].judge);
    }
}
