/*
 * The kernels that find the grains of dk's rows in the indexer's deterministic backward pass, and
 * the one that adds up sums of several grains, each by itself, against a reference, bit for bit.
 * Run by hand on a machine with a GPU, by `meson test` on the emulator with several schedules.
 *
 *     gpu_indexer_grains [CASES [ARCH]]    random cases beside the listed ones; SMELT_TEST_SEED
 * repeats a run. ARCH: on the emulator, that one alone
 *
 * Numbers are such that fp32 holds every product and every sum, in any order: the reference adds up
 * in double precision.
 */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/random.h"
#include "indexer_bwd_grains.params.h"
#include "kernel_alone.h"
#include "reference/bf16.h"

enum {
    SCHEDULES = 3,
    DEFAULT_CASES = 10,
    LIST_STEP = 64,
    FAR_STRIDE = (1 << 29) + 64, /* five rows of it pass 2^31 elements */
    GAP = 0x7f,       /* bytes of it are a number that outweighs all others, of either type */
    UNWRITTEN = 0xff, /* bytes of it are NaN */
    MOST_TOPS = 1024,
    FINER = 12,      /* of a coarse unit's exponent, a fine one's */
    MOST_ADDED = 31, /* bits of a bound */
    LEAST_BITS = 2,  /* of an addend */
    MOST_BITS = 22,
    LEAST_NORMAL = -126,
    LARGEST_POWER = 127,
    DIGITS = 24, /* of fp32 */
    MEMORIES = 12,
    EMULATED_BLOCKS = 5,
    MOST_FAILURES = 2 /* after which no further case is run */
};

static const float PEAK = 63.0F / 64; /* more than any other gradient */

/* What the tensors hold. */
enum numbers {
    COARSE,       /* few digits: sums over all heads are exact */
    FINE,         /* of q and the gradients all digits, of the weights one */
    SMALL,        /* FINE, and no sum reaches 1 */
    ODD,          /* COARSE, and infinities and NaN among them */
    HUGE_NUMBERS, /* sums pass the largest number */
    TINY,         /* denormal sums */
    ZEROS,
    KINDS
};

/* One problem. */
struct shape {
    const char *name;
    int tokens, rows, width, group_queries, heads, dim;
    enum numbers numbers;
    int bits;    /* at most; less where so many groups have no room */
    int padding; /* elements between rows of q and of weights, a multiple of 4 */
    int far; /* 1: rows and lists so far apart that places pass 2^31; on the emulator, whose pages
                exist when touched */
};

/* Listed cases: real use and the edges. */
static const struct shape shapes[] = {
    {"one of all", 1, 1, 1, 1, 1, 64, FINE, MOST_BITS, 0, 0},
    {"one head", 21, 300, 100, 2, 1, 128, FINE, MOST_BITS, 4, 0},
    {"one head, small", 21, 300, 100, 4, 1, 64, SMALL, MOST_BITS, 0, 0},
    {"one head, alone, small", 40, 90, 64, 1, 1, 128, SMALL, 9, 0, 0},
    {"pairs of 64 heads", 31, 500, 200, 2, 64, 128, COARSE, MOST_BITS, 0, 0},
    {"eights of 13 heads", 27, 500, 33, 8, 13, 64, COARSE, MOST_BITS, 12, 0},
    {"as many rows as bins", 5, 16384, 300, 2, 3, 64, COARSE, MOST_BITS, 0, 0},
    {"more rows than bins", 5, 16385, 300, 2, 3, 64, COARSE, MOST_BITS, 0, 0},
    {"few bits", 60, 100, 100, 1, 5, 128, COARSE, 3, 0, 0},
    {"many groups", 700, 40, 3, 1, 1, 64, COARSE, MOST_BITS, 0, 0},
    {"not finite", 40, 200, 100, 4, 7, 64, ODD, MOST_BITS, 0, 0},
    {"not finite, alone", 40, 200, 100, 1, 2, 128, ODD, MOST_BITS, 0, 0},
    {"beyond the largest number", 15, 200, 100, 2, 3, 64, HUGE_NUMBERS, MOST_BITS, 0, 0},
    {"beyond the largest number, fewest bits", 15, 200, 100, 4, 3, 64, HUGE_NUMBERS, LEAST_BITS, 0,
     0},
    {"denormal", 15, 200, 100, 2, 3, 64, TINY, MOST_BITS, 0, 0},
    {"zeros", 15, 200, 100, 2, 3, 64, ZEROS, MOST_BITS, 0, 0},
    {"far apart", 11, 300, 100, 2, 3, 64, COARSE, MOST_BITS, 0, 1},
};

