/*
 * The suite's cases: each one is a launch of a micro-kernel with inputs from a fixed seed, so that
 * the emulator's results can be compared with recorded results of an H200.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/tensor_map.h"

#include "params.h"

enum { CASE_CONSTANTS = 2, CASE_REGIONS = 6, CASE_MAPS = 3, CASE_RANK = 4, CASE_NAME = 64 };

/* A buffer's contents before the launch. */
enum fill {
    FILL_NOTHING, /* there is no buffer */
    FILL_ZERO,
    FILL_POISON,        /* bytes 0xff: NaNs, to detect missing writes */
    FILL_WORDS,         /* any 32 bits */
    FILL_INTEGER_BF16,  /* -8 .. 8 */
    FILL_TERNARY_BF16,  /* -1, 0, 1 */
    FILL_RANDOM_BF16,   /* -1 .. 1, rounded */
    FILL_EXTREME_BF16,  /* any 16 bits; zeros, infinities and NaNs are frequent */
    FILL_INTEGER_E4M3,  /* -8 .. 8 */
    FILL_RANDOM_E4M3,   /* any code of absolute value at most 1 */
    FILL_EXTREME_E4M3,  /* any code */
    FILL_INTEGER_FLOAT, /* -64 .. 64 */
    FILL_RANDOM_FLOAT,  /* -1 .. 1 */
    FILL_WIDE_FLOAT,    /* special values, then any exponent, then -160 .. 160 */
    FILL_LANE_ROWS,     /* a permutation of 0 .. 31 as ints */
    FILL_BYTE_COUNTS,   /* ints from 0 to 16 */
    FILL_ROW_NUMBERS,   /* ints from 0 to 255, a quarter of them -1 */
};

/* How a result is compared with the recorded one. */
enum comparison {
    BIT_FOR_BIT,
    ROUNDED, /* floats, within `tolerance` of `scale` + their size */
    ULPS,    /* floats, within 2 units in the last place or `tolerance` */
};

enum buffer { IN_A, IN_B };

/* A tensor in one of the buffers. */
struct case_map {
    enum buffer buffer;
    size_t offset; /* bytes into it */
    int rank, element_bytes, swizzle;
    int dimensions[CASE_RANK], box[CASE_RANK];
    int strides[CASE_RANK]; /* bytes, of the dimensions except the first */
};

struct micro_case {
    char name[CASE_NAME];
    const char *kernel; /* "products": products.cu */
    struct {
        const char *name;
        int value;
    } constants[CASE_CONSTANTS]; /* until a NULL name */
    struct {
        const char *name;
        int bytes;
    } regions[CASE_REGIONS]; /* of shared memory, each 1024-byte aligned, until a NULL name */
    int blocks, threads, cluster;
    struct micro_params params; /* pointers and maps are set at the launch */
    enum fill a, b, out;
    size_t a_bytes, b_bytes, out_bytes;
    struct case_map maps[CASE_MAPS];
    int map_count;
    enum comparison comparison;
    float tolerance, scale;
};

/* All cases, in their order; *count receives their number. Allocated once, never freed. */
const struct micro_case *micro_cases(size_t *count);

/* Writes a buffer's contents, which depend on fill, size and seed only. */
void micro_fill(enum fill fill, void *buffer, size_t bytes, uint64_t seed);

/* A hash of bytes; and the seed of a case's buffer, by the case's name and the buffer's letter. */
uint64_t micro_hash(uint64_t buffer, const void *bytes, size_t count);
uint64_t micro_seed(const char *name, char buffer);
