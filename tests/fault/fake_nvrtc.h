/*
 * An NVRTC that compiles nothing, for tests: its cubins tell the source's hash (fake_cubin.h).
 * Tests reach its state through dlsym("fake_nvrtc_state"); for tests of many programs there are two
 * environment variables:
 *
 *   FAKE_NVRTC_COMPILES=FILE   each compilation appends a line, the hash of its source
 *   FAKE_NVRTC_MS=N            what a compilation takes, in place of sleep_ms
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { FAKE_NVRTC_OPTIONS = 8, FAKE_NVRTC_OPTION = 64 };

struct fake_nvrtc {
    atomic_int compiles;
    atomic_int programs;    /* alive */
    atomic_int running;     /* compilations at this moment */
    atomic_int max_running; /* most at once */
    int open_ms;            /* what the first question takes, asked when it is opened */
    int sleep_ms;           /* what a compilation takes */
    int machine;            /* the ELF machine of a cubin; 0 for GPUs */
    int cubin_bytes;        /* of a cubin, at least FAKE_CUBIN_HEAD; 0 for that */
    void (*on_compile)(uint64_t source_hash); /* called in each compilation, or NULL */
    atomic_int silent; /* so many compilations to come leave no report in their log */
    char fail[48];     /* the function that fails, "" for none */
    int fail_with;
    char options[FAKE_NVRTC_OPTIONS][FAKE_NVRTC_OPTION]; /* of the last compilation */
    int option_count;
};

typedef struct fake_nvrtc *(*fake_nvrtc_function)(void);
