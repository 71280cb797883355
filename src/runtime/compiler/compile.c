/* Compiles source to a cubin and reads the assembler's report. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/clock.h"
#include "runtime/compiler/compile.h"
#include "runtime/cubin.h"

enum { MAX_SHOWN_LOG = 6000 }; /* bytes of a compiler's log in a message */

void smelt__compile_options(struct smelt__compile_options *options, const char *arch,
                            const char *debug) {
    snprintf(options->arch_option, sizeof options->arch_option, "--gpu-architecture=%s", arch);
    options->list[0] = options->arch_option;
    options->list[1] = "--std=c++17";
    /* Makes the assembler report registers and spills. */
    options->list[2] = "--ptxas-options=-v";
    options->list[3] = debug;
    options->count = debug ? 4 : 3;
    options->list[options->count] = NULL;
}

static smelt_status call_failed(const struct smelt__nvrtc *nvrtc, const char *call,
                                nvrtcResult result) {
    if (result == NVRTC_ERROR_OUT_OF_MEMORY)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "%s: out of memory", call);
    return smelt__fail(SMELT_ERROR_COMPILE, "%s of NVRTC %d.%d (%s) failed: %s", call, nvrtc->major,
                       nvrtc->minor, nvrtc->path, nvrtc->nvrtcGetErrorString(result));
}

/* The number before `unit` in the text up to `end`; 0 without the unit. */
static int number_before(const char *text, const char *end, const char *unit) {
    const char *at = memmem(text, (size_t)(end - text), unit, strlen(unit));
    if (!at)
        return 0;
    const char *digit = at;
    while (digit > text && digit[-1] >= '0' && digit[-1] <= '9')
        digit--;
    return digit < at ? (int)strtol(digit, NULL, 10) : 0;
}

/* Seconds from "Compile time = 491.181 ms"; 0 when it is missing. */
static double read_time(const char *text, const char *end) {
    static const char heading[] = "Compile time = ";
    const char *at = memmem(text, (size_t)(end - text), heading, sizeof heading - 1);
    long milliseconds = at ? strtol(at + sizeof heading - 1, NULL, 10) : 0;
    return milliseconds > 0 ? 1e-3 * (double)milliseconds : 0;
}

/* The assembler reports each kernel: "Compiling entry function 'NAME' for 'sm_90a'", then its stack
 * frame and spills, then "Used N registers, ... N bytes smem". Returns 0 without a report on this
 * kernel. */
static int read_report(const char *log, const char *kernel_name, struct smelt__compiled *compiled) {
    static const char heading[] = "Compiling entry function '";
    size_t name_length = strlen(kernel_name);
    const char *part = strstr(log, heading);

    while (part) {
        const char *name = part + sizeof heading - 1;
        const char *next = strstr(name, heading);
        const char *end = next ? next : name + strlen(name);
        if (strncmp(name, kernel_name, name_length) == 0 && name[name_length] == '\'') {
            const char *used = memmem(name, (size_t)(end - name), "Used ", 5);
            compiled->registers = used ? (int)strtol(used + 5, NULL, 10) : 0;
            compiled->spill_bytes = number_before(name, end, " bytes spill stores") +
                                    number_before(name, end, " bytes spill loads");
            compiled->static_shared_bytes = number_before(name, end, " bytes smem");
            compiled->assembler_seconds = read_time(name, end);
            return used != NULL;
        }
        part = next;
    }
    return 0;
}

/* The first of the assembler's warnings C7510 to C7518; 0: none. */
static int find_serialised(const char *log) {
    for (const char *at = strstr(log, "(C75"); at; at = strstr(at + 1, "(C75")) {
        int code = (int)strtol(at + 2, NULL, 10);
        if (code >= 7510 && code <= 7518)
            return code;
    }
    return 0;
}

/* *log: the program's log, freed by the caller, or NULL. */
static smelt_status get_log(const struct smelt__nvrtc *nvrtc, nvrtcProgram program, char **log) {
    size_t bytes = 0;
    *log = NULL;
    nvrtcResult result = nvrtc->nvrtcGetProgramLogSize(program, &bytes);
    if (result != NVRTC_SUCCESS)
        return call_failed(nvrtc, "nvrtcGetProgramLogSize", result);
    *log = calloc(1, bytes + 1);
    if (!*log)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory for %zu bytes of compiler log",
                           bytes);
    result = nvrtc->nvrtcGetProgramLog(program, *log);
    return result == NVRTC_SUCCESS ? SMELT_OK : call_failed(nvrtc, "nvrtcGetProgramLog", result);
}

static smelt_status get_cubin(const struct smelt__nvrtc *nvrtc, nvrtcProgram program,
                              struct smelt__compiled *compiled) {
    size_t bytes = 0;
    nvrtcResult result = nvrtc->nvrtcGetCUBINSize(program, &bytes);
    if (result != NVRTC_SUCCESS)
        return call_failed(nvrtc, "nvrtcGetCUBINSize", result);
    if (bytes == 0)
        return smelt__fail(SMELT_ERROR_COMPILE, "NVRTC %d.%d (%s) made an empty cubin",
                           nvrtc->major, nvrtc->minor, nvrtc->path);
    compiled->cubin = malloc(bytes);
    if (!compiled->cubin)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory for a cubin of %zu bytes",
                           bytes);
    result = nvrtc->nvrtcGetCUBIN(program, (char *)compiled->cubin);
    if (result != NVRTC_SUCCESS) {
        free(compiled->cubin);
        compiled->cubin = NULL;
        return call_failed(nvrtc, "nvrtcGetCUBIN", result);
    }
    compiled->cubin_bytes = bytes;
    return SMELT_OK;
}

