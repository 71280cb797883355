/* Expected results of the grains' kernels, in double precision: see indexer_grains.h. */
#include "indexer_grains.h"

#include <float.h>
#include <math.h>

#include "kernel_alone.h"
#include "reference/bf16.h"

enum {
    LEAST_NORMAL = -126,
    DIGITS = 24 /* of fp32 */
};

/* The absolute value of a product that is exact in fp32 or overflows. */
static double size_of(double product) {
    const double size = fabs(product);
    return size <= FLT_MAX ? size : 0.0;
}

static float clamp(double sum) {
    return sum < FLT_MAX ? (float)sum : FLT_MAX;
}

static float find_reach(const struct indexer_bwd_grains_params *host, int64_t query) {
    const uint16_t *const rows = (const uint16_t *)host->q + query * host->q_token_stride;
    const float *const weights = (const float *)host->weights + query * host->weights_token_stride;
    double largest = 0;
    for (int column = 0; column < host->dim; column++) {
        double sum = 0;
        for (int head = 0; head < host->heads; head++)
            sum += size_of((double)weights[head] *
                           (double)smelt__bf16_to_float(rows[head * host->q_head_stride + column]));
        largest = fmax(largest, sum);
    }
    return clamp(largest);
}

/* An upper bound of a group's contribution to a row. */
static float find_top(const struct indexer_bwd_grains_params *host, int64_t group) {
    double sum = 0;
    for (int member = 0; member < host->group_queries; member++) {
        const int64_t place = group * host->group_queries + member;
        double largest = 0;
        for (int i = 0; i < host->counts[group]; i++)
            largest = fmax(largest, size_of((double)host->grads[place * host->key_stride + i]));
        sum += (double)host->reach[place] * largest;
    }
    return clamp(sum);
}

int find_unit(float largest, int bits) {
    int exponent = -LARGEST_POWER; /* for 0 */
    if (largest > 0)
        frexp((double)largest, &exponent); /* largest < 2^exponent */
    return exponent - bits > -LARGEST_POWER ? exponent - bits : -LARGEST_POWER;
}

static int finer(int unit) {
    return unit - FINER > -LARGEST_POWER ? unit - FINER : -LARGEST_POWER;
}

void find_bounds(const struct indexer_bwd_grains_params *host, int unit) {
    memset(host->bounds, 0, (size_t)host->rows * UNIT_KINDS * sizeof *host->bounds);
    for (int64_t group = 0; group < host->groups; group++) {
        for (int i = 0; i < host->counts[group]; i++) {
            double sum = 0;
            for (int member = 0; member < host->group_queries; member++) {
                const int64_t place = group * host->group_queries + member;
                sum += (double)host->reach[place] *
                       size_of((double)host->grads[place * host->key_stride + i]);
            }
            const double coarse = ceil(ldexp(sum, -unit)), fine = ceil(ldexp(sum, -finer(unit)));
            const double most = ldexp(1, host->bits);
            unsigned *const bounds =
                &host->bounds[(int64_t)host->keys[group * host->key_stride + i] * UNIT_KINDS];
            if (fine <= most)
                bounds[FINE_UNITS] += (unsigned)fine;
            else
                bounds[COARSE_UNITS] += (unsigned)(coarse < most ? coarse : most);
        }
    }
}

/* 2^23 u for the smallest normal power of two u such that 1.25 times the bound plus one unit is
 * below 2^24 u. */
static float find_grain(int64_t bound, int unit) {
    const double sum = ldexp((double)(bound + bound / 4 + 1), unit);
    int u = LEAST_NORMAL;
    while (u + DIGITS <= LARGEST_POWER && sum >= ldexp(1, u + DIGITS))
        u++;
    return bound ? ldexpf(1.0F, u + DIGITS - 1) : 0.0F;
}

/* From a row's bounds: in coarse units if there are any, with fine ones rounded up. */
static float find_key_grain(const unsigned *bounds, int unit) {
    const int64_t fine = bounds[FINE_UNITS] >> (unit - finer(unit));
    return bounds[COARSE_UNITS] ? find_grain((int64_t)bounds[COARSE_UNITS] + fine + 1, unit)
                                : find_grain(bounds[FINE_UNITS], finer(unit));
}

void reference(const struct indexer_bwd_grains_params *host, float *largest) {
    *largest = 0;
    for (int64_t place = 0; place < place_count(host); place++)
        host->reach[place] =
            host->members[place] >= 0 ? find_reach(host, host->members[place]) : 0.0F;
    for (int64_t group = 0; group < host->groups; group++)
        *largest = fmaxf(*largest, find_top(host, group));
    for (int i = 0; i < host->top_count; i++)
        host->tops[i] = *largest / (float)(2 << below(20));
    host->tops[below(host->top_count)] = *largest;
    find_bounds(host, find_unit(*largest, host->bits));
}

void set_edges(const struct indexer_bwd_grains_params *host, enum edges edges) {
    for (int key = 0; key < host->rows; key++) {
        const int64_t power = INT64_C(1) << (key % MOST_ADDED + 1);
        int64_t edge = power * 4 / 5; /* the first bound that reaches `power` */
        while (edge > 0 && edge + edge / 4 + 1 >= power)
            edge--;
        const int64_t beside = edge + key / MOST_ADDED % 4 - 1;
        const unsigned bound = (unsigned)(beside > 0 ? beside : key % 2);
        unsigned *const bounds = &host->bounds[key * UNIT_KINDS];
        bounds[COARSE_UNITS] = edges == OF_FINE ? 0 : bound;
        bounds[FINE_UNITS] = edges == OF_COARSE ? 0 : bound;
        if (edges == OF_BOTH && bound > 1) { /* the limit for the sum, within a unit */
            bounds[FINE_UNITS] = (unsigned)(key % 3) << FINER | (key % 2 ? (1U << FINER) - 1 : 0);
            bounds[COARSE_UNITS] =
                bound > bounds[FINE_UNITS] >> FINER ? bound - (bounds[FINE_UNITS] >> FINER) : 1;
        }
    }
}

void find_grains(const struct indexer_bwd_grains_params *host, int unit) {
    for (int key = 0; key < host->rows; key++)
        host->grains[key] = find_key_grain(&host->bounds[key * UNIT_KINDS], unit);
}

void add_totals(const struct indexer_bwd_grains_params *host) {
    for (size_t i = 0; i < sum_count(host); i += 4) {
        float *const sums = &host->sums[i], *const totals = &host->totals[i];
        const int nothing = sums[0] == 0 && sums[1] == 0 && sums[2] == 0 && sums[3] == 0;
        if (nothing && !host->first && !host->last)
            continue;
        for (int k = 0; k < 4; k++) {
            const float after = (host->first ? 0.0F : totals[k]) + sums[k];
            totals[k] = host->last ? totals[k] : after;
            sums[k] = host->last ? after : 0.0F;
        }
    }
}
