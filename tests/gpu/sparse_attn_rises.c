/* Scores that rise along a list by more than fp32's exponents reach, each key block's maximum a
 * little above the one before: a kernel that moves its maxima too late overflows, one that forgets
 * to scale what it has is wrong. */
#include <stdio.h>

#include "sparse_attn_groups.h"

/* A spiky problem's scores rise, or fall, by 1443 powers of two over the table: of 1024 rows a
 * block of 16 keys has 23, one of 64 has 90; fp32 has 127. */
enum { ROWS = 1024, WIDTH = 1000 };

static int rises_case(const struct suite *suite, int number, struct suite_case *one) {
    static const char *const specs[] = {
        "sparse_attn:heads=4,dqk=64,dv=64,topk=1024,block_keys=16,variant=mma",
        "sparse_attn:heads=4,dqk=576,dv=512,topk=1024,variant=mma",
        "sparse_attn:heads=4,dqk=576,dv=512,topk=1024,variant=sm90,orientation=heads",
        "sparse_attn:heads=4,dqk=576,dv=512,topk=1024,variant=sm90,orientation=keys",
    };
    if (number >= COUNT(specs))
        return 0;
    snprintf(one->spec, sizeof one->spec, "%s", specs[number]);
    one->problem = (struct smelt__problem_options){
        .seed = suite->seed * 100 + (uint64_t)number,
        .tokens = 2, /* the second one's scores rise, and fall */
        .rows = ROWS,
        .width = WIDTH,
        .lists = SMELT__LISTS_WINDOW,
        .spiky = 1,
        .max_logits = 1,
        .scale = 0.001F /* the other columns' share is small: the rise is even */
    };
    return 1;
}

void run_rises(struct suite *suite) {
    suite_check_all(suite, "rises", rises_case);
}
