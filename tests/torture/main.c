/* The torture program: see torture.h. */
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(const struct arguments *arguments);
    const char *summary;
} rows[] = {
    {"cold", row_cold, "processes=, keys=, rounds=: many processes want the same kernels at once"},
    {"kill", row_kill, "processes=, keys=, kills=, limit_ms=: processes killed at random moments"},
    {"stop", row_stop, "deadline_ms=, late_percent=: the process that compiles is stopped"},
    {"churn", row_churn, "operations=: 8 writers and 8 readers under a cap of three entries"},
    {"threads", row_threads, "rounds=: 24 threads want the same kernels and different ones"},
    {"contexts", row_contexts, "rounds=: two CUDA contexts, one destroyed, one reset"},
    {"forks", row_forks, "forks=: before use, after use, while threads compile"},
    {"unload", row_unload, "lives=, library=PATH: dlopen, use, dlclose, again"},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

int main(int argc, char **argv) {
    struct arguments arguments = {argc - 2, argv + 2};
    const char *nvrtc = getenv("SMELT_NVRTC");
    if (!nvrtc || !strstr(nvrtc, "fake_nvrtc")) {
        fprintf(stderr, "SMELT_NVRTC does not name the fake NVRTC: run this by `meson test`\n");
        return 2;
    }
    for (int i = 0; i < ROWS && argc > 1; i++)
        if (!strcmp(argv[1], rows[i].name))
            return rows[i].run(&arguments);
    fprintf(stderr, "torture ROW [NAME=NUMBER]...\n\n");
    for (int i = 0; i < ROWS; i++)
        fprintf(stderr, "  %-8s %s\n", rows[i].name, rows[i].summary);
    return 2;
}
