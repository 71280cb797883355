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
#include "harness/defaults.h"
#include "harness/random.h"
#include "ops/split_sizes.h"
#include "second_device.h"
#include "smelt/smelt.h"

enum {
    PROBLEMS = 2,  /* of each spec */
    SCHEDULES = 3, /* of each problem: the two extremes in turn, and random ones */
    DEFAULT_SPECS = 4
};

/* Limits of a problem. With the largest work a launch takes the emulator a second or two. Each byte of a
 * tensor takes 25 bytes of memory. */
static const struct smelt__problem_cost MOST = {.bytes = 8e6, .work = 60e6};

/* Limit of the bytes of a spec's sources. The emulator compiles about 60 kB per second. */
static const size_t MOST_SOURCE = 500000;

/* Limit of the accesses and instructions of a run, per spec. The emulator executes about 17 million accesses
 * per second; an instruction takes as long as eight accesses. */
static const uint64_t MOST_EVENTS = 60000000, INSTRUCTION = 8;

#ifdef SMELT__SPLIT_LIST_STEP
int smelt__split_list_step = 64;
#endif

static const char *const archs[] = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
enum { ARCHS = sizeof archs / sizeof archs[0] };

struct kernels {
    const char *arch;
    size_t bytes; /* of their source text */
};

struct sweep {
    struct random random;
    int specs, devices; /* specs: the requested number; fewer are drawn once the limit is reached */
    int drawn, checks, failures;
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

static int add_source(void *kernels, const char *kernel) {
    struct kernels *const all = kernels;
    char *source = NULL;
    if (smelt_kernel_source(NULL, kernel, all->arch, &source) == SMELT_OK)
        all->bytes += strlen(source);
    smelt_free(source);
    return 0;
}

/* Whether the spec's kernels take too long to compile. */
static int is_too_long(const char *spec, const char *arch) {
    struct kernels kernels = {.arch = arch};
    return smelt_spec_expand(NULL, spec, NULL, add_source, &kernels) != SMELT_OK ||
           kernels.bytes > MOST_SOURCE;
}

static int is_too_large(const struct smelt__harness_spec *spec,
                        const struct smelt__problem_options *problem) {
    const struct smelt__problem_cost cost =
        smelt__problem_cost(spec->op, smelt__harness_spec_pass(spec, 0), spec->spec, problem);
    return cost.bytes > MOST.bytes || cost.work > MOST.work;
}

/* Draws a spec that the context's architecture supports and that has problems within the limits. */
static void draw_spec(struct sweep *sweep, smelt_context *context, char text[SMELT__SPEC_TEXT]) {
    const struct smelt__problem_options smallest = {.tokens = 1, .rows = 1, .width = 1};
    const struct smelt__harness_operator *op = draw_operator(sweep);
    struct smelt__message message;
    const struct smelt__schema *schema = smelt__schema_find(op->name, &message);
    int suits;
    do {
        const struct smelt__spec drawn = random_spec(&sweep->random, schema);
        struct smelt__harness_spec parsed;
        smelt__spec_print(&drawn, text);
        if (smelt__spec_key(schema, "passes") >= 0 &&
            one_in(sweep, 2)) /* otherwise the forward pass runs */
            strncat(text, ",passes=backward", SMELT__SPEC_TEXT - 1 - strlen(text));
        suits = smelt__harness_spec_parse(&parsed, text) == SMELT_OK &&
                smelt_operator_supported(context, parsed.text, NULL) == SMELT_OK &&
                !is_too_large(&parsed, &smallest) &&
                !is_too_long(parsed.text, smelt_context_arch(context));
        smelt__harness_spec_free(&parsed);
    } while (!suits);
}

/* Makes a problem about half as large; 0: it has the smallest extents. */
static int halve(struct smelt__problem_options *problem) {
    int64_t *const extent = problem->tokens > 1    ? &problem->tokens
                            : problem->batches > 1 ? &problem->batches
                            : problem->width > problem->rows / 2 && problem->width > 1
                                ? &problem->width
                                : &problem->rows;
    const int shrinks = *extent > 1;
    *extent = (*extent + 1) / 2;
    return shrinks;
}

/* A problem of the first pass, reduced until it is within the limits. */
static struct smelt__problem_options draw_problem(struct sweep *sweep, const char *text) {
    struct smelt__harness_spec spec;
    struct smelt__problem_options problem = {.seed = random_next(&sweep->random) >> 32};
    struct smelt__random random = smelt__random_at(problem.seed, 0, 0);
    smelt__harness_spec_parse(&spec, text);
    problem.batches = 1 + one_in(sweep, 3);
    problem.tokens = 1 + random_below(&sweep->random, 5);
    problem.strided = one_in(sweep, 3);
    problem.far = sweep->devices == 1 && one_in(sweep, 6); /* memory for far strides is the first
                                                              device's */
    smelt__options_draw(spec.op, spec.spec, &random, &problem);
    smelt__options_default(spec.op, spec.spec, &problem);
    if (problem.rows >= SMELT__SPLIT_TOPK_COLUMNS) /* the selection of rows this long needs
                                                    workspace */
        problem.workspace_limit = 1 << 22;
    while (is_too_large(&spec, &problem) && halve(&problem))
        ;
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

static int is_spent(const struct sweep *sweep) {
    struct emu_statistics all = {0};
    smelt__emulator()->statistics(&all);
    return all.accesses + INSTRUCTION * all.instructions > MOST_EVENTS * (uint64_t)sweep->specs;
}

/* The share of the specs that falls to one architecture. */
static int sweep_arch(struct sweep *sweep, const char *arch, int specs) {
    smelt_context *context = NULL;
    if (second_device_context(sweep->devices, arch, &context) != SMELT_OK) {
        printf("%s: %s\n", arch, smelt_last_error());
        return -1;
    }
    for (int i = 0; i < specs && !is_spent(sweep); i++) {
        char text[SMELT__SPEC_TEXT];
        draw_spec(sweep, context, text);
        printf("%-8s %s\n", arch, text);
        fflush(stdout);
        for (int k = 0; k < PROBLEMS && !is_spent(sweep); k++)
            check(sweep, context, text);
        sweep->drawn++;
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
    struct sweep sweep = {
        .random = random_begin("emu_sweep"), .specs = specs, .devices = second_device_begin()};
    int first = random_below(&sweep.random, ARCHS); /* a few specs do not cover all of them */
    for (int i = 0; i < ARCHS; i++) {
        int share = (specs + ARCHS - 1 - i) / ARCHS;
        if (share > 0 && sweep_arch(&sweep, archs[(first + i) % ARCHS], share) != 0)
            return 1;
    }
    printf("%d of %d specs, %d checks under %d schedules each, %d failed\n", sweep.drawn, specs,
           sweep.checks, SCHEDULES, sweep.failures);
    return sweep.failures > 0;
}
