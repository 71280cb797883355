/*
 * An NVRTC that compiles nothing, for tests: its cubins are "FAKECUBIN", the source's length and
 * its hash. Tests reach its state through dlsym("fake_nvrtc_state"); for tests of many processes
 * there are two environment variables: FAKE_NVRTC_COMPILES=FILE   each compilation appends a line,
 * the source's hash FAKE_NVRTC_MS=N            what a compilation takes, in place of sleep_ms
 */
#ifndef FAKE_NVRTC_H
#define FAKE_NVRTC_H

#include <stdatomic.h>

enum { FAKE_NVRTC_OPTIONS = 8, FAKE_NVRTC_OPTION = 64 };

struct fake_nvrtc {
    atomic_int compiles;
    atomic_int programs;    /* alive */
    atomic_int running;     /* compilations at this moment */
    atomic_int max_running; /* most at once */
    int sleep_ms;           /* what a compilation takes */
    atomic_int silent;      /* so many compilations to come leave no report in their log */
    char fail[48];          /* the function that fails, "" for none */
    int fail_with;
    char options[FAKE_NVRTC_OPTIONS][FAKE_NVRTC_OPTION]; /* of the last compilation */
    int option_count;
};

typedef struct fake_nvrtc *(*fake_nvrtc_function)(void);

#endif
