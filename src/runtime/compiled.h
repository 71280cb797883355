/* What a compilation gives, and by whom it was done: what compiler and cache pass to each other. */
#ifndef SMELT_RUNTIME_COMPILED_H
#define SMELT_RUNTIME_COMPILED_H

#include <stddef.h>

/* Identifies the compiler: NVRTC's version and the ELF build-ids of it and its builtins library. */
struct smelt__compiler_id {
    int major, minor;
    unsigned char build_ids[16]; /* XXH3-128 over both build-ids */
};

/* One compiled kernel. `cubin` is malloc'ed and owned by whoever holds the struct. */
struct smelt__compiled {
    unsigned char *cubin;
    size_t cubin_bytes;
    char spec[256];
    char kernel_name[128];
    int registers, spill_bytes, static_shared_bytes, dynamic_shared_bytes, threads;
    double compile_seconds;
    double assembler_seconds; /* only when just compiled: the assembler's part of it, as it reports
                               * it; 0: it did not. Not stored. */
    int serialised; /* only when just compiled: the assembler's warning C7510 to C7518 that it makes
                     * asynchronous products wait for one another; 0: none. Not stored. */
};

#endif
