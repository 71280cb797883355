/* The result of a compilation and the identity of its compiler, as compiler and cache exchange
 * them. */
#pragma once

#include <stddef.h>

/* NVRTC's version and the ELF build-ids of NVRTC and its builtins library. */
struct smelt__compiler_id {
    int major, minor;
    unsigned char build_ids[16]; /* XXH3-128 over both build-ids */
};

/* One compiled kernel. `cubin` is malloc'ed and owned by the struct's owner. */
struct smelt__compiled {
    unsigned char *cubin;
    size_t cubin_bytes;
    char spec[256];
    char kernel_name[128];
    int registers, spill_bytes, static_shared_bytes, dynamic_shared_bytes, threads;
    double compile_seconds;
    /* Not stored, so 0 for a cached kernel: */
    double assembler_seconds; /* the assembler's own report of its time; 0: none */
    int serialised; /* the assembler's warning C7510 to C7518 that it serialises wgmma; 0: none */
};
