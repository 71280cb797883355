/* NVRTC's entry points over the emulator's compiler. Programs may be compiled on several threads.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu/compiler/compiler.h"
#include "emu/export.h"
#include "runtime/compiler/library_id.h"
#include "runtime/driver/cuda_abi.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { LOG = 16 * 1024 };

/* Says in the file what is made here, before anybody loads it: an ELF note, of which the name and
 * the type say all (src/runtime/compiler/library_id.h). */
static const struct {
    uint32_t name_bytes, content_bytes, type;
    char name[16]; /* a multiple of 4 */
} note __attribute__((section(".note.smelt"), used, aligned(4))) = {
    sizeof SMELT__EMULATOR_NOTE, 0, SMELT__EMULATOR_NOTE_TYPE, SMELT__EMULATOR_NOTE};

struct _nvrtcProgram {
    char *source;
    int edited; /* SMELT_EMU_SOURCE's in place of the caller's */
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

/* The text of the file SMELT_EMU_SOURCE names, when it holds the same kernel: a developer's edited
 * copy, or a mutant. */
static char *replacement(const char *source) {
    static const char definition[] = "#define KERNEL_NAME ";
    const char *path = secure_getenv("SMELT_EMU_SOURCE");
    const char *name = strstr(source, definition);
    FILE *file = path && *path && name ? fopen(path, "re") : NULL;
    char *text = NULL;
    size_t room = 0;
    if (!file)
        return NULL;
    if (getdelim(&text, &room, '\0', file) < 0) {
        free(text);
        text = NULL;
    }
    fclose(file);
    const char *other = text ? strstr(text, definition) : NULL;
    size_t length = strcspn(name, "\n") + 1;
    if (other && strncmp(other, name, length) == 0)
        return text;
    free(text);
    return NULL;
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
    (*program)->source = replacement(source);
    (*program)->edited = (*program)->source != NULL;
    if (!(*program)->source)
        (*program)->source = strdup(source);
    return (*program)->source ? NVRTC_SUCCESS : NVRTC_ERROR_OUT_OF_MEMORY;
}

EMU_EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    free((*program)->source);
    free((*program)->object);
    free(*program);
    *program = NULL;
    return NVRTC_SUCCESS;
}

/* The assembler's report, in its form: what the emulator cannot know is zero. */
static void write_report(nvrtcProgram program) {
    char name[128] = "kernel";
    const char *definition = strstr(program->source, "#define KERNEL_NAME ");
    if (definition)
        sscanf(definition, "#define KERNEL_NAME %127s", name);
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
    char *text = emu_translate(program->source, program->log, LOG);
    if (!text)
        return NVRTC_ERROR_COMPILATION;
    int failed =
        emu_compile(text, program->edited, &program->object, &program->bytes, program->log, LOG);
    free(text);
    if (failed)
        return NVRTC_ERROR_COMPILATION;
    write_report(program);
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
