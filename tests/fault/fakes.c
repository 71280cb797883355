/* See fakes.h. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakes.h"
#include "runtime/specs.h"
#include "smelt/status.h"

static void *symbol_of(const char *variable, const char *name) {
    const char *path = getenv(variable);
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol) {
        fprintf(stderr, "%s=%s does not name the fake: run this through `meson test`\n", variable,
                path ? path : "");
        exit(2);
    }
    return symbol;
}

void *fakes_driver_symbol(const char *name) {
    return symbol_of("SMELT_CUDA", name);
}

struct fake_driver *fakes_driver(void) {
    void *symbol = symbol_of("SMELT_CUDA", "fake_driver_state");
    fake_driver_function state;
    memcpy(&state, &symbol, sizeof state);
    return state();
}

struct fake_nvrtc *fakes_nvrtc(void) {
    void *symbol = symbol_of("SMELT_NVRTC", "fake_nvrtc_state");
    fake_nvrtc_function state;
    memcpy(&state, &symbol, sizeof state);
    return state();
}

int fakes_nvrtc_loaded(void) {
    void *library = dlopen(getenv("SMELT_NVRTC"), RTLD_NOW | RTLD_NOLOAD);
    if (library)
        dlclose(library);
    return library != NULL;
}

smelt_context_options fakes_options(void) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    options.cache_disable = 1;
    return options;
}

void fakes_plan(const char *spec, struct smelt__plan *plan) {
    if (smelt__plan_from_text(spec, "sm_90a", plan)) {
        fprintf(stderr, "%s: %s\n", spec, smelt_last_error());
        exit(2);
    }
}

int fakes_in_child(void (*body)(void)) {
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        body();
        fflush(NULL);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void fakes_expect(int holds, const char *condition, const char *file, int line) {
    if (holds)
        return;
    fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", file, line, condition,
            smelt_last_error());
    _exit(1);
}

static int together;

static void wait_for_others(uint64_t source_hash) {
    const struct fake_nvrtc *nvrtc = fakes_nvrtc();
    (void)source_hash;
    for (int i = 0; i < 30000 && nvrtc->max_running < together; i++)
        usleep(1000);
}

void fakes_compile_together(int count) {
    struct fake_nvrtc *nvrtc = fakes_nvrtc();
    together = count;
    nvrtc->max_running = 0;
    nvrtc->on_compile = wait_for_others;
}
