/*
 * Random specs on random architectures, with random problems and schedules, on the emulator: there
 * must be no report and no wrong result. A failure is a false report or a new defect. With several
 * devices the last one runs the kernels while the first one's context is current.
 *
 *     emu_sweep [SPECS]        default 4; SMELT_TEST_SEED repeats a run
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../unit/random_spec.h"
#include "harness/check.h"
#include "harness/random.h"
#include "ops/cuts.h"
#include "second_device.h"
#include "smelt/smelt.h"

enum {
    PROBLEMS = 2,  /* of each spec */
    SCHEDULES = 3, /* of each problem: the two extremes in turn, and random ones */
    DEFAULT_SPECS = 4
};

/* Limit of a launch's multiplications; the emulator does about 100 million per second. */
static const double MOST_WORK = 60e6;

#ifdef SMELT__CUT_LIST_STEP
int smelt__cut_list_step = 64;
#endif

static const char *const archs[] = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
enum { ARCHS = sizeof archs / sizeof archs[0] };

struct sweep {
    struct random random;
    int devices, checks, failures;
};

static int one_in(struct sweep *sweep, int count) {
    return random_below(&sweep->random, count) == 0;
}

/* Selects one of the harness's operators, so that the number of specs does not grow with the
 * operators. */
static const struct smelt__harness_operator *draw_operator(struct sweep *sweep) {
    int count = 0;
    while (smelt__harness_operators[count])
        count++;
    return smelt__harness_operators[random_below(&sweep->random, count)];
}

/* Each key head has tiles and sums of its own: many take the emulator minutes and tens of GB. */
static int is_too_large(const struct smelt__spec *spec) {
    enum { MOST_KEY_HEADS = 64 };
    return smelt__spec_key(spec->schema, "kv_heads") >= 0 &&
           smelt__spec_get(spec, "kv_heads") > MOST_KEY_HEADS;
}

/* Draws a spec that the context's architecture supports. */
static void draw_spec(struct sweep *sweep, smelt_context *context, char text[SMELT__SPEC_TEXT]) {
    const struct smelt__harness_operator *op = draw_operator(sweep);
    struct smelt__message message;
    const struct smelt__schema *schema = smelt__schema_find(op->name, &message);
    smelt_status status;
    do {
        struct smelt__harness_spec parsed;
        struct smelt__spec drawn;
        do
            drawn = random_spec(&sweep->random, schema);
        while (is_too_large(&drawn));
        smelt__spec_print(&drawn, text);
        if (smelt__spec_key(schema, "passes") >= 0 &&
            one_in(sweep, 2)) /* otherwise the forward pass runs */
            strncat(text, ",passes=backward", SMELT__SPEC_TEXT - 1 - strlen(text));
        status = smelt__harness_spec_parse(&parsed, text);
        if (status == SMELT_OK)
            status = smelt_operator_supported(context, parsed.text, NULL);
        smelt__harness_spec_free(&parsed);
    } while (status != SMELT_OK);
}

/* A problem of the first pass, reduced until it is within the limit. */
static struct smelt__problem_options draw_problem(struct sweep *sweep, const char *text) {
    struct smelt__harness_spec spec;
    struct smelt__problem_options problem = {.seed = random_next(&sweep->random) >> 32};
    struct smelt__random random = smelt__random_at(problem.seed, 0, 0);
    smelt__harness_spec_parse(&spec, text);
    const struct smelt__harness_pass *pass = smelt__harness_spec_pass(&spec, 0);
    problem.batches = 1 + one_in(sweep, 3);
    problem.tokens = 1 + random_below(&sweep->random, 5);
    problem.strided = one_in(sweep, 3);
    problem.far = sweep->devices == 1 && one_in(sweep, 6); /* memory for far strides is the first
                                                              device's */
    if (spec.op->draw)
        spec.op->draw(spec.spec, &random, &problem);
    smelt__problem_defaults(spec.op, spec.spec, &problem);
    if (problem.rows >= SMELT__CUT_TOPK_COLUMNS) /* the selection of rows this long needs
                                                    workspace */
        problem.workspace_limit = 1 << 22;
    while (pass->multiplications(spec.spec, &problem) > MOST_WORK &&
           (problem.tokens > 1 || problem.width > 1)) {
        if (problem.tokens > 1)
            problem.tokens--;
        else
            problem.width = (problem.width + 1) / 2;
    }
    smelt__harness_spec_free(&spec);
    return problem;
}

static void check(struct sweep *sweep, smelt_context *context, const char *text) {
    struct smelt__schedule schedules[SCHEDULES];
    struct smelt__check_options options = {
        .spec = text, .schedules = schedules, .schedule_count = SCHEDULES};
    struct smelt__check_result result;
    options.problem = draw_problem(sweep, text);
    for (int i = 0; i < SCHEDULES; i++)
        schedules[i] =
            smelt__schedule_at(random_next(&sweep->random), i < 1 ? sweep->checks % 2 : i + 1);
    sweep->checks++;
    if (smelt__check_run(context, &options, &result) == 0)
        return;
    sweep->failures++;
    printf("FAILED %s on %s: %s\n", text, smelt_context_arch(context), result.message);
}

/* The share of the specs that falls to one architecture. */
static int sweep_arch(struct sweep *sweep, const char *arch, int specs) {
    smelt_context *context = NULL;
    if (second_device_context(sweep->devices, arch, &context) != SMELT_OK) {
        printf("%s: %s\n", arch, smelt_last_error());
        return -1;
    }
    for (int i = 0; i < specs; i++) {
        char text[SMELT__SPEC_TEXT];
        draw_spec(sweep, context, text);
        for (int k = 0; k < PROBLEMS; k++)
            check(sweep, context, text);
        printf("%-8s %s\n", arch, text);
        fflush(stdout);
    }
    smelt_context_destroy(&context);
    return 0;
}

int main(int argc, char **argv) {
    int specs = argc > 1 ? atoi(argv[1]) : DEFAULT_SPECS;
    if (!smelt__emulator() || specs < 1) {
        fprintf(stderr,
                "usage: emu_sweep [SPECS], SMELT_CUDA and SMELT_NVRTC naming the emulator\n");
        return 2;
    }
    struct sweep sweep = {.random = random_begin("emu_sweep"), .devices = second_device_begin()};
    int first = random_below(&sweep.random, ARCHS); /* a few specs do not cover all of them */
    for (int i = 0; i < ARCHS; i++) {
        int share = (specs + ARCHS - 1 - i) / ARCHS;
        if (share > 0 && sweep_arch(&sweep, archs[(first + i) % ARCHS], share) != 0)
            return 1;
    }
    printf("%d specs, %d checks under %d schedules each, %d failed\n", specs, sweep.checks,
           SCHEDULES, sweep.failures);
    return sweep.failures > 0;
}
