/*
 * Compares the emulator's arithmetic with independent formulations, and with sums recorded on an
 * H200 (sums_h200.inc).
 */
#include <math.h>

#include "../unit/test.h"
#include "emu/formats/numbers.h"

#include "sums_h200.inc"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A float of random sign and fraction, its exponent from `low` to `high` (below -126: subnormal).
 */
static float random_float(struct random *random, int low, int high) {
    float value = ldexpf(1 + (float)random_below(random, 1 << 23) / (1 << 23),
                         low + random_below(random, high - low + 1));
    return random_below(random, 2) ? -value : value;
}

/* ---- conversions ----------------------------------------------------------------------------- */

TEST(bf16_keeps_its_values) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float value = emu_float_from_bf16((uint16_t)bits);
        assert_int_equal(emu_bf16_from_float(value), isnan(value) ? 0x7fff : bits);
    }
}

/* The nearest finite or infinite bf16; ties go to the even one. Infinity counts as 2^128. */
static uint16_t nearest_bf16(float value) {
    if (isnan(value))
        return 0x7fff;
    uint32_t below = bits_of(fabsf(value)) >> 16, above = below + 1;
    double magnitude = isinf(value) ? 0x1p128 : fabs((double)value);
    double lower = below == 0x7f80 ? 0x1p128 : (double)float_of(below << 16);
    double upper = above >= 0x7f80 ? 0x1p128 : (double)float_of(above << 16);
    double down = magnitude - lower, up = upper - magnitude;
    bool rises = up < down || (up == down && below % 2);
    return (uint16_t)((rises && below < 0x7f80 ? above : below) | (signbit(value) ? 0x8000 : 0));
}

TEST(bf16_is_nearest) {
    struct random random = random_begin("bf16_is_nearest");
    for (int i = 0; i < 300000; i++) {
        uint32_t bits = (uint32_t)random_next(&random);
        if (i % 3 == 0)
            bits = (bits & 0xffff0000) | 0x8000; /* a tie */
        float value = float_of(bits);
        assert_int_equal(emu_bf16_from_float(value), nearest_bf16(value));
    }
    assert_int_equal(emu_bf16_from_float(float_of(0x7f7fffff)), 0x7f80);
    assert_int_equal(emu_bf16_from_float(float_of(0x7f7f7fff)), 0x7f7f);
    assert_int_equal(emu_bf16_from_float(float_of(0xff800001)), 0x7fff);
    assert_int_equal(emu_bf16x2(1.0f, -2.0f), 0xc0003f80);
}

TEST(e4m3_values) {
    static const struct {
        uint8_t bits;
        float value;
    } cases[] = {{0x00, 0},        {0x01, 0x1p-9f}, {0x07, 7 * 0x1p-9f}, {0x08, 0x1p-6f},
                 {0x38, 1},        {0x39, 1.125f},  {0x40, 2},           {0x7e, 448},
                 {0xfe, -448},     {0xb8, -1},      {0x81, -0x1p-9f},    {0x78, 256},
                 {0x0f, 0x1.ep-6f}};
    for (int i = 0; i < COUNT(cases); i++)
        assert_float_equal(emu_float_from_e4m3(cases[i].bits), cases[i].value, 0);
    assert_true(signbit(emu_float_from_e4m3(0x80)));
    assert_true(isnan(emu_float_from_e4m3(0x7f)) && isnan(emu_float_from_e4m3(0xff)));
    for (int bits = 0; bits < 256; bits++)
        assert_int_equal(emu_e4m3_from_float(emu_float_from_e4m3((uint8_t)bits)),
                         (bits & 0x7f) == 0x7f ? 0x7f : bits);
}

static uint8_t nearest_e4m3(float value) {
    int best = 0;
    double magnitude = fabs((double)value), distance = INFINITY;
    for (int bits = 0; bits < 0x7f; bits++) {
        double this = fabs(magnitude - (double)emu_float_from_e4m3((uint8_t)bits));
        if (this < distance || (this == distance && bits % 2 == 0)) {
            best = bits;
            distance = this;
        }
    }
    if (isnan(value))
        return 0x7f;
    return (uint8_t)((isinf(value) ? 0x7e : best) | (signbit(value) ? 0x80 : 0));
}