/* Beyond the emulator's patience. */
static const struct shape large_shapes[] = {
    {"8192 queries in pairs", 8192, 8192, 2048, 2, 64, 128, COARSE, MOST_BITS, 0, 0},
    {"8192 queries in eights", 8192, 131072, 2048, 8, 16, 128, ODD, MOST_BITS, 0, 0},
};

/* A problem's arrays on the host, and the kernels' arguments with pointers to them and to the
 * device's. */
struct problem {
    const struct shape *shape;
    struct indexer_bwd_grains_params host, device;
    void *memory[MEMORIES]; /* the device's */
    int memories;
};

/* Of a row's bounds. */
enum { COARSE_UNITS, FINE_UNITS, UNIT_KINDS };

enum { REACH, BOUNDS, GRAINS, TOTALS, PASSES };

struct test {
    smelt_context *context;
    const struct smelt__kernel *kernels[PASSES];
    struct random random;
    struct alone_counts counts;
};

/* ---- problems -------------------------------------------------------------------------------- */

static float draw_sign(struct random *random) {
    return random_below(random, 2) ? 1.0F : -1.0F;
}

/* A number that is none, or 0, or the largest. */
static float draw_odd(struct random *random) {
    const float odd[] = {INFINITY, -INFINITY, NAN, 0.0F, -0.0F};
    return odd[random_below(random, 5)];
}

static float draw_q(struct random *random, enum numbers numbers) {
    const float sign = draw_sign(random);
    const float coarse = sign * (float)(1 + random_below(random, 7)) / 2;
    const float fine = sign * (float)(128 + random_below(random, 128));
    switch (numbers) {
    case FINE:
        return ldexpf(fine, random_below(random, 4) - 7);
    case SMALL:
        return ldexpf(fine, -8 - 2 - random_below(random, 4));
    case ODD:
        return random_below(random, 20) ? coarse : draw_odd(random);
    case HUGE_NUMBERS:
        return random_below(random, 3) ? coarse : sign * ldexpf(1.0F, LARGEST_POWER);
    case TINY:
        return ldexpf(coarse, -71);
    case ZEROS:
        return 0.0F;
    default:
        return coarse;
    }
}

static float draw_weight(struct random *random, enum numbers numbers) {
    const float sign = draw_sign(random);
    const float coarse = sign * (float)(1 + random_below(random, 7)) / 4;
    switch (numbers) {
    case FINE:
        return ldexpf(sign, random_below(random, 3));
    case SMALL:
        return ldexpf(sign, -1 - random_below(random, 3));
    case ODD:
        return random_below(random, 20) ? coarse : draw_odd(random);
    case HUGE_NUMBERS:
        return sign;
    case TINY:
        return ldexpf(coarse, -71);
    default:
        return coarse;
    }
}

static float draw_grad(struct random *random, enum numbers numbers) {
    const float grad = draw_sign(random) * (float)(1 + random_below(random, 60)) / 64;
    if (numbers == ODD && random_below(random, 10) == 0)
        return random_below(random, 8) ? draw_odd(random) : FLT_MAX;
    return numbers == HUGE_NUMBERS ? grad * 4 : numbers == TINY ? grad * 64 : grad;
}

static int64_t place_count(const struct indexer_bwd_grains_params *host) {
    return (int64_t)host->groups * host->group_queries;
}

