/*
 * An NVRTC for tests, which compiles nothing: its cubins contain the source's hash (fake_cubin.h).
 * Tests reach its state through dlsym("fake_nvrtc_state"); for tests of many programs there are two
 * environment variables:
 *
 *   FAKE_NVRTC_COMPILES=FILE each compilation appends a line, the hash of its source
 *   FAKE_NVRTC_MS=N duration of a compilation, overrides sleep_ms
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { FAKE_NVRTC_OPTIONS = 8, FAKE_NVRTC_OPTION = 64 };

struct fake_nvrtc {
    atomic_int compiles;
    atomic_int programs;                      /* alive */
    atomic_int running;                       /* compilations at this moment */
    atomic_int max_running;                   /* most at once */
    int open_ms;                              /* duration of the first call, when it is opened */
    int sleep_ms;                             /* duration of a compilation */
    int machine;                              /* the ELF machine of a cubin; 0 for GPUs */
    int cubin_bytes;                          /* of a cubin, at least FAKE_CUBIN_HEAD; 0 for that */
    void (*on_compile)(uint64_t source_hash); /* called in each compilation, or NULL */
    atomic_int silent; /* so many further compilations have no report in their log */
    char fail[48];     /* the function that fails; "": none */
    int fail_with;
    char options[FAKE_NVRTC_OPTIONS][FAKE_NVRTC_OPTION]; /* of the last compilation */
    int option_count;
};

typedef struct fake_nvrtc *(*fake_nvrtc_function)(void);
