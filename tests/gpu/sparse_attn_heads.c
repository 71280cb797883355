/* Numbers of heads that fill no block of a kernel's: what belongs to the heads past the last is
 * computed along, and must be neither read nor written anywhere. */
#include <stdio.h>
#include <string.h>

#include "sparse_attn_groups.h"

enum { TOPK = 70, SPEC_TEXT = 128 };

/* Which kernel computes them. */
static const char ROWS[] = "variant=sm90,orientation=heads";   /* blocks of 64 */
static const char COLUMNS[] = "variant=sm90,orientation=keys"; /* rounded up to eights, to 32 */
static const char MMA[] = "variant=mma";                       /* tiles of 16, up to four a block */

static const struct {
    int heads;
    const char *knobs;
} cases[] = {
    {7, ROWS},     {40, ROWS},    {72, ROWS}, {127, ROWS}, {1, COLUMNS},
    {13, COLUMNS}, {31, COLUMNS}, {7, MMA},   {72, MMA},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* A sink, which is read by head, in all. Tensors one after another, and with room between heads: in
 * the one what is written past a query's heads falls into the next query's or behind the last, in
 * the other into a gap. */
static void describe(const struct suite *suite, int number, struct smelt__check_options *options,
                     char spec[SPEC_TEXT]) {
    struct smelt__problem_options *problem = &options->problem;
    snprintf(spec, SPEC_TEXT, "sparse_attn:heads=%d,dqk=%d,dv=512,topk=%d,sink=1,%s",
             cases[number].heads, number % 3 == 2 ? 512 : 576, TOPK, cases[number].knobs);
    memset(options, 0, sizeof *options);
    options->spec = spec;
    problem->seed = suite->seed * 100 + (uint64_t)number;
    problem->batches = 1 + number % 2;
    problem->tokens = 2;
    problem->rows = 2 * TOPK;
    problem->lists = (enum smelt__lists)(number % 4);
    problem->query_list = number % 4 == 1 ? SMELT__QUERY_LIST_PARTIAL : SMELT__QUERY_LIST_NONE;
    problem->strided = number % 2 == 0;
    problem->max_logits = 1;
}

void run_heads(struct suite *suite) {
    const int hopper = strcmp(smelt_context_arch(suite->context), "sm_90a") == 0;
    for (int i = 0; i < CASES; i++) {
        char name[256], spec[SPEC_TEXT];
        struct smelt__check_options options;
        struct smelt__check_result result;
        struct smelt__schedule schedule = smelt__schedule_at(suite->seed, i);
        describe(suite, i, &options, spec);
        options.schedules = &schedule;
        options.schedule_count = 1;
        snprintf(name, sizeof name, "heads: %s", spec);
        if (!hopper && cases[i].knobs != MMA) {
            suite_skip(suite, name, "a kernel for sm_90a");
            continue;
        }
        if (!suite_wants(suite, name))
            continue;
        smelt__check_run(suite->context, &options, &result);
        suite_report(suite, name, result.passed ? NULL : result.message);
    }
}
