/* Numbers of heads that do not fill a kernel's block: padded heads are computed, but memory beyond
 * the last head must be neither read nor written. */
#include <stdio.h>

#include "sparse_attn_groups.h"

enum { TOPK = 70 };

/* Knobs that select the kernel. */
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

/* All cases have a sink, which is read by head. Tensors are packed, so that a write beyond a
 * query's heads hits the next query or the memory after the last, or have gaps between heads, so
 * that it hits a gap. */
static int heads_case(const struct suite *suite, int number, struct suite_case *one) {
    struct smelt__problem_options *problem = &one->problem;
    if (number >= COUNT(cases))
        return 0;
    snprintf(one->spec, sizeof one->spec, "sparse_attn:heads=%d,dqk=%d,dv=512,topk=%d,sink=1,%s",
             cases[number].heads, number % 3 == 2 ? 512 : 576, TOPK, cases[number].knobs);
    problem->seed = suite->seed * 100 + (uint64_t)number;
    problem->batches = 1 + number % 2;
    problem->tokens = 2;
    problem->rows = 2 * TOPK;
    problem->lists = (enum smelt__lists)(number % 4);
    problem->query_list = number % 4 == 1 ? SMELT__QUERY_LIST_PARTIAL : SMELT__QUERY_LIST_NONE;
    problem->strided = number % 2 == 0;
    problem->max_logits = 1;
    return 1;
}

void run_heads(struct suite *suite) {
    suite_check_all(suite, "heads", heads_case);
}
