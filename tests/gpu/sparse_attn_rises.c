/* Scores that rise along a list by more than fp32's exponents reach, each key block's maximum a
 * little above the one before: a kernel that moves its maxima too late overflows, one that forgets
 * to scale what it has is wrong. */
#include <stdio.h>
#include <string.h>

#include "sparse_attn_groups.h"

/* A spiky problem's scores rise, or fall, by 1443 powers of two over the table: of 1024 rows a
 * block of 16 keys has 23, one of 64 has 90; fp32 has 127. */
enum { ROWS = 1024, WIDTH = 1000 };

static const struct {
    const char *spec;
    int hopper; /* for sm_90a alone */
} cases[] = {
    {"sparse_attn:heads=4,dqk=64,dv=64,topk=1024,block_keys=16,variant=mma", 0},
    {"sparse_attn:heads=4,dqk=576,dv=512,topk=1024,variant=mma", 0},
    {"sparse_attn:heads=4,dqk=576,dv=512,topk=1024,variant=sm90,orientation=heads", 1},
    {"sparse_attn:heads=4,dqk=576,dv=512,topk=1024,variant=sm90,orientation=keys", 1},
};
enum { CASES = sizeof cases / sizeof cases[0] };

void run_rises(struct suite *suite) {
    const int hopper = strcmp(smelt_context_arch(suite->context), "sm_90a") == 0;
    for (int i = 0; i < CASES; i++) {
        char name[256];
        struct smelt__check_result result;
        struct smelt__schedule schedule = smelt__schedule_at(suite->seed, i);
        struct smelt__check_options options = {
            .spec = cases[i].spec, .schedules = &schedule, .schedule_count = 1};
        options.problem.seed = suite->seed * 100 + (uint64_t)i;
        options.problem.tokens = 2; /* the second one's scores rise, and fall */
        options.problem.rows = ROWS;
        options.problem.width = WIDTH;
        options.problem.lists = SMELT__LISTS_WINDOW;
        options.problem.spiky = options.problem.max_logits = 1;
        options.problem.scale = 0.001F; /* the other columns' share is small: the rise is even */
        snprintf(name, sizeof name, "rises: %s", cases[i].spec);
        if (cases[i].hopper && !hopper) {
            suite_skip(suite, name, "a kernel for sm_90a");
            continue;
        }
        if (!suite_wants(suite, name))
            continue;
        smelt__check_run(suite->context, &options, &result);
        suite_report(suite, name, result.passed ? NULL : result.message);
    }
}
