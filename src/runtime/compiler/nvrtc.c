/* Loading NVRTC: see nvrtc.h. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/compiler/nvrtc.h"

static const struct entry_point {
    const char *name;
    size_t offset;
} entry_points[] = {
#define ENTRY(member)                                                                              \
    { #member, offsetof(struct smelt__nvrtc, member) }
    ENTRY(nvrtcVersion),           ENTRY(nvrtcGetErrorString),    ENTRY(nvrtcGetNumSupportedArchs),
    ENTRY(nvrtcGetSupportedArchs), ENTRY(nvrtcCreateProgram),     ENTRY(nvrtcDestroyProgram),
    ENTRY(nvrtcCompileProgram),    ENTRY(nvrtcGetProgramLogSize), ENTRY(nvrtcGetProgramLog),
    ENTRY(nvrtcGetCUBINSize),      ENTRY(nvrtcGetCUBIN),
#undef ENTRY
};

static pthread_mutex_t opened_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct smelt__nvrtc *opened; /* entries are never removed */
/* The first library opened, usually the only one. Static, so that unloading this library leaks
 * nothing. */
static struct smelt__nvrtc first;

/* driver.c explains the memcpy. */
static const char *resolve(void *library, struct smelt__nvrtc *nvrtc) {
    for (size_t i = 0; i < sizeof entry_points / sizeof entry_points[0]; i++) {
        void *symbol = dlsym(library, entry_points[i].name);
        if (!symbol)
            return entry_points[i].name;
        memcpy((char *)nvrtc + entry_points[i].offset, &symbol, sizeof symbol);
    }
    return NULL;
}

static smelt_status ask(struct smelt__nvrtc *nvrtc) {
    int count = 0;
    const char *call = "nvrtcVersion";
    nvrtcResult result = nvrtc->nvrtcVersion(&nvrtc->major, &nvrtc->minor);
    if (result == NVRTC_SUCCESS) {
        call = "nvrtcGetNumSupportedArchs";
        result = nvrtc->nvrtcGetNumSupportedArchs(&count);
    }
    if (result == NVRTC_SUCCESS && count > 0 && count <= SMELT__MAX_NVRTC_ARCHS) {
        call = "nvrtcGetSupportedArchs";
        result = nvrtc->nvrtcGetSupportedArchs(nvrtc->archs);
        nvrtc->arch_count = count;
    }
    if (result == NVRTC_SUCCESS)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_NO_COMPILER, "%s: %s failed: %s", nvrtc->path, call,
                       nvrtc->nvrtcGetErrorString(result));
}

static smelt_status load(const struct smelt__nvrtc_file *file, struct smelt__nvrtc *nvrtc) {
    void *library = NULL;
    smelt_status status = SMELT_OK;

    snprintf(nvrtc->path, sizeof nvrtc->path, "%s", file->path);
    nvrtc->output = file->output;
    /* NVRTC opens its builtins by name only. Outside the loader's path that works only if they are
     * already loaded. */
    void *builtins = file->builtins[0] ? dlopen(file->builtins, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (file->builtins[0] && !builtins)
        return smelt__fail(SMELT_ERROR_NO_COMPILER, "NVRTC's builtins cannot be opened: %s",
                           dlerror());
    library = dlopen(file->path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        status = smelt__fail(SMELT_ERROR_NO_COMPILER, "NVRTC cannot be opened: %s", dlerror());
        goto out;
    }
    const char *missing = resolve(library, nvrtc);
    status = missing ? smelt__fail(SMELT_ERROR_NO_COMPILER,
                                   "%s is not NVRTC 12 or newer: it has no %s. Set SMELT_NVRTC to "
                                   "libnvrtc.so.12 or .13, or unset it to search for NVRTC",
                                   file->path, missing)
                     : ask(nvrtc);
out:
    if (status && library)
        dlclose(library);
    if (status && builtins)
        dlclose(builtins);
    return status;
}

smelt_status smelt__nvrtc_open(const struct smelt__nvrtc_file *file,
                               const struct smelt__nvrtc **nvrtc) {
    smelt_status status = SMELT_OK;
    struct smelt__nvrtc *entry;

    pthread_mutex_lock(&opened_mutex);
    for (entry = opened; entry && strcmp(entry->path, file->path) != 0; entry = entry->next)
        continue;
    if (entry)
        goto out;
    entry = opened ? calloc(1, sizeof *entry) : &first;
    if (!entry) {
        status = smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
        goto out;
    }
    status = load(file, entry);
    if (status) {
        if (entry != &first)
            free(entry);
        entry = NULL;
        goto out;
    }
    entry->next = opened;
    opened = entry;
out:
    pthread_mutex_unlock(&opened_mutex);
    *nvrtc = entry;
    return status;
}

/* A fork must not happen while another thread changes the list, which the child keeps using.
 * Registered as in process.c. */
static void hold_list(void) {
    pthread_mutex_lock(&opened_mutex);
}

static void release_list(void) {
    pthread_mutex_unlock(&opened_mutex);
}

__attribute__((constructor)) static void watch_forks(void) {
    (void)pthread_atfork(hold_list, release_list, release_list);
}

int smelt__nvrtc_supports(const struct smelt__nvrtc *nvrtc, const char *arch) {
    int number = strncmp(arch, "sm_", 3) == 0 ? (int)strtol(arch + 3, NULL, 10) : 0;
    for (int i = 0; i < nvrtc->arch_count; i++)
        if (nvrtc->archs[i] == number)
            return 1;
    return 0;
}

void smelt__nvrtc_archs(const struct smelt__nvrtc *nvrtc, char *text, size_t bytes) {
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < nvrtc->arch_count && at < bytes; i++) {
        int length = snprintf(text + at, bytes - at, "%ssm_%d", i ? " " : "", nvrtc->archs[i]);
        at += length > 0 ? (size_t)length : 0;
    }
}
