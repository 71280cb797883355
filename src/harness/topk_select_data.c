/* See topk_select_data.h. */
#include "harness/topk_select_data.h"

#include <math.h>
#include <string.h>

#include "harness/parallel.h"
#include "harness/random.h"

const char *const smelt__topk_data_names[] = {
    "gaussian",   "equal",      "zeros",  "negative", "narrow",   "increasing",
    "decreasing", "correlated", "bf16",   "levels",   "periodic", "decoy",
    "plateau",    "adjacent",   "lowest", "special",  NULL};

enum { STREAM = 2, SPECIAL_KINDS = 8 };

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Approximately normal: the sum of four uniform numbers, with random low bits. */
static float normal_of(uint64_t bits) {
    const int64_t sum = (int64_t)(bits & 0xffff) + (int64_t)(bits >> 16 & 0xffff) +
                        (int64_t)(bits >> 32 & 0xffff) + (int64_t)(bits >> 48);
    const double fine = (double)(bits * UINT64_C(0x9e3779b97f4a7c15) >> 40) / (1 << 24);
    return (float)(((double)sum - 2 * 65535.0 + fine) / 37837.2);
}

static float special(int64_t row, uint64_t bits) {
    const uint32_t low = (uint32_t)bits, nan = 0x7fc00001U | (low & 0x80000000U);
    const int percent = (int)(bits >> 32 & 0xffffff) % 100;
    const float normal = normal_of(bits * 3);
    switch (row % SPECIAL_KINDS) {
    case 0: /* almost no finite ones */
        return percent < 97 ? -INFINITY : percent < 98 ? from_bits(nan) : normal;
    case 1:
        return percent < 30   ? from_bits(nan)
               : percent < 60 ? -INFINITY
               : percent < 63 ? INFINITY
                              : normal;
    case 2:
        return percent < 20 ? INFINITY : normal;
    case 3:
        return percent < 50 ? 0.0F : percent < 96 ? -0.0F : normal;
    case 4: /* subnormal */
        return from_bits(low & 0x807fffffU);
    case 5: /* any bits */
        return from_bits(low);
    case 6: /* nothing but NaN */
        return from_bits(0x7fffffffU | (low & 0x80000000U));
    default: /* the ends of the range */
        return percent < 3    ? 3.4028234e38F
               : percent < 6  ? INFINITY
               : percent < 90 ? -3.4028234e38F
                              : -INFINITY;
    }
}

static uint32_t hash(uint32_t number) {
    number = number * 0x9e3779b1U + 0x7f4a7c15U;
    number = (number ^ number >> 15) * 0x85ebca6bU;
    return number ^ number >> 13;
}

/* The last of the first two sampling rounds that sample the column, or -1
 * (templates/topk_select_rows.guess.cuh, draw_sample). */
static int sampled_in(int64_t column, int64_t columns) {
    enum { VECTOR = 4, LEAST = 512, MOST = 4096, SHARED = 32768, ROUNDS = 2 };
    const int64_t each = columns < SHARED ? 64 : 128; /* if several blocks share a row */
    const int64_t vector = column / VECTOR, vectors = columns / VECTOR;
    int64_t samples = LEAST;
    if (vector >= vectors) /* samples are whole vectors */
        return -1;
    while (samples < MOST && samples * each < columns)
        samples *= 2;
    const int64_t groups = samples / VECTOR, near = vector * groups / vectors;
    for (int round = ROUNDS - 1; round >= 0; round--)
        for (int64_t group = near - 1; group <= near + 1; group++) {
            const int64_t within = hash((uint32_t)(group + round * groups)) & 1023;
            if (group >= 0 && group < groups &&
                ((group << 10) + within) * vectors / (groups << 10) == vector)
                return round;
        }
    return -1;
}

