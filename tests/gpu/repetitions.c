/*
 * Repeats one launch a thousand times: reproducible outputs must have the same bits each time,
 * although the timing of copies and the order of warps vary. There are enough queries for several
 * per warpgroup. On the emulator each run has another schedule. Other outputs are sometimes
 * compared with the reference.
 */
#include <stdio.h>
#include <string.h>

#include "suite.h"

enum { REPETITIONS = 1000, QUICK_REPETITIONS = 20, EMULATED_REPETITIONS = 3 };
enum { BETWEEN_JUDGEMENTS = 100, COMPARED_QUERIES = 16 };

static void judge(struct smelt__placed *placed, int launch, char *message, size_t size) {
    struct smelt__check_result result;
    memset(&result, 0, sizeof result);
    smelt__check_compare(placed, COMPARED_QUERIES, &result);
    if (!result.passed)
        snprintf(message, size, "launch %d: %.900s", launch, result.message);
}

/* Repeats the launch, which was run and downloaded once. */
static void run_again(struct suite *suite, struct workload *workload, char *message, size_t size) {
    const int repetitions = suite->emulated ? EMULATED_REPETITIONS
                            : suite->quick  ? QUICK_REPETITIONS
                                            : REPETITIONS;
    struct smelt__placed again;
    if (suite_ok(smelt__placed_create(&again, suite->context, &workload->problem), "placing",
                 message, size))
        return;
    for (int i = 1; i < repetitions && !message[0]; i++) {
        smelt__emulator_configure(smelt_context_arch(suite->context),
                                  smelt__schedule_at(suite->seed, i), 0);
        if (suite_ok(smelt__placed_run(&again, workload->object, NULL), "launch", message, size))
            break;
        const char *tensor = smelt__placed_difference(&workload->placed, &again);
        if (tensor)
            snprintf(message, size, "%s of launch %d has other bits than of the first", tensor, i);
        else if (i % BETWEEN_JUDGEMENTS == 0)
            judge(&again, i, message, size);
    }
    smelt__placed_destroy(&again);
}

static void repeat(struct suite *suite, const struct suite_case *one, char *message, size_t size) {
    struct workload workload;
    if (workload_open(&workload, suite, one->spec, &one->problem, message, size) != 0)
        return;
    if (suite_ok(smelt__placed_run(&workload.placed, workload.object, NULL), "launch", message,
                 size) == 0) {
        run_again(suite, &workload, message, size);
        if (!message[0])
            workload_judge(&workload, message, size);
    }
    workload_close(&workload);
}

static void run_case(struct suite *suite, struct suite_case one,
                     const struct smelt__harness_sizes *quick) {
    char name[256], message[1024] = "";
    snprintf(name, sizeof name, "repetitions: %s", one.spec);
    if (!suite_wants(suite, name))
        return;
    one.problem.seed = suite->seed;
    if (quick->tokens && (suite->quick || suite->emulated)) {
        one.problem.tokens = quick->tokens;
        one.problem.rows = quick->rows;
        one.problem.width = quick->width;
    }
    repeat(suite, &one, message, sizeof message);
    suite_report(suite, name, message);
}

void run_repetitions(struct suite *suite) {
    for (int op = 0; suite_operators[op]; op++)
        for (const struct suite_case *one = suite_operators[op]->repeated; one && *one->spec; one++)
            run_case(suite, *one, &suite_operators[op]->quick_repeated);
}