static size_t sum_count(const struct indexer_bwd_grains_params *host) {
    return (size_t)host->rows * (size_t)host->dim;
}

static void *filled(size_t bytes, int byte) {
    return memset(take(bytes), byte, bytes);
}

static void fill_queries(struct random *random, struct problem *problem) {
    const struct shape *shape = problem->shape;
    struct indexer_bwd_grains_params *host = &problem->host;
    const int row = shape->dim + shape->padding, rows = shape->tokens * shape->heads;
    uint16_t *const q = filled((size_t)rows * (size_t)row * sizeof *q, GAP);
    host->weights_token_stride = shape->heads + shape->padding;
    host->q_head_stride = row;
    host->q_token_stride = (int64_t)row * shape->heads;
    float *const weights =
        filled((size_t)shape->tokens * (size_t)host->weights_token_stride * sizeof *weights, GAP);
    for (int64_t i = 0; i < rows; i++) {
        for (int column = 0; column < shape->dim; column++)
            q[i * row + column] = smelt__bf16_from_float(draw_q(random, shape->numbers));
        weights[i / shape->heads * host->weights_token_stride + i % shape->heads] =
            draw_weight(random, shape->numbers);
    }
    host->q = q;
    host->weights = weights;
}

static int common_divisor(int a, int b) {
    return b ? common_divisor(b, a % b) : a;
}

/* Of a group's gradients of a key, where none is the PEAK: less by a power of two, so that sums
 * come to both sides of where units become fine ones, and far below. Denormal sums have no digits
 * left for that. */
static void spread_grads(struct random *random, const struct indexer_bwd_grains_params *host,
                         float *grads) {
    static const int exponents[] = {0, 0, 0, FINER - 1, FINER, FINER + 1, FINER + 9, 3 * FINER};
    for (int64_t group = 0; group < host->groups; group++) {
        for (int i = 0; i < host->counts[group]; i++) {
            float *const own = &grads[group * host->group_queries * host->key_stride + i];
            int power = exponents[random_below(random, 8)];
            for (int member = 0; member < host->group_queries; member++)
                power = own[member * host->key_stride] == PEAK ? 0 : power;
            for (int member = 0; member < host->group_queries; member++)
                own[member * host->key_stride] = ldexpf(own[member * host->key_stride], -power);
        }
    }
}

/* Lists of any length, the last one of the longest, no key twice in one; what is past their ends
 * must not be looked at. */
static void fill_lists(struct random *random, struct problem *problem) {
    const struct shape *shape = problem->shape;
    struct indexer_bwd_grains_params *host = &problem->host;
    const size_t slots = (size_t)host->groups * (size_t)host->key_stride;
    const int most = shape->width * shape->group_queries;
    int *members = take((size_t)place_count(host) * sizeof *members);
    int *counts = take((size_t)host->groups * sizeof *counts),
        *keys = filled(slots * sizeof *keys, GAP);
    float *grads = filled(slots * (size_t)host->group_queries * sizeof *grads, GAP);
    for (int64_t group = 0; group < host->groups; group++) {
        int step = 1 + random_below(random, shape->rows);
        const int first = random_below(random, shape->rows);
        while (common_divisor(shape->rows, step) > 1)
            step--;
        const int longest = most < shape->rows ? most : shape->rows;
        counts[group] = group == host->groups - 1 ? longest : random_below(random, 1 + longest);
        for (int i = 0; i < counts[group]; i++)
            keys[group * host->key_stride + i] = (int)((first + (int64_t)i * step) % shape->rows);
    }
    for (int64_t place = 0; place < place_count(host); place++) {
        const int count = counts[place / host->group_queries];
        const int peaks[] = {0, 31, 32, count - 1}, peak = peaks[random_below(random, 4)];
        members[place] = place < shape->tokens ? (int)place : -1;
        for (int i = 0; i < count; i++)
            grads[place * host->key_stride + i] = members[place] < 0 || random_below(random, 4) == 0
                                                      ? 0.0F
                                                      : draw_grad(random, shape->numbers);
        /* The largest where a loop's step may pass it over. */
        if (members[place] >= 0 && peak >= 0 && peak < count && shape->numbers < ODD)
            grads[place * host->key_stride + peak] = PEAK;
    }
    host->members = members;
    host->counts = counts;
    if (shape->numbers != TINY)
        spread_grads(random, host, grads);
    host->keys = keys;
    host->grads = grads;
}