static float make(enum smelt__topk_data data, int64_t row, int64_t column, int64_t columns,
                  uint64_t bits) {
    const float normal = normal_of(bits);
    const int odd = (int)(bits >> 7 & 1), next = (int)(bits >> 23 & 1);
    switch (data) {
    case SMELT__TOPK_EQUAL:
        return 0.75F;
    case SMELT__TOPK_ZEROS:
        return odd ? 0.0F : normal;
    case SMELT__TOPK_NEGATIVE: /* zeros: of both signs in even rows, of one sign in odd rows */
        return !odd ? -fabsf(normal) : next && row % 2 == 0 ? 0.0F : -0.0F;
    case SMELT__TOPK_NARROW:
        return 1.0F + 0.01F * (float)(bits >> 40) / (float)(1 << 24);
    case SMELT__TOPK_INCREASING:
        return (float)column * 0.37F - 5000.0F;
    case SMELT__TOPK_DECREASING:
        return 5000.0F - (float)column * 0.37F;
    case SMELT__TOPK_CORRELATED:
        return sinf((float)column * 0.0113F + (float)row) * 2.0F +
               sinf((float)column * 0.00071F * (float)(1 + row % 7)) + 0.05F * normal;
    case SMELT__TOPK_BF16: {
        uint32_t single;
        memcpy(&single, &normal, sizeof single);
        return from_bits(single & 0xffff0000U);
    }
    case SMELT__TOPK_LEVELS:
        return rintf(normal);
    case SMELT__TOPK_PERIODIC:
        return (float)(column % 32) + (column % 32 == 31 ? 0.001F * normal : 0.0F);
    case SMELT__TOPK_DECOY: {
        const int round = sampled_in(column, columns);
        const float decoy = 1e6F * (float)(round + 1) + (float)(column % 1000);
        return round < 0 ? normal : row % 2 ? -decoy : decoy;
    }
    case SMELT__TOPK_PLATEAU: /* the first sample's are above or below most others */
        if (sampled_in(column, columns) == 0)
            return row % 2 ? -1e6F : 1e6F;
        return (bits >> 40) % 64 == 0 ? 2e6F : normal;
    case SMELT__TOPK_ADJACENT: {
        const uint32_t size = (uint32_t)(bits >> 40 & 7);
        return from_bits(row % 2 ? 0x3f800000U + size : size | (next || !size ? 0x80000000U : 0));
    }
    case SMELT__TOPK_LOWEST: {
        const uint32_t lowest = 0xff7fffffU, above = 960 + (uint32_t)(bits >> 40 & 63);
        return from_bits((bits >> 50) % 64 == 0 ? lowest : lowest - above);
    }
    case SMELT__TOPK_SPECIAL:
        return special(row, bits);
    default:
        return normal;
    }
}

struct filling {
    struct smelt__problem *problem;
    int tensor;
    int64_t groups; /* rows of a query */
    enum smelt__topk_data data;
    void (*window)(const smelt_topk_select_args *, int64_t, int64_t *, int64_t *);
};

static void fill_rows(void *user, int64_t begin, int64_t end) {
    const struct filling *filling = user;
    const struct smelt__problem *problem = filling->problem;
    const int bf16 = problem->pass->tensors->rows[filling->tensor].element == SMELT__BF16;
    void *const data = smelt__problem_data(problem, filling->tensor);
    for (int64_t row = begin; row < end; row++) {
        struct smelt__random random =
            smelt__random_at(problem->options.seed, STREAM, (uint64_t)row);
        const int64_t query = row / filling->groups;
        const int64_t at =
            smelt__problem_at(problem, filling->tensor, query, row % filling->groups, 0);
        int64_t first, last;
        filling->window(problem->args, query, &first, &last);
        for (int64_t column = 0; column < problem->options.rows; column++) {
            const uint64_t bits = smelt__random_next(&random);
            const float score = column >= first && column < last
                                    ? make(filling->data, row, column, problem->options.rows, bits)
                                    : INFINITY;
            uint32_t single;
            memcpy(&single, &score, sizeof single);
            if (bf16)
                ((uint16_t *)data)[at + column] = (uint16_t)(single >> 16);
            else
                ((float *)data)[at + column] = score;
        }
    }
}

void smelt__topk_data_fill(struct smelt__problem *problem, int tensor, int64_t groups,
                           enum smelt__topk_data data,
                           void (*window)(const smelt_topk_select_args *, int64_t, int64_t *,
                                          int64_t *)) {
    struct filling filling = {problem, tensor, groups, data, window};
    smelt__parallel_for(problem->options.batches * problem->options.tokens * groups, 16, fill_rows,
                        &filling);
}