TEST(e4m3_is_nearest) {
    struct random random = random_begin("e4m3_is_nearest");
    for (int i = 0; i < 60000; i++) {
        float value = float_of((uint32_t)random_next(&random));
        if (i % 2)
            value = random_float(&random, -12, 10);
        if (i % 4 == 1)
            value = float_of(bits_of(value) & 0xfff80000); /* some are ties */
        assert_int_equal(emu_e4m3_from_float(value), nearest_e4m3(value));
    }
    assert_int_equal(emu_e4m3_from_float(464), 0x7e);
    assert_int_equal(emu_e4m3_from_float(-1e30f), 0xfe);
    assert_int_equal(emu_e4m3_from_float(-0.0f), 0x80);
    assert_int_equal(emu_e4m3x2(1.0f, -2.0f), 0xc038);
}

TEST(flush) {
    assert_int_equal(bits_of(emu_flush(float_of(0x007fffff))), 0);
    assert_int_equal(bits_of(emu_flush(float_of(0x80000001))), 0x80000000);
    assert_int_equal(bits_of(emu_flush(float_of(0x00800000))), 0x00800000);
    assert_int_equal(bits_of(emu_flush(float_of(0xff800000))), 0xff800000);
}

/* ---- approximate functions ------------------------------------------------------------------- */

/* The number of floats between two floats of one sign, or zeros. */
static int steps(float x, float y) {
    return abs((int)(bits_of(x) - bits_of(y)));
}

/* Values of the PTX ISA's tables, confirmed on an H200. */
TEST(special_values) {
    static const struct {
        uint32_t x, exp2, log2, log2_flushing;
    } cases[] = {
        {0x00000000, 0x3f800000, 0xff800000, 0xff800000}, /* 0 */
        {0x80000000, 0x3f800000, 0xff800000, 0xff800000}, /* -0 */
        {0x00000001, 0x3f800000, 0xc3150000, 0xff800000}, /* 2^-149: log2 -149 */
        {0x80000001, 0x3f800000, 0x7fffffff, 0xff800000},
        {0x7f800000, 0x7f800000, 0x7f800000, 0x7f800000}, /* inf */
        {0xff800000, 0x00000000, 0x7fffffff, 0x7fffffff}, /* -inf */
        {0x7fc00000, 0x7fffffff, 0x7fffffff, 0x7fffffff}, /* NaN */
        {0xffa00001, 0x7fffffff, 0x7fffffff, 0x7fffffff},
        {0x43000000, 0x7f800000, 0x40e00000, 0x40e00000}, /* 128 */
        {0xc2fc0000, 0x00800000, 0x7fffffff, 0x7fffffff}, /* -126 */
        {0xc2fc0001, 0x00000000, 0x7fffffff, 0x7fffffff}, /* the next smaller number */
        {0x3f800000, 0x40000000, 0x00000000, 0x00000000}, /* 1 */
        {0xbf800000, 0x3f000000, 0x7fffffff, 0x7fffffff}, /* -1 */
    };
    for (int i = 0; i < COUNT(cases); i++) {
        float x = float_of(cases[i].x);
        assert_int_equal(bits_of(emu_exp2(x)), cases[i].exp2);
        assert_int_equal(bits_of(emu_log2(x)), cases[i].log2);
        assert_int_equal(bits_of(emu_log2_flushing(x)), cases[i].log2_flushing);
    }
}

