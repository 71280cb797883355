/* What the fake NVRTC makes of a source, for itself and for tests that check what they were given.
 */
#ifndef FAKE_CUBIN_H
#define FAKE_CUBIN_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { FAKE_CUBIN_HEAD = 64 };

/* FNV-1a, enough to tell the sources of a test apart. */
static inline uint64_t fake_source_hash(const char *source) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *source; source++)
        hash = (hash ^ (unsigned char)*source) * UINT64_C(0x100000001b3);
    return hash;
}

/* A line that names the source, then bytes that follow from its hash up to `bytes`, at least
 * FAKE_CUBIN_HEAD. */
static inline void fake_cubin_fill(uint64_t hash, unsigned char *cubin, size_t bytes) {
    uint64_t word = hash;
    memset(cubin, 0, FAKE_CUBIN_HEAD);
    snprintf((char *)cubin, FAKE_CUBIN_HEAD, "FAKECUBIN %016" PRIx64, hash);
    for (size_t i = FAKE_CUBIN_HEAD; i < bytes; i++) {
        if (i % 8 == 0)
            word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        cubin[i] = (unsigned char)(word >> (8 * (i % 8)));
    }
}

#endif
