/* The fake NVRTC's output for a source; tests use it to check the cubin that they got. */
#pragma once

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FAKE_CUBIN_HEAD = 64, FAKE_CUBIN_MACHINE = 18 };

/* FNV-1a, enough to tell the sources of a test apart. */
static inline uint64_t fake_source_hash(const char *source) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *source; source++)
        hash = (hash ^ (unsigned char)*source) * UINT64_C(0x100000001b3);
    return hash;
}

/* The header of an ELF file for GPUs whose entry point is the source's hash; then bytes derived
 * from the hash. */
struct fake_cubin {
    char head[FAKE_CUBIN_HEAD];
    uint64_t word;
};

static inline struct fake_cubin fake_cubin_begin(uint64_t hash) {
    /* Class 64, little-endian, version 1; executable, EM_CUDA. */
    static const unsigned char begin[] = {0x7f, 'E', 'L', 'F', 2, 1, 1,   0, 'F', 'A', 'K', 'E',
                                          'C',  'U', 'B', 'I', 2, 0, 190, 0, 1,   0,   0,   0};
    struct fake_cubin cubin = {.word = hash};
    memcpy(cubin.head, begin, sizeof begin);
    memcpy(cubin.head + sizeof begin, &hash, sizeof hash);
    return cubin;
}

/* Byte number `at`; called in ascending order. */
static inline unsigned char fake_cubin_byte(struct fake_cubin *cubin, size_t at) {
    if (at < FAKE_CUBIN_HEAD)
        return (unsigned char)cubin->head[at];
    if (at % 8 == 0)
        cubin->word = cubin->word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned char)(cubin->word >> (8 * (at % 8)));
}

static inline void fake_cubin_fill(uint64_t hash, unsigned char *bytes, size_t count) {
    struct fake_cubin cubin = fake_cubin_begin(hash);
    for (size_t i = 0; i < count; i++)
        bytes[i] = fake_cubin_byte(&cubin, i);
}

/* Does not allocate, since memory may be exhausted. */
static inline int fake_cubin_matches(uint64_t hash, const void *bytes, size_t count) {
    struct fake_cubin cubin = fake_cubin_begin(hash);
    const unsigned char *given = (const unsigned char *)bytes;
    for (size_t i = 0; i < count; i++)
        if (given[i] != fake_cubin_byte(&cubin, i))
            return 0;
    return count >= FAKE_CUBIN_HEAD;
}
