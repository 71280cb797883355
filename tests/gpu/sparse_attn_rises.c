/* Scores that increase along a list beyond fp32's exponents, each key block's maximum slightly
 * above the previous one's: a kernel that updates its maxima too late overflows, and one that does
 * not rescale its sums is wrong. */
#include <stdio.h>

#include "sparse_attn_groups.h"

/* A spiky problem's scores increase or decrease by 1443 powers of two over the table. With 1024
 * rows that is 23 per block of 16 keys and 90 per block of 64; fp32 has 127. */
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
        .tokens = 2, /* the second query's scores increase and decrease */
        .rows = ROWS,
        .width = WIDTH,
        .lists = SMELT__LISTS_WINDOW,
        .spiky = 1,
        .max_logits = 1,
        .scale = 0.001F /* other columns contribute little, so the increase is uniform */
    };
    return 1;
}

void run_rises(struct suite *suite) {
    suite_check_all(suite, "rises", rises_case);
}