/* Rejects output that is not of the kind that this compiler makes, whatever its name. */
static smelt_status check_output(const struct smelt__nvrtc *nvrtc,
                                 struct smelt__compiled *compiled) {
    enum smelt__output made = smelt__output_of(compiled->cubin, compiled->cubin_bytes);

    if (made == nvrtc->output)
        return SMELT_OK;
    free(compiled->cubin);
    compiled->cubin = NULL;
    return smelt__fail(SMELT_ERROR_COMPILE, "NVRTC %d.%d (%s) should have made %s but made %s",
                       nvrtc->major, nvrtc->minor, nvrtc->path, smelt__output_name(nvrtc->output),
                       smelt__output_name(made));
}

/* A long log is cut at its end: the first errors matter most. */
static smelt_status refused(const struct smelt__nvrtc *nvrtc, nvrtcResult result,
                            const char *file_name, const char *arch, const char *log) {
    size_t length = log ? strlen(log) : 0;
    return smelt__fail(SMELT_ERROR_COMPILE,
                       "nvrtcCompileProgram of NVRTC %d.%d (%s) refused %s for %s: %s\n%.*s%s",
                       nvrtc->major, nvrtc->minor, nvrtc->path, file_name, arch,
                       nvrtc->nvrtcGetErrorString(result),
                       (int)(length < MAX_SHOWN_LOG ? length : MAX_SHOWN_LOG), log ? log : "",
                       length > MAX_SHOWN_LOG ? "\n(the log continues)" : "");
}

static smelt_status check_arch(const struct smelt__nvrtc *nvrtc, const char *arch) {
    char archs[512];
    if (smelt__nvrtc_supports(nvrtc, arch))
        return SMELT_OK;
    smelt__nvrtc_archs(nvrtc, archs, sizeof archs);
    return smelt__fail(SMELT_ERROR_NO_COMPILER,
                       "NVRTC %d.%d (%s) cannot compile for %s, only for %s: install a newer one, "
                       "or set SMELT_NVRTC to another",
                       nvrtc->major, nvrtc->minor, nvrtc->path, arch, archs);
}

/* From 12.9 on NVRTC keeps its results in the driver's JIT cache, if there is a driver. A result
 * from there has no assembler's report and would be stored twice, so that cache is disabled.
 * Earlier versions reject the option. It does not change the cubin and so is not part of a kernel's
 * key. */
static int supports_no_cache(const struct smelt__nvrtc *nvrtc) {
    return nvrtc->major > 12 || (nvrtc->major == 12 && nvrtc->minor >= 9);
}

static smelt_status run_compiler(const struct smelt__nvrtc *nvrtc, nvrtcProgram program,
                                 const char *file_name, const char *arch,
                                 const struct smelt__compile_options *options, char **log) {
    const char *list[SMELT__MAX_OPTIONS + 1];
    int count = options->count;

    memcpy(list, options->list, (size_t)count * sizeof *list);
    if (supports_no_cache(nvrtc))
        list[count++] = "--no-cache";
    nvrtcResult compilation = nvrtc->nvrtcCompileProgram(program, count, list);
    smelt_status status = get_log(nvrtc, program, log);
    if (compilation == NVRTC_SUCCESS)
        return status;
    return compilation == NVRTC_ERROR_OUT_OF_MEMORY
               ? call_failed(nvrtc, "nvrtcCompileProgram", compilation)
               : refused(nvrtc, compilation, file_name, arch, *log);
}

/* One compilation. *reported: whether the log had the assembler's report. */
static smelt_status compile_once(const struct smelt__nvrtc *nvrtc, const char *source,
                                 const char *file_name, const char *kernel_name, const char *arch,
                                 const struct smelt__compile_options *options,
                                 struct smelt__compiled *compiled, int *reported) {
    nvrtcProgram program = NULL;
    char *log = NULL;

    nvrtcResult result = nvrtc->nvrtcCreateProgram(&program, source, file_name, 0, NULL, NULL);
    if (result != NVRTC_SUCCESS)
        return call_failed(nvrtc, "nvrtcCreateProgram", result);
    smelt_status status = run_compiler(nvrtc, program, file_name, arch, options, &log);
    if (!status) {
        *reported = read_report(log, kernel_name, compiled);
        compiled->serialised = find_serialised(log);
        status = get_cubin(nvrtc, program, compiled);
    }
    if (!status)
        status = check_output(nvrtc, compiled);
    free(log);
    nvrtc->nvrtcDestroyProgram(&program);
    return status;
}

/* Without a report: takes the stack frame for spills, since our kernels use it for nothing else. */
static void read_cubin(const char *kernel_name, struct smelt__compiled *compiled) {
    struct smelt__cubin_figures figures = {0, 0};
    if (!smelt__cubin_read(compiled->cubin, compiled->cubin_bytes, kernel_name, &figures))
        return;
    compiled->registers = figures.registers;
    compiled->spill_bytes = figures.frame_bytes;
}

smelt_status smelt__compile_source(const struct smelt__nvrtc *nvrtc, const char *source,
                                   const char *file_name, const char *kernel_name, const char *arch,
                                   const struct smelt__compile_options *options,
                                   struct smelt__compiled *compiled) {
    enum { TRIES = 2 };
    const int64_t begin = smelt__now_ns();
    int reported = 0;

    smelt_status status = check_arch(nvrtc, arch);
    for (int i = 0; i < TRIES && !status && !reported; i++) {
        free(compiled->cubin);
        compiled->cubin = NULL;
        status =
            compile_once(nvrtc, source, file_name, kernel_name, arch, options, compiled, &reported);
    }
    if (!status && !reported)
        read_cubin(kernel_name, compiled);
    compiled->compile_seconds = smelt__seconds_since(begin);
    return status;
}
