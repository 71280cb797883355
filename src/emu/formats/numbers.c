/*
 * How tensor cores add, bit for bit as observed on H200s (tests/emu/micro; the same model for H100:
 * Xie et al., "MMA-Sim", arXiv 2511.10909, 2025, and Khattak and Mikaitis, "Accurate Models of
 * NVIDIA Tensor Cores", arXiv 2512.07004, 2025). For each element of d, one instruction computes
 * one fused sum of d and all its products, 16 of bf16 or 32 of e4m3:
 *   1. every product is exact: the significands are multiplied without normalisation, the exponents
 *      added; subnormal operands have the smallest exponent;
 *   2. all terms are aligned to the largest exponent among the nonzero ones, but at least -133, and
 *      truncated (towards zero) to a number of fraction bits: 25 for bf16, 13 for e4m3;
 *   3. they are added exactly, so that their order does not matter;
 *   4. the sum is truncated to fp32, subnormals included; for e4m3 to 13 fraction bits.
 * A zero is +0 whatever its terms were; a NaN is 0x7fffffff; above the largest float the result is
 * infinity. (Ampere and Ada add 8 products at a time with 24 fraction bits. That is not modelled:
 * the `mma` kernels are checked with Hopper's sums on every architecture.)
 */
#include "emu/formats/numbers.h"

#include <math.h>
#include <string.h>

enum {
    FLOAT_BIAS = 127,
    FLOAT_FRACTION = 23,
    BF16_FRACTION = 7,
    E4M3_FRACTION = 3,
    E4M3_BIAS = 7,
    LOWEST_ALIGNMENT = -133, /* the exponent of bf16's smallest subnormal */
    WARP = 32,
    MAX_DEPTH = 32,
};

static const uint32_t nan_bits = 0x7fffffff, infinity_bits = 0x7f800000;

