/* Random problems of the grains' kernels: see indexer_grains.h. */
#include "indexer_grains.h"

#include <float.h>
#include <math.h>

#include "kernel_alone.h"
#include "reference/bf16.h"

enum {
    LIST_STEP = 64,
    GAP = 0x7f, /* a byte that forms a huge number in both types */
    MOST_TOPS = 1024
};

static const float PEAK = 63.0F / 64; /* larger than any other gradient */

static float draw_sign(void) {
    return below(2) ? 1.0F : -1.0F;
}

/* NaN, infinity, 0, or the largest number. */
static float draw_odd(void) {
    const float odd[] = {INFINITY, -INFINITY, NAN, 0.0F, -0.0F};
    return odd[below(5)];
}

static float draw_q(enum numbers numbers) {
    const float sign = draw_sign();
    const float coarse = sign * (float)(1 + below(7)) / 2;
    const float fine = sign * (float)(128 + below(128));
    switch (numbers) {
    case FINE:
        return ldexpf(fine, below(4) - 7);
    case SMALL:
        return ldexpf(fine, -8 - 2 - below(4));
    case ODD:
        return below(20) ? coarse : draw_odd();
    case HUGE_NUMBERS:
        return below(3) ? coarse : sign * ldexpf(1.0F, LARGEST_POWER);
    case TINY:
        return ldexpf(coarse, -71);
    case ZEROS:
        return 0.0F;
    default:
        return coarse;
    }
}

static float draw_weight(enum numbers numbers) {
    const float sign = draw_sign();
    const float coarse = sign * (float)(1 + below(7)) / 4;
    switch (numbers) {
    case FINE:
        return ldexpf(sign, below(3));
    case SMALL:
        return ldexpf(sign, -1 - below(3));
    case ODD:
        return below(20) ? coarse : draw_odd();
    case HUGE_NUMBERS:
        return sign;
    case TINY:
        return ldexpf(coarse, -71);
    default:
        return coarse;
    }
}

static float draw_grad(enum numbers numbers) {
    const float grad = draw_sign() * (float)(1 + below(60)) / 64;
    if (numbers == ODD && below(10) == 0)
        return below(8) ? draw_odd() : FLT_MAX;
    return numbers == HUGE_NUMBERS ? grad * 4 : numbers == TINY ? grad * 64 : grad;
}

static void fill_queries(const struct shape *shape, struct indexer_bwd_grains_params *host) {
    const int row = shape->dim + shape->padding, rows = shape->tokens * shape->heads;
    uint16_t *const q = filled((size_t)rows * (size_t)row * sizeof *q, GAP);
    host->weights_token_stride = shape->heads + shape->padding;
    host->q_head_stride = row;
    host->q_token_stride = (int64_t)row * shape->heads;
    float *const weights =
        filled((size_t)shape->tokens * (size_t)host->weights_token_stride * sizeof *weights, GAP);
    for (int64_t i = 0; i < rows; i++) {
        for (int column = 0; column < shape->dim; column++)
            q[i * row + column] = smelt__bf16_from_float(draw_q(shape->numbers));
        weights[i / shape->heads * host->weights_token_stride + i % shape->heads] =
            draw_weight(shape->numbers);
    }
    host->q = q;
    host->weights = weights;
}

static int common_divisor(int a, int b) {
    return b ? common_divisor(b, a % b) : a;
}

/* Scales a group's gradients of a key, if none is the PEAK, by a power of two, so that sums fall on
 * both sides of the limit for fine units, and far below. Denormal sums have no digits left for
 * that. */
static void spread_grads(const struct indexer_bwd_grains_params *host, float *grads) {
    static const int exponents[] = {0, 0, 0, FINER - 1, FINER, FINER + 1, FINER + 9, 3 * FINER};
    for (int64_t group = 0; group < host->groups; group++) {
        for (int i = 0; i < host->counts[group]; i++) {
            float *const own = &grads[group * host->group_queries * host->key_stride + i];
            int power = exponents[below(8)];
            for (int member = 0; member < host->group_queries; member++)
                power = own[member * host->key_stride] == PEAK ? 0 : power;
            for (int member = 0; member < host->group_queries; member++)
                own[member * host->key_stride] = ldexpf(own[member * host->key_stride], -power);
        }
    }
}

