/* What programs share that run kernels by themselves, by the library's internal functions, on a GPU
 * or on the emulator. */
#ifndef SMELT_TESTS_KERNEL_ALONE_H
#define SMELT_TESTS_KERNEL_ALONE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/emulated.h"
#include "runtime/kernel.h"
#include "runtime/specs.h"
#include "smelt/smelt.h"

static inline void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

/* Prints what went wrong, the emulator's reports among it. */
static inline int works(smelt_status status, const char *what) {
    const struct emu_interface *emulator = smelt__emulator();
    if (status == SMELT_OK)
        return 1;
    printf("    %s: %s: %s\n", what, smelt_status_name(status), smelt_last_error());
    for (size_t i = 0; emulator && i < emulator->report_count(); i++)
        printf("    report %s: %s\n", emulator->kind_name(emulator->report(i).kind),
               emulator->report(i).text);
    if (emulator)
        emulator->clear();
    return 0;
}

/* Device memory with a copy of the host's; freed by the caller. */
static inline int upload(smelt_context *context, const char *name, const void *host, size_t bytes,
                         void **device) {
    const struct emu_interface *emulator = smelt__emulator();
    if (!works(smelt_device_alloc(context, bytes ? bytes : 1, device), "alloc") ||
        !works(smelt_device_upload(context, *device, host, bytes), "upload"))
        return 0;
    if (emulator)
        emulator->name((uint64_t)(uintptr_t)*device, name);
    return 1;
}

/* Whether `count` words of four bytes on the device are as wanted; prints the first that is not. */
static inline int same_words(smelt_context *context, const char *what, const void *device,
                             const void *wanted, size_t count) {
    int *got = take(count * sizeof *got);
    const int *const should = wanted;
    int good = works(smelt_device_download(context, got, device, count * sizeof *got), "download");
    for (size_t i = 0; i < count && good; i++) {
        if (got[i] != should[i]) {
            printf("    %s[%zu] is %d, not %d\n", what, i, got[i], should[i]);
            good = 0;
        }
    }
    free(got);
    return good;
}

/* How many schedules a case runs under: the emulator's coverage asks for fewer than usual. */
static inline int schedules_to_run(int emulated, int otherwise) {
    const char *asked = getenv("SMELT_TEST_SCHEDULES");
    return !smelt__emulator() ? otherwise : asked ? atoi(asked) : emulated;
}

static inline int get_kernel(smelt_context *context, const char *spec,
                             const struct smelt__kernel **kernel) {
    struct smelt__plan plan;
    return works(smelt__plan_from_text(spec, smelt_context_arch(context), &plan), spec) &&
           works(smelt__kernel_get(context, &plan, kernel), spec);
}

/*
 * What such a program's main comes to: PROGRAM [RANDOM_CASES [ARCH [NAME]]]. `run` gets `user`,
 * whether the listed cases are to be run, too, and how many random ones; it returns 0 when there is
 * no kernel. On the emulator the listed ones are run for the first architecture alone. Returns the
 * exit status.
 */
struct alone_counts {
    int cases, failures;
    const char *only; /* cases whose names have this text; "": all */
};

static inline int run_alone(int argc, char **argv, int default_cases,
                            int (*run)(void *user, int listed, int random_cases), void *user,
                            struct alone_counts *counts) {
    static const char *const archs[] = {"sm_90a", "sm_80"};
    const int random_cases = argc > 1 ? atoi(argv[1]) : default_cases;
    int good = 1;
    counts->only = argc > 3 ? argv[3] : "";
    if (!smelt__emulator())
        good = run(user, 1, random_cases);
    for (size_t i = 0; i < sizeof archs / sizeof *archs && smelt__emulator(); i++) {
        if (argc > 2 && strcmp(argv[2], archs[i]) != 0)
            continue;
        smelt__emulator_configure(archs[i], smelt__schedule_at(0, 0), 0);
        good = run(user, counts->cases == 0, random_cases) && good;
    }
    printf("%d cases, %d failed\n", counts->cases, counts->failures);
    return !good || counts->failures > 0 || counts->cases == 0;
}

#endif