static void make_problem(struct random *random, const struct shape *shape,
                         struct problem *problem) {
    struct indexer_bwd_grains_params *host = &problem->host;
    memset(problem, 0, sizeof *problem);
    problem->shape = shape;
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
    host->top_count = 1 + random_below(random, random_below(random, 2) ? 9 : MOST_TOPS);
    fill_queries(random, problem);
    fill_lists(random, problem);
    host->reach = take((size_t)place_count(host) * sizeof(float));
    host->tops = take((size_t)host->top_count * sizeof(float));
    host->bounds = take((size_t)host->rows * UNIT_KINDS * sizeof(unsigned));
    host->grains = take((size_t)host->rows * sizeof(float));
    host->sums = take(sum_count(host) * sizeof(float));
    host->totals = take(sum_count(host) * sizeof(float));
}

static void free_problem(struct test *test, struct problem *problem) {
    const struct indexer_bwd_grains_params *host = &problem->host;
    const void *arrays[] = {host->q,      host->weights, host->members, host->counts,
                            host->keys,   host->grads,   host->reach,   host->tops,
                            host->bounds, host->grains,  host->sums,    host->totals};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free((void *)(uintptr_t)arrays[i]);
    for (int i = 0; i < problem->memories; i++)
        smelt_device_free(test->context, problem->memory[i]);
}

/* ---- the reference --------------------------------------------------------------------------- */

/* Of a product that fp32 holds, or overflows in. */
static double size_of(double product) {
    const double size = fabs(product);
    return size <= FLT_MAX ? size : 0.0;
}

static float clamp(double sum) {
    return sum < FLT_MAX ? (float)sum : FLT_MAX;
}