/* Lists of any length, the last one of maximum length, without repeated keys; entries after their
 * ends must not be read. */
static void fill_lists(const struct shape *shape, struct indexer_bwd_grains_params *host) {
    const size_t slots = (size_t)host->groups * (size_t)host->key_stride;
    const int most = shape->width * shape->group_queries;
    int *members = take((size_t)place_count(host) * sizeof *members);
    int *counts = take((size_t)host->groups * sizeof *counts),
        *keys = filled(slots * sizeof *keys, GAP);
    float *grads = filled(slots * (size_t)host->group_queries * sizeof *grads, GAP);
    for (int64_t group = 0; group < host->groups; group++) {
        int step = 1 + below(shape->rows);
        const int first = below(shape->rows);
        while (common_divisor(shape->rows, step) > 1)
            step--;
        const int longest = most < shape->rows ? most : shape->rows;
        counts[group] = group == host->groups - 1 ? longest : below(1 + longest);
        for (int i = 0; i < counts[group]; i++)
            keys[group * host->key_stride + i] = (int)((first + (int64_t)i * step) % shape->rows);
    }
    for (int64_t place = 0; place < place_count(host); place++) {
        const int count = counts[place / host->group_queries];
        const int peaks[] = {0, 31, 32, count - 1}, peak = peaks[below(4)];
        members[place] = place < shape->tokens ? (int)place : -1;
        for (int i = 0; i < count; i++)
            grads[place * host->key_stride + i] =
                members[place] < 0 || below(4) == 0 ? 0.0F : draw_grad(shape->numbers);
        /* The largest number at a slot that a loop's step may skip. */
        if (members[place] >= 0 && peak >= 0 && peak < count && shape->numbers < ODD)
            grads[place * host->key_stride + peak] = PEAK;
    }
    host->members = members;
    host->counts = counts;
    if (shape->numbers != TINY)
        spread_grads(host, grads);
    host->keys = keys;
    host->grads = grads;
}

void make_problem(const struct shape *shape, struct indexer_bwd_grains_params *host) {
    *host = (struct indexer_bwd_grains_params){0};
    host->heads = shape->heads;
    host->dim = shape->dim;
    host->rows = shape->rows;
    host->group_queries = shape->group_queries;
    host->groups = (shape->tokens + shape->group_queries - 1) / shape->group_queries;
    host->key_stride =
        (shape->width * shape->group_queries + LIST_STEP - 1) / LIST_STEP * LIST_STEP;
    host->bits = shape->bits;
    while ((int64_t)host->groups << host->bits > INT64_C(1) << MOST_ADDED)
        host->bits--;
    host->top_count = 1 + below(below(2) ? 9 : MOST_TOPS);
    fill_queries(shape, host);
    fill_lists(shape, host);
    host->reach = take((size_t)place_count(host) * sizeof(float));
    host->tops = take((size_t)host->top_count * sizeof(float));
    host->bounds = take((size_t)host->rows * UNIT_KINDS * sizeof(unsigned));
    host->grains = take((size_t)host->rows * sizeof(float));
    host->sums = take(sum_count(host) * sizeof(float));
    host->totals = take(sum_count(host) * sizeof(float));
}

void draw_sums(const struct indexer_bwd_grains_params *host) {
    for (int64_t row = 0; row < host->rows; row++) {
        const int nothing = below(4) == 0;
        for (int column = 0; column < host->dim; column++) {
            const float number = draw_sign() * (float)(1 + below(1 << 20));
            const float sum = below(6) ? number : draw_odd();
            host->sums[row * host->dim + column] = nothing || below(2) ? 0.0F : sum;
        }
    }
}
