/*
 * Random specs on random architectures, with random problems under random schedules, on the
 * emulator: no report, no wrong result. The kernels are right as far as anyone knows, so what fails
 * here is a false alarm of the emulator or a find.
 *
 *     emu_sweep [SPECS]        default 4; SMELT_TEST_SEED repeats a run
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../unit/random_spec.h"
#include "harness/check.h"
#include "smelt/smelt.h"

enum {
    PROBLEMS = 2,  /* of each spec */
    SCHEDULES = 3, /* of each problem: the two extremes in turn, and random ones */
    WIDEST = 330,  /* slots */
    DEFAULT_SPECS = 4
};

/* Multiplications a launch may take: the emulator's second has about 100 million. */
static const double MOST_WORK = 60e6;

static const char *const archs[] = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
enum { ARCHS = sizeof archs / sizeof archs[0] };

struct sweep {
    struct random random;
    const struct smelt__family *family;
    int checks, failures;
};

/* A spec whose kernels the context's architecture can have; its text. */
static void draw_spec(struct sweep *sweep, smelt_context *context, char text[SMELT__SPEC_TEXT]) {
    smelt_sparse_attn_spec spec = SMELT_SPARSE_ATTN_SPEC_INIT;
    char *knobs = NULL;
    smelt_status status;
    do {
        struct smelt__spec drawn = random_spec(&sweep->random, sweep->family);
        smelt__spec_print(&drawn, text);
        smelt_free(knobs);
        knobs = NULL;
        status = smelt_sparse_attn_spec_parse(text, &spec, &knobs);
        if (status == SMELT_OK)
            status = smelt_sparse_attn_supported(context, &spec, NULL);
    } while (status != SMELT_OK);
    smelt_free(knobs);
}

static int one_in(struct sweep *sweep, int count) {
    return random_below(&sweep->random, count) == 0;
}

static struct smelt__problem_options draw_problem(struct sweep *sweep, const char *text) {
    smelt_sparse_attn_spec spec = SMELT_SPARSE_ATTN_SPEC_INIT;
    struct smelt__problem_options problem = {.seed = random_next(&sweep->random) >> 32};
    smelt_sparse_attn_spec_parse(text, &spec, NULL);
    int widest = spec.topk < WIDEST ? spec.topk : WIDEST;
    problem.batches = 1 + one_in(sweep, 3);
    problem.tokens = 1 + random_below(&sweep->random, 5);
    problem.width = 1 + random_below(&sweep->random, widest);
    problem.rows = 1 + random_below(&sweep->random, 700);
    problem.lists = (enum smelt__lists)random_below(&sweep->random, 4);
    problem.query_list = (enum smelt__query_list)random_below(&sweep->random, 5);
    problem.spiky = one_in(sweep, 3);
    problem.topk_length = one_in(sweep, 3);
    problem.max_logits = one_in(sweep, 2);
    problem.strided = one_in(sweep, 3);
    problem.far = problem.rows > 2 && one_in(sweep, 6);
    double row = (double)spec.heads * (spec.dqk + spec.dv);
    while (row * (double)(problem.batches * problem.tokens * problem.width) > MOST_WORK) {
        if (problem.tokens > 1)
            problem.tokens--;
        else
            problem.width = (problem.width + 1) / 2;
    }
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
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    options.cache_disable = 1;
    smelt__emulator_configure(arch, smelt__schedule_at(0, 0), 0);
    if (smelt_context_create(&context, &options) != SMELT_OK) {
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
    struct smelt__message message;
    int specs = argc > 1 ? atoi(argv[1]) : DEFAULT_SPECS;
    if (!smelt__emulator() || specs < 1) {
        fprintf(stderr,
                "usage: emu_sweep [SPECS], SMELT_CUDA and SMELT_NVRTC naming the emulator\n");
        return 2;
    }
    struct sweep sweep = {.random = random_begin("emu_sweep"),
                          .family = smelt__family_find("sparse_attn", &message)};
    int first = random_below(&sweep.random, ARCHS); /* a few specs do not reach them all */
    for (int i = 0; i < ARCHS; i++) {
        int share = (specs + ARCHS - 1 - i) / ARCHS;
        if (share > 0 && sweep_arch(&sweep, archs[(first + i) % ARCHS], share) != 0)
            return 1;
    }
    printf("%d specs, %d checks under %d schedules each, %d failed\n", specs, sweep.checks,
           SCHEDULES, sweep.failures);
    return sweep.failures > 0;
}