static float float_from(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- conversions ---- */

float emu_float_from_bf16(uint16_t bits) {
    return float_from((uint32_t)bits << 16);
}

uint16_t emu_bf16_from_float(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > infinity_bits)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint32_t emu_bf16x2(float low, float high) {
    return emu_bf16_from_float(low) | (uint32_t)emu_bf16_from_float(high) << 16;
}

float emu_float_from_e4m3(uint8_t bits) {
    int exponent = bits >> E4M3_FRACTION & 15, fraction = bits & 7;
    if (exponent == 15 && fraction == 7)
        return float_from(nan_bits);
    int significand = exponent ? fraction | 8 : fraction;
    float value = ldexpf((float)significand, (exponent ? exponent : 1) - E4M3_BIAS - E4M3_FRACTION);
    return bits & 0x80 ? -value : value;
}

uint8_t emu_e4m3_from_float(float value) {
    if (isnan(value))
        return 0x7f;
    uint8_t sign = signbit(value) ? 0x80 : 0;
    float magnitude = fabsf(value);
    if (magnitude >= 448)
        return sign | 0x7e;
    int exponent = magnitude > 0 ? ilogbf(magnitude) : 1 - E4M3_BIAS;
    if (exponent < 1 - E4M3_BIAS)
        exponent = 1 - E4M3_BIAS;
    /* In units in the last place; 16, or 8 of a subnormal, carries into the exponent. */
    int units = (int)rintf(ldexpf(magnitude, E4M3_FRACTION - exponent));
    int code = ((exponent + E4M3_BIAS - 1) << E4M3_FRACTION) + units;
    return sign | (uint8_t)(code > 0x7e ? 0x7e : code);
}

uint16_t emu_e4m3x2(float low, float high) {
    return (uint16_t)(emu_e4m3_from_float(low) | emu_e4m3_from_float(high) << 8);
}

float emu_flush(float value) {
    uint32_t bits = bits_of(value);
    return bits & infinity_bits ? value : float_from(bits & 0x80000000);
}

/* ---- approximate functions ---- */

float emu_exp2(float x) {
    if (isnan(x))
        return float_from(nan_bits);
    return emu_flush((float)exp2((double)emu_flush(x)));
}

float emu_log2(float x) {
    if (isnan(x) || x < 0)
        return float_from(nan_bits);
    return (float)log2((double)x);
}

float emu_log2_flushing(float x) {
    return emu_log2(emu_flush(x));
}

/* ---- one sum, any operands ---- */

/* (-1)^negative * significand * 2^(exponent - the format's fraction bits). */
struct number {
    bool negative;
    enum { FINITE, INFINITE, NOT_A_NUMBER } kind;
    int significand;
    int exponent;
};

static struct number number_of_float(uint32_t bits) {
    int exponent = (int)(bits >> FLOAT_FRACTION & 255), fraction = (int)(bits & 0x7fffff);
    struct number number = {.negative = bits >> 31, .kind = FINITE};
    if (exponent == 255)
        number.kind = fraction ? NOT_A_NUMBER : INFINITE;
    number.significand = exponent ? fraction | 0x800000 : fraction;
    number.exponent = (exponent ? exponent : 1) - FLOAT_BIAS;
    return number;
}

static struct number number_of_bf16(uint32_t bits) {
    struct number number = number_of_float(bits << 16);
    number.significand >>= FLOAT_FRACTION - BF16_FRACTION;
    return number;
}

static struct number number_of_e4m3(uint32_t bits) {
    int exponent = (int)(bits >> E4M3_FRACTION & 15), fraction = (int)(bits & 7);
    return (struct number){
        .negative = bits >> 7 & 1,
        .kind = exponent == 15 && fraction == 7 ? NOT_A_NUMBER : FINITE,
        .significand = exponent ? fraction | 8 : fraction,
        .exponent = (exponent ? exponent : 1) - E4M3_BIAS,
    };
}

static bool is_zero(struct number number) {
    return number.kind == FINITE && number.significand == 0;
}

struct format {
    int depth;            /* products of one sum */
    int product_fraction; /* fraction bits of a product */
    int aligned_fraction; /* of the aligned terms */
    int result_fraction;  /* of the result */
};
static const struct format formats[] = {
    [EMU_BF16] = {16, 2 * BF16_FRACTION, 25, 23},
    [EMU_E4M3] = {32, 2 * E4M3_FRACTION, 13, 13},
};

/* The sum if infinities or NaNs are among the terms; 0: there are none. */
static uint32_t special_sum(int depth, const struct number *a, const struct number *b,
                            struct number c) {
    bool infinite[2] = {false, false};
    if (c.kind == NOT_A_NUMBER)
        return nan_bits;
    if (c.kind == INFINITE)
        infinite[c.negative] = true;
    for (int k = 0; k < depth; k++) {
        if (a[k].kind == NOT_A_NUMBER || b[k].kind == NOT_A_NUMBER)
            return nan_bits;
        if (a[k].kind == FINITE && b[k].kind == FINITE)
            continue;
        if (is_zero(a[k]) || is_zero(b[k]))
            return nan_bits;
        infinite[a[k].negative != b[k].negative] = true;
    }
    if (infinite[0] && infinite[1])
        return nan_bits;
    return infinite[0] ? infinity_bits : infinite[1] ? infinity_bits | 0x80000000 : 0;
}

/* `significand` * 2^`shift`, truncated. */
static int64_t aligned(int64_t significand, int shift) {
    return shift >= 0 ? significand << shift : shift > -63 ? significand >> -shift : 0;
}

/* sum * 2^exponent, truncated to a float with `fraction_bits`. */
static uint32_t truncate_sum(int64_t sum, int exponent, int fraction_bits) {
    if (sum == 0)
        return 0;
    uint32_t sign = sum < 0 ? 0x80000000 : 0;
    uint64_t magnitude = sum < 0 ? -(uint64_t)sum : (uint64_t)sum;
    int top = 63 - __builtin_clzll(magnitude);
    int value_exponent = top + exponent; /* 2^this <= value < 2 * that */
    if (value_exponent > FLOAT_BIAS)
        return sign | infinity_bits;
    int lowest = value_exponent < 1 - FLOAT_BIAS ? 1 - FLOAT_BIAS : value_exponent;
    int drop = lowest - fraction_bits - exponent; /* bits of `magnitude` below the last place */
    if (drop > top)
        return 0; /* +0 */
    uint64_t kept = drop > 0 ? magnitude >> drop << drop : magnitude;
    return sign | bits_of((float)ldexp((double)kept, exponent));
}

static uint32_t fused_sum(const struct format *format, const struct number *a,
                          const struct number *b, uint32_t accumulator) {
    struct number c = number_of_float(accumulator);
    uint32_t special = special_sum(format->depth, a, b, c);
    if (special)
        return special;
    int largest = LOWEST_ALIGNMENT;
    if (c.significand && c.exponent > largest)
        largest = c.exponent;
    for (int k = 0; k < format->depth; k++) {
        int exponent = a[k].exponent + b[k].exponent;
        if (a[k].significand && b[k].significand && exponent > largest)
            largest = exponent;
    }
    int64_t sum =
        aligned(c.significand, c.exponent - largest + format->aligned_fraction - FLOAT_FRACTION);
    sum = c.negative ? -sum : sum;
    for (int k = 0; k < format->depth; k++) {
        int64_t product = (int64_t)a[k].significand * b[k].significand;
        int shift = a[k].exponent + b[k].exponent - largest + format->aligned_fraction -
                    format->product_fraction;
        int64_t term = product ? aligned(product, shift) : 0;
        sum += a[k].negative != b[k].negative ? -term : term;
    }
    return truncate_sum(sum, largest - format->aligned_fraction, format->result_fraction);
}

/* ---- many sums of plain operands ---- */

/* The same sums, several at a time in floats, if no exponent is near the ends of the range:
 * products and powers of two are then exact. fused_sum computes the others. */

typedef float floats __attribute__((vector_size(16)));
typedef int32_t ints __attribute__((vector_size(16)));
typedef int16_t shorts __attribute__((vector_size(16)));

enum {
    CHUNK = 8, /* columns at a time: one vector of shorts, two of floats */
    LANES = 4,
    PLAIN_EXPONENT = 45,    /* of an operand: at most this, either sign */
    PLAIN_ACCUMULATOR = 95, /* of d likewise; a product's is at most 91 */
    ZERO_EXPONENT = -1000,  /* below all others */
};

/* A row of A or a column of B. */
struct line {
    float values[MAX_DEPTH];
    int16_t exponents[MAX_DEPTH];
    bool plain;
};

static void unpack_bf16(const uint8_t *bytes, struct line *line) {
    uint16_t halves[16];
    bool plain = true;
    memcpy(halves, bytes, sizeof halves);
    for (int k = 0; k < 16; k++) {
        int exponent = (halves[k] >> BF16_FRACTION & 255) - FLOAT_BIAS;
        bool zero = (halves[k] & 0x7fff) == 0;
        plain &= zero | ((exponent <= PLAIN_EXPONENT) & (exponent >= -PLAIN_EXPONENT));
        line->values[k] = emu_float_from_bf16(halves[k]);
        line->exponents[k] = (int16_t)(zero ? ZERO_EXPONENT : exponent);
    }
    line->plain = plain;
}

static void unpack_e4m3(const uint8_t *bytes, struct line *line) {
    const float rebias = 0x1p120f; /* 2^(FLOAT_BIAS - E4M3_BIAS) */
    bool plain = true;
    for (int k = 0; k < 32; k++) {
        uint32_t magnitude = bytes[k] & 0x7f, sign = (uint32_t)(bytes[k] & 0x80) << 24;
        int exponent = (int)(magnitude >> E4M3_FRACTION);
        plain &= magnitude != 0x7f;
        line->values[k] = float_from(sign | magnitude << (FLOAT_FRACTION - E4M3_FRACTION)) * rebias;
        line->exponents[k] =
            (int16_t)(magnitude ? (exponent ? exponent : 1) - E4M3_BIAS : ZERO_EXPONENT);
    }
    line->plain = plain;
}

static void unpack(enum emu_element element, const uint8_t *bytes, struct line *line) {
    if (element == EMU_BF16)
        unpack_bf16(bytes, line);
    else
        unpack_e4m3(bytes, line);
}

/* CHUNK columns of B, by k. */
struct columns {
    float values[MAX_DEPTH][CHUNK];
    int16_t exponents[MAX_DEPTH][CHUNK];
    bool plain;
};

static void unpack_columns(enum emu_element element, const uint8_t (*b)[EMU_DEPTH_BYTES],
                           struct columns *columns) {
    columns->plain = true;
    for (int column = 0; column < CHUNK; column++) {
        struct line line;
        unpack(element, b[column], &line);
        columns->plain &= line.plain;
        for (int k = 0; k < formats[element].depth; k++) {
            columns->values[k][column] = line.values[k];
            columns->exponents[k][column] = line.exponents[k];
        }
    }
}

/* Exponents of a row of d; false: some value is not plain. */
static bool accumulator_exponents(const float *d, int16_t *exponents) {
    bool plain = true;
    for (int column = 0; column < CHUNK; column++) {
        uint32_t magnitude = bits_of(d[column]) & 0x7fffffff;
        int exponent = (int)(magnitude >> FLOAT_FRACTION) - FLOAT_BIAS;
        bool zero = magnitude == 0;
        plain &= zero | ((exponent <= PLAIN_ACCUMULATOR) & (exponent >= -PLAIN_ACCUMULATOR));
        /* low enough to lose nothing; the scale stays a float */
        exponents[column] = (int16_t)(zero ? -PLAIN_ACCUMULATOR : exponent);
    }
    return plain;
}

static shorts larger(shorts x, shorts y) {
    shorts which = x > y;
    return (x & which) | (y & ~which);
}

/* d[CHUNK] += row * columns; `exponents` are d's. */
static void plain_sums(const struct format *format, const struct line *row,
                       const struct columns *columns, const int16_t *exponents, float *d) {
    shorts largest;
    memcpy(&largest, exponents, sizeof largest);
    for (int k = 0; k < format->depth; k++) {
        shorts column_exponents;
        memcpy(&column_exponents, columns->exponents[k], sizeof column_exponents);
        largest = larger(largest, row->exponents[k] + column_exponents);
    }

    /* Terms times 2^(aligned_fraction - largest), truncated: each is below 2^27, sixteen below
     * 2^31. */
    float scale[CHUNK], last_place[CHUNK];
    for (int column = 0; column < CHUNK; column++) {
        int shift = format->aligned_fraction - largest[column];
        scale[column] = float_from((uint32_t)(FLOAT_BIAS + shift) << FLOAT_FRACTION);
        last_place[column] = float_from((uint32_t)(FLOAT_BIAS - shift) << FLOAT_FRACTION);
    }
    floats scales[CHUNK / LANES];
    memcpy(scales, scale, sizeof scales);
    ints low = {0}, high = {0};
    for (int k = 0; k < format->depth; k++) {
        floats values[CHUNK / LANES];
        memcpy(values, columns->values[k], sizeof values);
        low += __builtin_convertvector(row->values[k] * values[0] * scales[0], ints);
        high += __builtin_convertvector(row->values[k] * values[1] * scales[1], ints);
    }

    int32_t sums[CHUNK];
    memcpy(sums, &low, sizeof low);
    memcpy(sums + LANES, &high, sizeof high);
    const int double_fraction = 52;
    uint64_t kept = ~UINT64_C(0) << (double_fraction - format->result_fraction);
    for (int column = 0; column < CHUNK; column++) {
        double sum = (double)sums[column] + (int32_t)(d[column] * scale[column]);
        uint64_t bits;
        memcpy(&bits, &sum, sizeof bits);
        bits &= kept;
        memcpy(&sum, &bits, sizeof sum);
        d[column] = (float)sum * last_place[column];
    }
}

static struct number number_at(enum emu_element element, const uint8_t *bytes, int k) {
    if (element == EMU_E4M3)
        return number_of_e4m3(bytes[k]);
    uint16_t half;
    memcpy(&half, bytes + 2 * k, sizeof half);
    return number_of_bf16(half);
}

/* One element of d, any operands. */
static float any_sum(enum emu_element element, const uint8_t *row, const uint8_t *column,
                     float accumulator) {
    struct number a[MAX_DEPTH], b[MAX_DEPTH];
    for (int k = 0; k < formats[element].depth; k++) {
        a[k] = number_at(element, row, k);
        b[k] = number_at(element, column, k);
    }
    return float_from(fused_sum(&formats[element], a, b, bits_of(accumulator)));
}

/* ---- matrix products ---- */

void emu_wgmma_a_registers(const uint32_t *const *a, enum emu_element element,
                           uint8_t (*rows)[EMU_DEPTH_BYTES]) {
    (void)element; /* in bytes, both formats' fragments are the same */
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++)
            memcpy(&rows[lane / 4 + i % 2 * 8][lane % 4 * 4 + i / 2 * 16], &a[lane][i], 4);
}