TEST(exp2_and_log2) {
    struct random random = random_begin("exp2_and_log2");
    for (int i = 0; i < 100000; i++) {
        float x = (float)random_below(&random, 1 << 24) / (1 << 24) * 253 - 126;
        assert_true(steps(emu_exp2(x), (float)exp2l((long double)x)) <= 1);
        float y = fabsf(random_float(&random, i % 2 ? -1 : -149, i % 2 ? 0 : 127));
        assert_true(steps(emu_log2(y), (float)log2l((long double)y)) <= 1);
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

struct tensor_core {
    int depth, aligned, result; /* products, fraction bits kept of a term and of the result */
};
static const struct tensor_core bf16_core = {16, 25, 23}, e4m3_core = {32, 13, 13};

/* The exponent by which a term is aligned: the sum of its operands' exponents, not normalised;
 * subnormal operands have the smallest one. */
static int exponent_of(double value, int least) {
    int exponent = value == 0 ? least : ilogb(value);
    return exponent < least ? least : exponent;
}

/* The model of numbers.c in doubles, in which every step is exact. */
static uint32_t model(struct tensor_core core, const float *a, const float *b, float c) {
    int least = core.depth == 16 ? -126 : -6;
    double naive = (double)c;
    for (int k = 0; k < core.depth; k++)
        naive += (double)a[k] * (double)b[k];
    if (isnan(naive))
        return 0x7fffffff;
    if (isinf(naive))
        return naive > 0 ? 0x7f800000 : 0xff800000;
    int largest = c == 0 ? -133 : exponent_of((double)c, -126);
    for (int k = 0; k < core.depth; k++) {
        int exponent = exponent_of((double)a[k], least) + exponent_of((double)b[k], least);
        if (a[k] != 0 && b[k] != 0 && exponent > largest)
            largest = exponent;
    }
    double sum = trunc(ldexp((double)c, core.aligned - largest));
    for (int k = 0; k < core.depth; k++)
        sum += trunc(ldexp((double)a[k] * (double)b[k], core.aligned - largest));
    sum = ldexp(sum, largest - core.aligned);
    if (fabs(sum) >= 0x1p128)
        return sum > 0 ? 0x7f800000 : 0xff800000;
    int last = exponent_of(sum, -126) - core.result;
    float result = (float)ldexp(trunc(ldexp(sum, -last)), last);
    return result == 0 ? 0 : bits_of(result);
}

enum { KINDS = 7 };

/* Operands of one kind: close or wide exponents, tiny, huge, zeros, any bits, infinities and
 * NaNs. */
static float operand(struct random *random, int kind) {
    static const int low[] = {-3, -60, -80, 50, -40, 0, -3}, high[] = {3, 60, -60, 70, 40, 0, 3};
    if (kind == 5)
        return emu_float_from_bf16((uint16_t)random_next(random));
    if (kind == 4 && random_below(random, 2))
        return random_below(random, 2) ? 0.0f : -0.0f;
    if (kind == 6 && random_below(random, 20) == 0) {
        static const float values[] = {0, -0.0f, INFINITY, INFINITY, -INFINITY, NAN};
        return values[random_below(random, COUNT(values))];
    }
    float value = random_float(random, low[kind], high[kind]);
    return emu_float_from_bf16((uint16_t)(bits_of(value) >> 16));
}

static float accumulator(struct random *random, int kind) {
    static const int low[] = {-5, -120, -149, 100, -60, 0, -3},
                     high[] = {8, 120, -110, 127, 60, 0, 3};
    if (kind == 5)
        return float_of((uint32_t)random_next(random));
    if (random_below(random, 4) == 0)
        return random_below(random, 2) ? 0.0f : -0.0f;
    return random_float(random, low[kind], high[kind]);
}

/* Element (row, k) of A: the lane and register that hold it, and which half (PTX ISA,
 * "Matrix Fragments for mma.m16n8k16"). */
TEST(mma_matches_model) {
    struct random random = random_begin("mma_matches_model");
    for (int round = 0; round < 60 * KINDS; round++) {
        float a[16][16], b[8][16], c[16][8], d[32][4];
        uint32_t a_registers[32][4] = {{0}}, b_registers[32][2] = {{0}};
        const uint32_t *a_lanes[32], *b_lanes[32];
        float *d_lanes[32];
        for (int row = 0; row < 16; row++) {
            for (int k = 0; k < 16; k++) {
                a[row][k] = operand(&random, round % KINDS);
                a_registers[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2] |=
                    bits_of(a[row][k]) >> 16 << k % 2 * 16;
            }
            for (int column = 0; column < 8; column++)
                d[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2] = c[row][column] =
                    accumulator(&random, round % KINDS);
        }
        for (int column = 0; column < 8; column++) {
            for (int k = 0; k < 16; k++) {
                b[column][k] = operand(&random, round % KINDS);
                b_registers[column * 4 + k % 8 / 2][k / 8] |=
                    bits_of(b[column][k]) >> 16 << k % 2 * 16;
            }
        }
        for (int lane = 0; lane < 32; lane++) {
            a_lanes[lane] = a_registers[lane];
            b_lanes[lane] = b_registers[lane];
            d_lanes[lane] = d[lane];
        }
        emu_mma(d_lanes, EMU_BF16, a_lanes, b_lanes);
        for (int row = 0; row < 16; row++)
            for (int column = 0; column < 8; column++)
                assert_int_equal(bits_of(d[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2]),
                                 model(bf16_core, a[row], b[column], c[row][column]));
    }
}

/* A row of random bf16 numbers of one kind, or of e4m3. */
static void random_row(struct random *random, enum emu_element element, int kind, uint8_t *bytes,
                       float *values) {
    for (int k = 0; k < (element == EMU_BF16 ? 16 : 32); k++) {
        if (element == EMU_BF16) {
            values[k] = operand(random, kind);
            uint16_t half = (uint16_t)(bits_of(values[k]) >> 16);
            memcpy(bytes + 2 * k, &half, sizeof half);
            continue;
        }
        uint8_t byte = (uint8_t)random_next(random);
        if (kind == 0)
            byte = (byte & 0x87) | (uint8_t)((6 + byte / 8 % 3) << 3);
        if (kind == 4 && byte % 3)
            byte &= 0x80;
        if (kind != 5 && (byte & 0x7f) == 0x7f)
            byte ^= 1;
        bytes[k] = byte;
        values[k] = emu_float_from_e4m3(byte);
    }
}

static void wgmma_round(struct random *random, enum emu_element element, int kind, int columns) {
    static uint8_t a[16][32], b[256][32];
    static float a_values[16][32], b_values[256][32], c[16][256], d[32][128];
    float *lanes[32];
    bool accumulate = random_below(random, 3) > 0;
    for (int row = 0; row < 16; row++)
        random_row(random, element, kind, a[row], a_values[row]);
    for (int column = 0; column < columns; column++)
        random_row(random, element, kind, b[column], b_values[column]);
    for (int lane = 0; lane < 32; lane++)
        lanes[lane] = d[lane];
    for (int row = 0; row < 16; row++) {
        for (int column = 0; column < columns; column++) {
            c[row][column] = accumulate ? accumulator(random, kind) : NAN;
            d[row % 8 * 4 + column % 8 / 2][column / 8 * 4 + row / 8 * 2 + column % 2] =
                c[row][column];
        }
    }
    emu_wgmma_quarter(lanes, columns, element, accumulate, (const uint8_t(*)[32])a,
                      (const uint8_t(*)[32])b);
    for (int row = 0; row < 16; row++) {
        for (int column = 0; column < columns; column++) {
            float got = d[row % 8 * 4 + column % 8 / 2][column / 8 * 4 + row / 8 * 2 + column % 2];
            assert_int_equal(bits_of(got),
                             model(element == EMU_BF16 ? bf16_core : e4m3_core, a_values[row],
                                   b_values[column], accumulate ? c[row][column] : 0));
        }
    }
}

TEST(wgmma_matches_model) {
    struct random random = random_begin("wgmma_matches_model");
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < 6; i++) {
            int columns = i == 0 ? 256 : 8 * (1 + random_below(&random, 8));
            wgmma_round(&random, EMU_BF16, kind, columns);
            wgmma_round(&random, EMU_E4M3, kind, columns);
        }
    }
}

