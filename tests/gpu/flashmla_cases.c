#include "flashmla_cases.h"

const int flashmla_strays[FLASHMLA_STRAYS] = {-2147483647 - 1, -123456,    -1,        114514,
                                              1919810,         2147480000, 2147483647};

struct shape {
    int rows, topk;
};

/* Lists of the first shapes name all rows, of the second some rows; the third have fewer rows than
 * slots. */
static const struct shape all_shapes[] = {{128, 128},  {256, 256},  {512, 512},  {592, 128},
                                          {1840, 256}, {1592, 384}, {1521, 512}, {95, 128},
                                          {153, 256},  {114, 384}};
static const struct shape short_shapes[] = {{32, 2048}, {64, 8192}};
static const struct shape wide_shapes[] = {
    {8192, 2048}, {32768, 2048}, {65536, 2048}, {98304, 2048}, {131072, 2048}};
static const struct shape half_shapes[] = {{8192, 512}, {32768, 512}, {49152, 512}, {65536, 512}};
static const struct shape full_shapes[] = {
    {8192, 1024}, {32768, 1024}, {49152, 1024}, {65536, 1024}};

enum { SINKS = 1, LENGTHS = 2, EITHER = 4 }; /* EITHER: in all four ways */

/* A group is the product of its shapes, tokens and repetitions, with the given width and number of
 * heads, or with both (0). Repetitions have different random numbers. */
static const struct group {
    const struct shape *shapes;
    int shape_count;
    int tokens[3], token_count;
    int given, empty, repetitions;
    int dqk, heads;
} groups[] = {
    {all_shapes, 10, {1, 62, 213}, 3, 0, 0, 1, 0, 0},
    {all_shapes + 3, 7, {62, 213}, 2, EITHER, 0, 2, 0, 0},
    {all_shapes, 2, {1}, 1, SINKS | LENGTHS, 1, 1, 0, 0},
    {(const struct shape[]){{4321, 4096}}, 1, {1234}, 1, SINKS | LENGTHS, 1, 1, 0, 0},
    {(const struct shape[]){{2048, 2048}}, 1, {4096}, 1, SINKS | LENGTHS, 1, 1, 0, 0},
    {short_shapes, 2, {1, 1024}, 2, SINKS | LENGTHS, 0, 1, 0, 0},
    {wide_shapes, 5, {4096}, 1, SINKS, 0, 1, 576, 128},
    {half_shapes, 4, {4096}, 1, SINKS, 0, 1, 512, 64},
    {full_shapes, 4, {4096}, 1, SINKS, 0, 1, 512, 128},
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

/* The next digit of a number in mixed radix. */
static int digit(int *number, int radix) {
    int value = *number % radix;
    *number /= radix;
    return value;
}

static int group_size(const struct group *group) {
    return group->shape_count * group->token_count * (group->given == EITHER ? 4 : 1) *
           group->repetitions * (group->dqk ? 1 : 2) * (group->heads ? 1 : 2);
}

int flashmla_case_at(int number, struct flashmla_case *problem) {
    const struct group *group = groups;
    int left = number;
    while (left >= group_size(group)) {
        left -= group_size(group);
        if (++group == groups + GROUPS)
            return 0;
    }
    const struct shape *shape = &group->shapes[digit(&left, group->shape_count)];
    int given = group->given == EITHER ? digit(&left, 4) : group->given;
    problem->number = number;
    problem->rows = shape->rows;
    problem->topk = shape->topk;
    problem->sink = (given & SINKS) != 0;
    problem->lengths = (given & LENGTHS) != 0;
    problem->tokens = group->tokens[digit(&left, group->token_count)];
    problem->heads = group->heads ? group->heads : digit(&left, 2) ? 64 : 128;
    problem->dqk = group->dqk ? group->dqk : digit(&left, 2) ? 576 : 512;
    problem->empty = group->empty;
    return 1;
}