/* d[16][CHUNK] += a[16] * b[CHUNK]; `rows` is a, unpacked. */
static void multiply_chunk(enum emu_element element, const struct line *rows,
                           const uint8_t (*a)[EMU_DEPTH_BYTES], const uint8_t (*b)[EMU_DEPTH_BYTES],
                           float (*d)[CHUNK]) {
    struct columns columns;
    unpack_columns(element, b, &columns);
    for (int row = 0; row < EMU_QUARTER_ROWS; row++) {
        int16_t exponents[CHUNK];
        if (accumulator_exponents(d[row], exponents) && rows[row].plain && columns.plain) {
            plain_sums(&formats[element], &rows[row], &columns, exponents, d[row]);
            continue;
        }
        for (int column = 0; column < CHUNK; column++)
            d[row][column] = any_sum(element, a[row], b[column], d[row][column]);
    }
}

void emu_wgmma_quarter(float *const *d, int columns, enum emu_element element, bool accumulate,
                       const uint8_t (*a)[EMU_DEPTH_BYTES], const uint8_t (*b)[EMU_DEPTH_BYTES]) {
    struct line rows[EMU_QUARTER_ROWS];
    for (int row = 0; row < EMU_QUARTER_ROWS; row++)
        unpack(element, a[row], &rows[row]);
    for (int first = 0; first < columns; first += CHUNK) {
        float sums[EMU_QUARTER_ROWS][CHUNK] = {{0}};
        for (int lane = 0; lane < WARP && accumulate; lane++)
            for (int i = 0; i < 4; i++)
                sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = d[lane][first / 2 + i];
        multiply_chunk(element, rows, a, b + first, sums);
        for (int lane = 0; lane < WARP; lane++)
            for (int i = 0; i < 4; i++)
                d[lane][first / 2 + i] = sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
}

/* Hopper multiplies e4m3 in wgmma only. For mma, ptxas converts both operands to fp16, which holds
 * e4m3 exactly, and issues two products of depth 16, for the even and the odd pairs of k. bf16 also
 * holds e4m3 exactly and is summed the same way. */
static void even_or_odd_pairs(const uint8_t *from, int odd, uint8_t *to) {
    uint16_t halves[EMU_DEPTH_BYTES / 2];
    for (int i = 0; i < EMU_DEPTH_BYTES / 2; i++)
        halves[i] = emu_bf16_from_float(emu_float_from_e4m3(from[i / 2 * 4 + 2 * odd + i % 2]));
    memcpy(to, halves, sizeof halves);
}

void emu_mma(float *const *d, enum emu_element element, const uint32_t *const *a,
             const uint32_t *const *b) {
    uint8_t rows[EMU_QUARTER_ROWS][EMU_DEPTH_BYTES], columns[CHUNK][EMU_DEPTH_BYTES];
    emu_wgmma_a_registers(a, element, rows);
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 2; i++)
            memcpy(&columns[lane / 4][lane % 4 * 4 + i * 16], &b[lane][i], 4);
    for (int part = 0; part < (element == EMU_E4M3 ? 2 : 1); part++) {
        uint8_t a_part[EMU_QUARTER_ROWS][EMU_DEPTH_BYTES], b_part[CHUNK][EMU_DEPTH_BYTES];
        memcpy(a_part, rows, sizeof a_part);
        memcpy(b_part, columns, sizeof b_part);
        for (int row = 0; element == EMU_E4M3 && row < EMU_QUARTER_ROWS; row++)
            even_or_odd_pairs(rows[row], part, a_part[row]);
        for (int column = 0; element == EMU_E4M3 && column < CHUNK; column++)
            even_or_odd_pairs(columns[column], part, b_part[column]);
        emu_wgmma_quarter(d, CHUNK, EMU_BF16, true, (const uint8_t(*)[EMU_DEPTH_BYTES])a_part,
                          (const uint8_t(*)[EMU_DEPTH_BYTES])b_part);
    }
}