/* A in registers (PTX ISA, "Register Fragments" of wgmma.m64nNk16 and m64nNk32). */
TEST(a_from_registers) {
    uint32_t registers[32][4];
    const uint32_t *lanes[32];
    uint8_t rows[16][32];
    for (int lane = 0; lane < 32; lane++) {
        lanes[lane] = registers[lane];
        for (int i = 0; i < 4; i++)
            registers[lane][i] = (uint32_t)(lane << 16 | i << 8);
    }
    emu_wgmma_a_registers(lanes, EMU_BF16, rows);
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < 16; k++) {
            uint16_t half, want = (uint16_t)((row / 8 + k / 8 * 2) << 8);
            memcpy(&half, rows[row] + 2 * k, 2);
            assert_int_equal(half, k % 2 ? row % 8 * 4 + k % 8 / 2 : want);
        }
    }
    emu_wgmma_a_registers(lanes, EMU_E4M3, rows);
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < 32; k++) {
            int lane = row % 8 * 4 + k % 16 / 4, i = row / 8 + k / 16 * 2;
            const int bytes[] = {0, i, lane, 0};
            assert_int_equal(rows[row][k], bytes[k % 4]);
        }
    }
}

/* One sum of given operands, at an element of the product; the others are zero. */
static uint32_t one_sum(enum emu_element element, const void *a, const void *b, uint32_t before) {
    uint8_t rows[16][32] = {{0}}, columns[8][32] = {{0}};
    float d[32][4] = {{0}}, *lanes[32];
    memcpy(rows[11], a, 32);
    memcpy(columns[5], b, 32);
    for (int lane = 0; lane < 32; lane++)
        lanes[lane] = d[lane];
    d[14][3] = float_of(before); /* row 3 + 8, column 5 */
    emu_wgmma_quarter(lanes, 8, element, true, (const uint8_t(*)[32])rows,
                      (const uint8_t(*)[32])columns);
    return bits_of(d[14][3]);
}