static float find_reach(const struct indexer_bwd_grains_params *host, int64_t query) {
    const uint16_t *const rows = (const uint16_t *)host->q + query * host->q_token_stride;
    const float *const weights = host->weights + query * host->weights_token_stride;
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

/* What a group adds to a row at once, at most. */
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

/* The coarse unit's exponent, the least such that `largest` is below 2^bits units; at least that of
 * the largest power's inverse. */
static int find_unit(float largest, int bits) {
    int exponent = -LARGEST_POWER; /* of 0 */
    if (largest > 0)
        frexp((double)largest, &exponent); /* largest < 2^exponent */
    return exponent - bits > -LARGEST_POWER ? exponent - bits : -LARGEST_POWER;
}

static int finer(int unit) {
    return unit - FINER > -LARGEST_POWER ? unit - FINER : -LARGEST_POWER;
}

static void find_bounds(const struct indexer_bwd_grains_params *host, int unit) {
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

/* 2^23 u of the least power of two u, a normal number, such that a bound, a quarter more and one
 * unit are below 2^24 u. */
static float find_grain(int64_t bound, int unit) {
    const double sum = ldexp((double)(bound + bound / 4 + 1), unit);
    int u = LEAST_NORMAL;
    while (u + DIGITS <= LARGEST_POWER && sum >= ldexp(1, u + DIGITS))
        u++;
    return bound ? ldexpf(1.0F, u + DIGITS - 1) : 0.0F;
}

/* Of a row's bounds: in coarse units, where there are any, the fine ones rounded up. */
static float find_key_grain(const unsigned *bounds, int unit) {
    const int64_t fine = bounds[FINE_UNITS] >> (unit - finer(unit));
    return bounds[COARSE_UNITS] ? find_grain((int64_t)bounds[COARSE_UNITS] + fine + 1, unit)
                                : find_grain(bounds[FINE_UNITS], finer(unit));
}

/* Reach, the largest of all, bounds: as the passes leave them to one another. */
static void reference(struct random *random, const struct indexer_bwd_grains_params *host,
                      float *largest) {
    *largest = 0;
    for (int64_t place = 0; place < place_count(host); place++)
        host->reach[place] =
            host->members[place] >= 0 ? find_reach(host, host->members[place]) : 0.0F;
    for (int64_t group = 0; group < host->groups; group++)
        *largest = fmaxf(*largest, find_top(host, group));
    for (int i = 0; i < host->top_count; i++)
        host->tops[i] = *largest / (float)(2 << random_below(random, 20));
    host->tops[random_below(random, host->top_count)] = *largest;
    find_bounds(host, find_unit(*largest, host->bits));
}

enum edges { OF_COARSE, OF_FINE, OF_BOTH, EDGES };

/* Bounds on both sides of where a grain doubles, of each size; what adds up to them is another
 * pass's matter. */
static void set_edges(const struct indexer_bwd_grains_params *host, enum edges edges) {
    for (int key = 0; key < host->rows; key++) {
        const int64_t power = INT64_C(1) << (key % MOST_ADDED + 1);
        int64_t edge = power * 4 / 5; /* the first that comes to `power` */
        while (edge > 0 && edge + edge / 4 + 1 >= power)
            edge--;
        const int64_t beside = edge + key / MOST_ADDED % 4 - 1;
        const unsigned bound = (unsigned)(beside > 0 ? beside : key % 2);
        unsigned *const bounds = &host->bounds[key * UNIT_KINDS];
        bounds[COARSE_UNITS] = edges == OF_FINE ? 0 : bound;
        bounds[FINE_UNITS] = edges == OF_COARSE ? 0 : bound;
        if (edges == OF_BOTH && bound > 1) { /* the sum's edge, within a unit */
            bounds[FINE_UNITS] = (unsigned)(key % 3) << FINER | (key % 2 ? (1U << FINER) - 1 : 0);
            bounds[COARSE_UNITS] =
                bound > bounds[FINE_UNITS] >> FINER ? bound - (bounds[FINE_UNITS] >> FINER) : 1;
        }
    }
}

static void find_grains(const struct indexer_bwd_grains_params *host, int unit) {
    for (int key = 0; key < host->rows; key++)
        host->grains[key] = find_key_grain(&host->bounds[key * UNIT_KINDS], unit);
}

/* One row in four was added nothing to. Of the others columns are numbers, infinities and NaN, and
 * zeros of either sign. */
static void draw_sums(struct random *random, const struct indexer_bwd_grains_params *host) {
    for (int64_t row = 0; row < host->rows; row++) {
        const int nothing = random_below(random, 4) == 0;
        for (int column = 0; column < host->dim; column++) {
            const float number = draw_sign(random) * (float)(1 + random_below(random, 1 << 20));
            const float sum = random_below(random, 6) ? number : draw_odd(random);
            host->sums[row * host->dim + column] = nothing || random_below(random, 2) ? 0.0F : sum;
        }
    }
}

/* What the pass leaves in sums and totals. Four columns that nothing was added to stay as they are
 * between the first launch and the last, the sign of a zero, too. */
static void add_totals(const struct indexer_bwd_grains_params *host) {
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

/* ---- the device ------------------------------------------------------------------------------ */

/* Rows of so many bytes side by side on the host; on the device `stride` bytes from one to the
 * next, and nothing behind the last. */
static void *copy_rows(struct test *test, struct problem *problem, const char *name,
                       const void *host, int64_t rows, size_t bytes, size_t stride) {
    void **const device = &problem->memory[problem->memories++];
    const size_t all = (size_t)(rows - 1) * stride + bytes;
    const struct emu_interface *const emulator = smelt__emulator();
    int good = 1;
    if (problem->shape->far)
        *device = (void *)(uintptr_t)emulator->reserve(all);
    else
        good = works(smelt_device_alloc(test->context, all, device), "alloc");
    if (!good || !*device)
        exit(1);
    if (emulator)
        emulator->name((uint64_t)(uintptr_t)*device, name);
    const int64_t pieces = stride == bytes ? 1 : rows;
    for (int64_t i = 0; i < pieces && good; i++)
        good = works(smelt_device_upload(test->context, (char *)*device + (size_t)i * stride,
                                         (const char *)host + (size_t)i * bytes,
                                         pieces == 1 ? all : bytes),
                     "upload");
    if (!good)
        exit(1);
    return *device;
}

static void place_problem(struct test *test, struct problem *problem) {
    const struct indexer_bwd_grains_params *host = &problem->host;
    struct indexer_bwd_grains_params *device = &problem->device;
    const struct shape *shape = problem->shape;
    const int64_t places = place_count(host), row = host->q_head_stride;
    const int64_t weights = host->weights_token_stride;
    *device = *host;
    if (shape->far) {
        device->q_head_stride = FAR_STRIDE;
        device->q_token_stride = (int64_t)FAR_STRIDE * shape->heads;
        device->weights_token_stride = device->key_stride = FAR_STRIDE;
    }
    device->q = copy_rows(test, problem, "q", host->q, (int64_t)shape->tokens * shape->heads,
                          2 * (size_t)row, 2 * (size_t)device->q_head_stride);
#define ROWS(field, rows, own, stride)                                                             \
    device->field =                                                                                \
        copy_rows(test, problem, #field, host->field, rows, (size_t)(own) * sizeof *host->field,   \
                  (size_t)(stride) * sizeof *host->field)
    ROWS(weights, shape->tokens, weights, device->weights_token_stride);
    ROWS(keys, host->groups, host->key_stride, device->key_stride);
    ROWS(grads, places, host->key_stride, device->key_stride);
    ROWS(members, places, 1, 1);
    ROWS(counts, host->groups, 1, 1);
    ROWS(reach, places, 1, 1);
    ROWS(bounds, host->rows, UNIT_KINDS, UNIT_KINDS);
    ROWS(grains, host->rows, 1, 1);
    ROWS(tops, host->top_count, 1, 1);
    ROWS(sums, host->rows, host->dim, host->dim);
    ROWS(totals, host->rows, host->dim, host->dim);
#undef ROWS
}

static int upload_again(struct test *test, void *device, const void *host, size_t bytes) {
    return works(smelt_device_upload(test->context, device, host, bytes), "upload");
}

static int run_kernel(struct test *test, const struct problem *problem, int pass, uint32_t blocks) {
    const struct smelt__launch launch = {.blocks = {blocks}, .params = &problem->device};
    return works(smelt_stream_synchronize(test->context, NULL), "synchronize") &&
           works(smelt__kernel_launch(test->context, test->kernels[pass], &launch, NULL),
                 "launch") &&
           works(smelt_stream_synchronize(test->context, NULL), "synchronize");
}

/* ---- judging --------------------------------------------------------------------------------- */

/* The largest that blocks wrote, NaN where one wrote none. Which block has which groups is the
 * kernel's affair. */
static float find_largest(struct test *test, const float *device, uint32_t blocks) {
    float *const tops = take(blocks * sizeof *tops), largest = 0;
    const int good = works(
        smelt_device_download(test->context, tops, device, blocks * sizeof *tops), "download");
    for (uint32_t i = 0; i < blocks && good; i++)
        largest = isnan(tops[i]) || isnan(largest) ? NAN : fmaxf(largest, tops[i]);
    free(tops);
    return good ? largest : NAN;
}

static int check_reach(struct test *test, const struct problem *problem, uint32_t blocks,
                       float largest) {
    const struct indexer_bwd_grains_params *device = &problem->device, *host = &problem->host;
    const size_t places = (size_t)place_count(host);
    if (!works(smelt_device_fill(test->context, device->reach, UNWRITTEN, places * sizeof(float)),
               "fill") ||
        !works(smelt_device_fill(test->context, device->tops, UNWRITTEN, blocks * sizeof(float)),
               "fill") ||
        !run_kernel(test, problem, REACH, blocks) ||
        !same_words(test->context, "reach", device->reach, host->reach, places))
        return 0;
    const float got = find_largest(test, device->tops, blocks);
    if (got != largest)
        printf("    the largest of tops is %.9g, not %.9g\n", (double)got, (double)largest);
    return got == largest;
}

static int check_bounds(struct test *test, const struct problem *problem, uint32_t blocks) {
    const struct indexer_bwd_grains_params *device = &problem->device, *host = &problem->host;
    const size_t rows = (size_t)host->rows;
    return upload_again(test, device->reach, host->reach,
                        (size_t)place_count(host) * sizeof(float)) &&
           upload_again(test, device->tops, host->tops, (size_t)host->top_count * sizeof(float)) &&
           works(smelt_device_fill(test->context, device->bounds, 0,
                                   rows * UNIT_KINDS * sizeof(unsigned)),
                 "fill") &&
           run_kernel(test, problem, BOUNDS, blocks) &&
           same_words(test->context, "bounds", device->bounds, host->bounds, rows * UNIT_KINDS);
}

/* With the host's bounds. */
static int check_grains(struct test *test, const struct problem *problem, uint32_t blocks) {
    const struct indexer_bwd_grains_params *device = &problem->device, *host = &problem->host;
    const size_t rows = (size_t)host->rows;
    return upload_again(test, device->bounds, host->bounds, rows * UNIT_KINDS * sizeof(unsigned)) &&
           works(smelt_device_fill(test->context, device->grains, UNWRITTEN, rows * sizeof(float)),
                 "fill") &&
           run_kernel(test, problem, GRAINS, blocks) &&
           same_words(test->context, "grains", device->grains, host->grains, rows);
}

/* As same_words, of any NaN for any other. */
static int same_numbers(struct test *test, const char *what, const float *device,
                        const float *wanted, size_t count) {
    float *const got = take(count * sizeof *got);
    int good =
        works(smelt_device_download(test->context, got, device, count * sizeof *got), "download");
    for (size_t i = 0; i < count && good; i++) {
        good = (isnan(got[i]) && isnan(wanted[i])) || memcmp(&got[i], &wanted[i], sizeof *got) == 0;
        if (!good)
            printf("    %s[%zu] is %.9g, not %.9g\n", what, i, (double)got[i], (double)wanted[i]);
    }
    free(got);
    return good;
}

/* Of three launches, the totals before the first of which mean nothing, and those before the second
 * are zeros of the other sign where it adds nothing. */
static int check_totals(struct test *test, struct problem *problem, uint32_t blocks) {
    struct indexer_bwd_grains_params *const device = &problem->device, *const host = &problem->host;
    const size_t count = sum_count(host), bytes = count * sizeof(float);
    memset(host->totals, UNWRITTEN, bytes);
    for (int launch = 0; launch < 3; launch++) {
        device->first = host->first = launch == 0;
        device->last = host->last = launch == 2;
        draw_sums(&test->random, host);
        for (size_t i = 0; i < count && launch == 1; i++)
            host->totals[i] = host->totals[i] == 0 ? -0.0F : host->totals[i];
        if (!upload_again(test, device->sums, host->sums, bytes) ||
            !upload_again(test, device->totals, host->totals, bytes) ||
            !run_kernel(test, problem, TOTALS, blocks))
            return 0;
        add_totals(host);
        if (!same_numbers(test, "sums", device->sums, host->sums, count) ||
            !same_numbers(test, "totals", device->totals, host->totals, count))
            return 0;
    }
    return 1;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static uint32_t fewer(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Every pass, once; the grains with the bounds of the pass before and with edges. */
static int check_passes(struct test *test, struct problem *problem, uint32_t blocks,
                        float largest) {
    const struct indexer_bwd_grains_params *host = &problem->host;
    const int unit = find_unit(largest, host->bits);
    if (!check_reach(test, problem, fewer(blocks, (uint32_t)host->top_count), largest))
        return 0;
    find_bounds(host, unit);
    find_grains(host, unit);
    if (!check_bounds(test, problem, blocks) || !check_grains(test, problem, blocks))
        return 0;
    for (enum edges edges = 0; edges < EDGES; edges++) {
        set_edges(host, edges);
        find_grains(host, unit);
        if (!check_grains(test, problem, blocks))
            return 0;
    }
    return check_totals(test, problem, blocks);
}

static void check(struct test *test, const struct shape *shape) {
    if (test->counts.failures == MOST_FAILURES || (shape->far && !smelt__emulator()))
        return;
    struct problem problem;
    const uint64_t seed = test->random.state;
    const char *const arch = smelt_context_arch(test->context);
    float largest;
    make_problem(&test->random, shape, &problem);
    reference(&test->random, &problem.host, &largest);
    place_problem(test, &problem);
    const int schedules = schedules_to_run(SCHEDULES, 2);
    const uint32_t most_blocks = smelt__emulator() ? EMULATED_BLOCKS : UINT32_MAX;
    int good = 1;
    for (int i = 0; i < schedules && good; i++) {
        const uint32_t blocks = i == 1 ? 2 : fewer((uint32_t)problem.host.groups, most_blocks);
        smelt__emulator_configure(arch, smelt__schedule_at(seed, i + test->counts.cases % 2), 0);
        good = check_passes(test, &problem, blocks, largest);
    }
    test->counts.cases++;
    test->counts.failures += !good;
    if (!good)
        printf("FAILED %s on %s: %d queries, %d rows, width %d, %d queries a group, heads %d, dim "
               "%d, numbers %d, bits %d, padding %d; random state %llu\n",
               shape->name, arch, shape->tokens, shape->rows, shape->width, shape->group_queries,
               shape->heads, shape->dim, (int)shape->numbers, shape->bits, shape->padding,
               (unsigned long long)seed);
    free_problem(test, &problem);
}

static struct shape draw_shape(struct random *random) {
    const enum numbers numbers = (enum numbers)random_below(random, KINDS);
    const int most_heads = numbers == FINE || numbers == SMALL ? 1 : numbers == TINY ? 3 : 128;
    return (struct shape){.name = "a random shape",
                          .tokens = 1 + random_below(random, 30),
                          .rows = 1 + random_below(random, random_below(random, 2) ? 100 : 20000),
                          .width = 1 + random_below(random, random_below(random, 2) ? 40 : 300),
                          .group_queries = 1 << random_below(random, 4),
                          .heads = 1 + random_below(random, most_heads),
                          .dim = random_below(random, 2) ? 64 : 128,
                          .numbers = numbers,
                          .bits = LEAST_BITS + random_below(random, MOST_BITS - LEAST_BITS + 1),
                          .padding = random_below(random, 3) * 4};
}

static int run(void *user, int listed, int random_cases) {
    static const char *const specs[PASSES] = {
        "indexer_bwd_grains:pass=reach", "indexer_bwd_grains:pass=bounds",
        "indexer_bwd_grains:pass=grains", "indexer_bwd_grains:pass=totals"};
    struct test *const test = user;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    int good = 1;
    options.kind = SMELT_CONTEXT_DEVICE;
    if (!works(smelt_context_create(&test->context, &options), "context"))
        return 0;
    for (int i = 0; i < PASSES && good; i++)
        good = get_kernel(test->context, specs[i], &test->kernels[i]);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && listed && good; i++)
        check(test, &shapes[i]);
    for (size_t i = 0; i < sizeof large_shapes / sizeof *large_shapes && good && !smelt__emulator();
         i++)
        check(test, &large_shapes[i]);
    for (int i = 0; i < random_cases && good; i++) {
        const struct shape shape = draw_shape(&test->random);
        check(test, &shape);
    }
    smelt_context_destroy(&test->context);
    return good;
}

int main(int argc, char **argv) {
    struct test test = {.random = random_begin("gpu_indexer_grains")};
    return run_alone(argc, argv, DEFAULT_CASES, run, &test, &test.counts);
}
