/* The buffers' contents before a launch: see cases.h. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../../unit/random.h"
#include "cases.h"

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static int below(uint64_t *state, int limit) {
    return (int)(next_random(state) % (uint64_t)limit);
}

/* Uniform in -1 .. 1. */
static float unit(uint64_t *state) {
    return (float)((double)(next_random(state) >> 11) * 0x1p-52 - 1.0);
}

/* FNV-1a. */
uint64_t micro_hash(uint64_t buffer, const void *bytes, size_t count) {
    const unsigned char *const at = bytes;
    uint64_t hash = 0xcbf29ce484222325U ^ buffer;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * 0x100000001b3U;
    return hash;
}

uint64_t micro_seed(const char *name, char buffer) {
    return micro_hash((unsigned char)buffer, name, strlen(name));
}

static uint16_t bf16_of(float value) {
    uint32_t bits = bits_of(value);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t bf16(enum fill fill, uint64_t *state) {
    static const uint16_t extremes[] = {0x0000, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x7f7f, 0x0001};
    enum { EXTREMES = sizeof extremes / sizeof extremes[0] };
    switch (fill) {
    case FILL_INTEGER_BF16:
        return bf16_of((float)(below(state, 17) - 8));
    case FILL_TERNARY_BF16:
        return bf16_of((float)(below(state, 3) - 1));
    case FILL_RANDOM_BF16:
        return bf16_of(unit(state));
    default: /* special values are rare, since otherwise no sum would be finite */
        return below(state, 100) == 0 ? extremes[below(state, EXTREMES)]
                                      : (uint16_t)(next_random(state) & 0xbfff);
    }
}

/* e4m3 codes: 1 is 0x38; 8 codes to a power of two. */
static uint8_t e4m3(enum fill fill, uint64_t *state) {
    static const uint8_t integers[] = {0, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e, 0x50};
    uint8_t sign = (uint8_t)(below(state, 2) * 0x80);
    if (fill == FILL_INTEGER_E4M3)
        return sign | integers[below(state, 9)];
    if (fill == FILL_RANDOM_E4M3)
        return sign | (uint8_t)below(state, 0x39);
    int code = below(state, 2000) == 0 ? 0x7f : below(state, 0x7f);
    return sign | (uint8_t)code;
}

static float wide_float(size_t index, uint64_t *state) {
    static const uint32_t specials[] = {
        0x00000000, 0x80000000, 0x7f800000, 0xff800000,
        0x7fc00000, 0xffc00001, /* 0, inf, NaN */
        0x00000001, 0x80000001, 0x007fffff, 0x807fffff,
        0x00800000, 0x80800000, /* denormal edge */
        0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000,
        0x3f7fffff, 0x3f800001, /* largest, about 1 */
        0x42fe0000, 0x42feffff, 0x42ff0000, 0x43000000,
        0x43000001, 0x42ffffff, /* about 127, 128 */
        0xc2fc0000, 0xc2fc0001, 0xc2fe0000, 0xc3000000,
        0xc3150000, 0xc3160000, /* -126 .. -150 */
        0x33800000, 0xb3800000, 0x7fa00000, 0x40490fdb,
    };
    enum { SPECIALS = sizeof specials / sizeof specials[0] };
    float value;
    uint32_t bits = (uint32_t)next_random(state);
    if (index < SPECIALS)
        bits = specials[index];
    else if (index % 2 == 0)
        bits = bits_of(160 * unit(state));
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t word(enum fill fill, size_t index, uint64_t *state) {
    switch (fill) {
    case FILL_INTEGER_FLOAT:
        return bits_of((float)(below(state, 129) - 64));
    case FILL_RANDOM_FLOAT:
        return bits_of(unit(state));
    case FILL_WIDE_FLOAT:
        return bits_of(wide_float(index, state));
    case FILL_BYTE_COUNTS:
        return (uint32_t)below(state, 17);
    case FILL_ROW_NUMBERS:
        return below(state, 4) == 0 ? UINT32_MAX : (uint32_t)below(state, 256);
    default:
        return (uint32_t)next_random(state);
    }
}

static void fill_permutation(uint32_t *words, size_t count, uint64_t *state) {
    for (size_t i = 0; i < count; i++) {
        size_t other = (size_t)below(state, (int)i + 1);
        words[i] = words[other];
        words[other] = (uint32_t)i;
    }
}

void micro_fill(enum fill fill, void *buffer, size_t bytes, uint64_t seed) {
    uint64_t state = seed;
    uint8_t *b8 = buffer;
    uint16_t *b16 = buffer;
    uint32_t *b32 = buffer;
    if (fill == FILL_ZERO || fill == FILL_POISON || fill == FILL_NOTHING) {
        memset(buffer, fill == FILL_POISON ? 0xff : 0, bytes);
    } else if (fill == FILL_LANE_ROWS) {
        fill_permutation(b32, bytes / 4, &state);
    } else if (fill >= FILL_INTEGER_E4M3 && fill <= FILL_EXTREME_E4M3) {
        for (size_t i = 0; i < bytes; i++)
            b8[i] = e4m3(fill, &state);
    } else if (fill >= FILL_INTEGER_BF16 && fill <= FILL_EXTREME_BF16) {
        for (size_t i = 0; i < bytes / 2; i++)
            b16[i] = bf16(fill, &state);
    } else {
        for (size_t i = 0; i < bytes / 4; i++)
            b32[i] = word(fill, i, &state);
    }
}
