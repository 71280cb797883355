/* The fake NVRTC: see fake_nvrtc.h. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_cubin.h"
#include "fake_nvrtc.h"
#include "runtime/driver/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

struct _nvrtcProgram {
    uint64_t source_hash;
    size_t cubin_bytes;
    char log[512];
};

static struct fake_nvrtc state;
static pthread_mutex_t options_mutex = PTHREAD_MUTEX_INITIALIZER;
static const int archs[] = {75, 80, 86, 90, 100};

EXPORT struct fake_nvrtc *fake_nvrtc_state(void) {
    return &state;
}

static nvrtcResult begin(const char *name) {
    return strcmp(name, state.fail) == 0 ? state.fail_with : NVRTC_SUCCESS;
}

#define BEGIN()                                                                                    \
    do {                                                                                           \
        nvrtcResult begun = begin(__func__);                                                       \
        if (begun)                                                                                 \
            return begun;                                                                          \
    } while (0)

EXPORT nvrtcResult nvrtcVersion(int *major, int *minor) {
    BEGIN();
    if (state.open_ms)
        usleep((useconds_t)state.open_ms * 1000);
    *major = 13;
    *minor = 0;
    return NVRTC_SUCCESS;
}

EXPORT const char *nvrtcGetErrorString(nvrtcResult result) {
    return result == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION" : "told to fail";
}

EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int *count) {
    BEGIN();
    *count = (int)(sizeof archs / sizeof archs[0]);
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetSupportedArchs(int *supported) {
    BEGIN();
    memcpy(supported, archs, sizeof archs);
    return NVRTC_SUCCESS;
}

/* Records a compilation for other processes with one write, so that lines do not mix. */
static void note_compile(nvrtcProgram program) {
    const char *path = getenv("FAKE_NVRTC_COMPILES");
    char line[32];
    if (!path)
        return;
    int length = snprintf(line, sizeof line, "%016" PRIx64 "\n", program->source_hash);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0 || write(file, line, (size_t)length) != length)
        abort(); /* a test that counts must not continue */
    close(file);
}

static int compile_ms(void) {
    const char *given = getenv("FAKE_NVRTC_MS");
    return given ? atoi(given) : state.sleep_ms;
}

/* The report of the assembler, in the form of the real one, for the kernel of the source. */
static void write_log(nvrtcProgram program, const char *source) {
    char name[128] = "kernel";
    const char *definition = strstr(source, "#define KERNEL_NAME ");
    if (definition)
        sscanf(definition, "#define KERNEL_NAME %127s", name);
    snprintf(program->log, sizeof program->log,
             "ptxas info    : Compiling entry function '%s' for 'sm_90a'\n"
             "ptxas         .     0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
             "ptxas info    : Used 168 registers, used 1 barriers, 16 bytes smem\n"
             "ptxas info    : Compile time = 2.500 ms\n",
             name);
}

EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name,
                                      int headers, const char *const *texts,
                                      const char *const *names) {
    (void)name;
    BEGIN();
    if (headers || texts || names)
        return NVRTC_ERROR_INVALID_OPTION;
    *program = calloc(1, sizeof **program);
    if (!*program)
        return NVRTC_ERROR_OUT_OF_MEMORY;
    (*program)->source_hash = fake_source_hash(source);
    (*program)->cubin_bytes = state.cubin_bytes ? (size_t)state.cubin_bytes : FAKE_CUBIN_HEAD;
    write_log(*program, source);
    state.programs++;
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    free(*program);
    *program = NULL;
    state.programs--;
    return begin(__func__);
}

EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count,
                                       const char *const *options) {
    int running = atomic_fetch_add(&state.running, 1) + 1;
    int most = state.max_running;
    while (running > most && !atomic_compare_exchange_weak(&state.max_running, &most, running))
        continue;
    state.compiles++;
    note_compile(program);
    if (state.on_compile)
        state.on_compile(program->source_hash);
    int milliseconds = compile_ms();
    if (milliseconds)
        usleep((useconds_t)milliseconds * 1000);
    /* Does not wait, because in a forked child the holder may not exist. */
    if (pthread_mutex_trylock(&options_mutex) == 0) {
        for (int i = 0; i < count && i < FAKE_NVRTC_OPTIONS; i++)
            snprintf(state.options[i], FAKE_NVRTC_OPTION, "%s", options[i]);
        state.option_count = count;
        pthread_mutex_unlock(&options_mutex);
    }
    state.running--;
    if (state.silent > 0) {
        state.silent--;
        program->log[0] = '\0';
    }
    nvrtcResult result = begin(__func__);
    if (result)
        snprintf(program->log, sizeof program->log, "kernel.cu(7): error: told to fail\n");
    return result;
}

EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes) {
    BEGIN();
    *bytes = strlen(program->log) + 1;
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log) {
    BEGIN();
    memcpy(log, program->log, strlen(program->log) + 1);
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes) {
    BEGIN();
    *bytes = program->cubin_bytes;
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *cubin) {
    BEGIN();
    fake_cubin_fill(program->source_hash, (unsigned char *)cubin, program->cubin_bytes);
    if (state.machine)
        cubin[FAKE_CUBIN_MACHINE] = (char)state.machine;
    return NVRTC_SUCCESS;
}
