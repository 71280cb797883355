/* NVRTC's entry points, implemented by the emulator's compiler. Thread-safe. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "emu/compiler/compiler.h"
#include "emu/export.h"
#include "runtime/compiler/library_id.h"
#include "runtime/driver/cuda_abi.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { LOG = 16 * 1024 };

/* An ELF note that identifies this library before it is loaded (src/runtime/compiler/library_id.h);
 * it has a name and a type but no content. */
static const struct {
    uint32_t name_bytes, content_bytes, type;
    char name[16]; /* a multiple of 4 */
} note __attribute__((section(".note.smelt"), used, aligned(4))) = {
    sizeof SMELT__EMULATOR_NOTE, 0, SMELT__EMULATOR_NOTE_TYPE, SMELT__EMULATOR_NOTE};

struct _nvrtcProgram {
    char *source;
    int edited;  /* `source` is from SMELT_EMU_SOURCE */
    int refused; /* SMELT_EMU_SOURCE cannot be used; the reason is in the log */
    unsigned char *object;
    size_t bytes;
    char log[LOG];
};

EMU_EXPORT nvrtcResult nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 0;
    return NVRTC_SUCCESS;
}

EMU_EXPORT const char *nvrtcGetErrorString(nvrtcResult result) {
    return result == NVRTC_SUCCESS             ? "NVRTC_SUCCESS"
           : result == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION (the emulator's compiler)"
                                               : "NVRTC_ERROR_OUT_OF_MEMORY";
}

EMU_EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int *count) {
    *count = 12;
    return NVRTC_SUCCESS;
}

EMU_EXPORT nvrtcResult nvrtcGetSupportedArchs(int *archs) {
    static const int all[12] = {75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121, 122};
    memcpy(archs, all, sizeof all);
    return NVRTC_SUCCESS;
}

/* ---- SMELT_EMU_SOURCE: a developer's edited copy of a kernel, or a mutant -----------------------
 */

enum { NAME = 128 };
static const char source_variable[] = "SMELT_EMU_SOURCE", definition[] = "#define KERNEL_NAME ";

/* Whether any kernel that this process compiled was replaced by the file. */
static struct {
    pthread_mutex_t lock;
    int named, used;
    char holds[NAME], requested[NAME],
        problem[1024]; /* requested: the last kernel not in the file */
} edited = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int kernel_name(const char *source, char name[NAME]) {
    const char *at = strstr(source, definition);
    name[0] = '\0';
    return at && sscanf(at + sizeof definition - 1, "%127s", name) == 1 ? 0 : -1;
}

/* Reads a text file; NULL with errno. */
static char *read_text(const char *path) {
    struct stat status;
    char *text = NULL;
    /* O_NONBLOCK: a FIFO must not block. */
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return NULL;
    errno = EINVAL;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode))
        text = calloc(1, (size_t)status.st_size + 1);
    if (text && read(file, text, (size_t)status.st_size) != (ssize_t)status.st_size) {
        free(text);
        text = NULL;
    }
    close(file);
    return text;
}

/* The text that replaces a kernel's. NULL: SMELT_EMU_SOURCE is unset or holds another kernel, or
 * its file cannot be used, for the reason in the log. */
static char *replacement(const char *source, char log[LOG]) {
    const char *path = secure_getenv(source_variable);
    char requested[NAME], holds[NAME];
    if (!path || !*path)
        return NULL;
    char *text = read_text(path);
    if (!text)
        snprintf(log, LOG, "%s names %s, which cannot be read: %s", source_variable, path,
                 strerror(errno));
    else if (kernel_name(text, holds))
        snprintf(log, LOG, "%s names %s, which holds no kernel: there is no \"%sNAME\" in it",
                 source_variable, path, definition);
    const int wanted =
        !*log && kernel_name(source, requested) == 0 && strcmp(requested, holds) == 0;
    pthread_mutex_lock(&edited.lock);
    edited.named = 1;
    edited.used = edited.used || wanted || *log; /* the compilation fails and reports it */
    if (!*log && !wanted) {
        snprintf(edited.holds, NAME, "%s", holds);
        snprintf(edited.requested, NAME, "%s", requested);
    }
    pthread_mutex_unlock(&edited.lock);
    if (!wanted) {
        free(text);
        text = NULL;
    }
    return text;
}

EMU_EXPORT const char *emu_source_problem(void) {
    const char *problem = NULL;
    pthread_mutex_lock(&edited.lock);
    if (edited.named && !edited.used) {
        snprintf(edited.problem, sizeof edited.problem,
                 "%s names %.500s, which holds the kernel %s, but only %s was compiled",
                 source_variable, secure_getenv(source_variable), edited.holds, edited.requested);
        problem = edited.problem;
    }
    edited.used = 1; /* reported once */
    pthread_mutex_unlock(&edited.lock);
    return problem;
}

/* For programs that do not call emu_source_problem. */
__attribute__((destructor)) static void tell_problem(void) {
    const char *problem = emu_source_problem();
    if (problem)
        fprintf(stderr, "smelt's emulator: %s\n", problem);
}

EMU_EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source,
                                          const char *name, int headers, const char *const *texts,
                                          const char *const *names) {
    (void)name;
    (void)headers;
    (void)texts;
    (void)names;
    *program = calloc(1, sizeof **program);
    if (!*program)
        return NVRTC_ERROR_OUT_OF_MEMORY;
    (*program)->source = replacement(source, (*program)->log);
    (*program)->edited = (*program)->source != NULL;
    (*program)->refused = (*program)->log[0] != '\0';
    if (!(*program)->source)
        (*program)->source = strdup(source);
    return (*program)->source ? NVRTC_SUCCESS : NVRTC_ERROR_OUT_OF_MEMORY;
}

/* ---- programs -------------------------------------------------------------------------------- */

EMU_EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    free((*program)->source);
    free((*program)->object);
    free(*program);
    *program = NULL;
    return NVRTC_SUCCESS;
}

/* A report in the assembler's format; figures that the emulator cannot know are 0. */
static void write_report(nvrtcProgram program, const char *name) {
    snprintf(program->log, LOG,
             "ptxas info    : Compiling entry function '%s' for 'emulator'\n"
             "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
             "ptxas info    : Used 0 registers\n",
             name);
}

EMU_EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count,
                                           const char *const *options) {
    (void)count;
    (void)options;
    if (program->refused)
        return NVRTC_ERROR_COMPILATION;
    char *text = emu_translate(program->source, program->log, LOG);
    if (!text)
        return NVRTC_ERROR_COMPILATION;
    char name[NAME];
    const int named = kernel_name(program->source, name) == 0;
    int failed = named && emu_is_lazy()
                     ? emu_make_lazy(name, text, program->edited, &program->object, &program->bytes)
                     : emu_compile(text, program->edited, &program->object, &program->bytes,
                                   program->log, LOG);
    free(text);
    if (failed)
        return NVRTC_ERROR_COMPILATION;
    write_report(program, named ? name : "kernel");
    return NVRTC_SUCCESS;
}

EMU_EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes) {
    *bytes = strlen(program->log) + 1;
    return NVRTC_SUCCESS;
}

EMU_EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log) {
    memcpy(log, program->log, strlen(program->log) + 1);
    return NVRTC_SUCCESS;
}

EMU_EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes) {
    *bytes = program->bytes;
    return NVRTC_SUCCESS;
}

EMU_EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *cubin) {
    memcpy(cubin, program->object, program->bytes);
    return NVRTC_SUCCESS;
}
