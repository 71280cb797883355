/* The driver's errors in words. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "emu/driver/driver.h"
#include "emu/machine/report.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EMU_EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == ERROR_LAUNCH_FAILED          ? "CUDA_ERROR_LAUNCH_FAILED"
            : error == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == ERROR_INVALID_VALUE        ? "CUDA_ERROR_INVALID_VALUE"
            : error == CUDA_ERROR_INVALID_IMAGE   ? "CUDA_ERROR_INVALID_IMAGE"
            : error == CUDA_ERROR_INVALID_DEVICE  ? "CUDA_ERROR_INVALID_DEVICE"
            : error == ERROR_INVALID_HANDLE       ? "CUDA_ERROR_INVALID_HANDLE"
            : error == ERROR_NOT_FOUND            ? "CUDA_ERROR_NOT_FOUND"
            : error == ERROR_NOT_SUPPORTED        ? "CUDA_ERROR_NOT_SUPPORTED"
            : error == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
            : error == ERROR_INVALID_CLUSTER_SIZE ? "CUDA_ERROR_INVALID_CLUSTER_SIZE"
                                                  : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}

static char error_text[2048], image_problem[1900];
static CUresult refused;

void emu_note_refusal(CUresult result) {
    refused = result;
}

void emu_note_image(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(image_problem, sizeof image_problem, format, arguments);
    va_end(arguments);
}

/* A launch's failure is described by its first report. */
EMU_EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    const struct emu_variable *bad = emu_bad_variable();
    if (error == ERROR_INVALID_VALUE && bad) {
        snprintf(
            error_text, sizeof error_text,
            "the emulator: the environment variable %s is \"%.200s\"; legal: 1 to %d, or unset",
            bad->name, secure_getenv(bad->name), bad->max);
        *text = error_text;
        return CUDA_SUCCESS;
    }
    snprintf(error_text, sizeof error_text, "the emulator: %s",
             error == ERROR_LAUNCH_FAILED || (refused && error == refused) ? emu_first_report()
             : error == CUDA_ERROR_INVALID_IMAGE && *image_problem         ? image_problem
                                                                   : "the call is not possible");
    *text = error_text;
    return CUDA_SUCCESS;
}