/* Calculated by hand: after 1 - 1 only the last aligned bit remains; lower bits of either sign were
 * truncated. A larger term moves that position up. */
TEST(places_cut_off) {
    static const struct {
        float products[4];
        float after;
    } bf16_cases[] =
        {
            {{1, 0x1p-25f, -1, 0}, 0x1p-25f},        {{1, 0x1.8p-25f, -1, 0}, 0x1p-25f},
            {{1, -0x1.8p-25f, -1, 0}, -0x1p-25f},    {{1, 0x1p-26f, 0x1p-26f, -1}, 0},
            {{4, 0x1p-23f, 0x1p-24f, -4}, 0x1p-23f}, {{0x1p-60f, 0, 0, 0}, 0x1p-60f},
        },
      e4m3_cases[] = {
          {{1, 0x1p-13f, -1, 0}, 0x1p-13f},           {{1, 0x1p-14f, 0x1p-14f, -1}, 0},
          {{2, 0x1p-12f, 0x1p-13f, -2}, 0x1p-12f},    {{1, 0x1p-13f, 0, 0}, 1 + 0x1p-13f},
          {{4, 0x1p-11f, 0x1p-11f, 0}, 4 + 0x1p-10f},
      };
    for (int i = 0; i < 2 * COUNT(bf16_cases); i++) {
        /* Near one, and numbers for which numbers.c uses the general algorithm. */
        int exponent = i % 2 * 60;
        uint16_t a[16] = {0}, b[16] = {0};
        for (int k = 0; k < 4; k++) {
            a[5 * k] = emu_bf16_from_float(bf16_cases[i / 2].products[k]);
            b[5 * k] = emu_bf16_from_float(ldexpf(1, exponent));
        }
        assert_int_equal(one_sum(EMU_BF16, a, b, 0),
                         bits_of(ldexpf(bf16_cases[i / 2].after, exponent)));
    }
    for (int i = 0; i < COUNT(e4m3_cases); i++) {
        uint8_t a[32] = {0}, b[32] = {0};
        for (int k = 0; k < 4; k++) {
            float product = e4m3_cases[i].products[k];
            float split = fabsf(product) < 0x1p-6f ? 0x1p-7f : 1;
            a[9 * k] = emu_e4m3_from_float(product / split);
            b[9 * k] = emu_e4m3_from_float(split);
        }
        assert_int_equal(one_sum(EMU_E4M3, a, b, 0), bits_of(e4m3_cases[i].after));
    }
}

TEST(recorded_sums) {
    for (int i = 0; i < COUNT(bf16_sums); i++)
        assert_int_equal(one_sum(EMU_BF16, bf16_sums[i].a, bf16_sums[i].b, bf16_sums[i].before),
                         bf16_sums[i].after);
    for (int i = 0; i < COUNT(e4m3_sums); i++)
        assert_int_equal(one_sum(EMU_E4M3, e4m3_sums[i].a, e4m3_sums[i].b, e4m3_sums[i].before),
                         e4m3_sums[i].after);
}

TESTS("numbers")
