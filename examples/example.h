/* Shared by the examples: bf16, random numbers, device memory, error handling. */
#pragma once

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <smelt/smelt.h>

enum { STATUS_LACKING = 3 }; /* an exit status: the machine lacks something */

static inline float from_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Round to nearest even, for finite values. */
static inline uint16_t to_bf16(float value) {
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    return (uint16_t)((wide + 0x7FFF + (wide >> 16 & 1)) >> 16);
}

/* A multiple of 1/64 in [-1, 1), which bf16 holds exactly. */
static inline float random_value(void) {
    return (float)(rand() % 128 - 64) / 64.0F;
}

/* Reports a failure and ends the program, with STATUS_LACKING if the machine lacks something. */
static inline void require(smelt_status status, const char *what) {
    if (status == SMELT_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, smelt_status_name(status), smelt_last_error());
    const int lacking = status == SMELT_ERROR_NO_DRIVER || status == SMELT_ERROR_NO_DEVICE ||
                        status == SMELT_ERROR_NO_COMPILER || status == SMELT_ERROR_UNSUPPORTED;
    if (status == SMELT_ERROR_NO_DRIVER || status == SMELT_ERROR_NO_DEVICE)
        fputs("Without a GPU: smelt emulate -- PROGRAM\n", stderr);
    exit(lacking ? STATUS_LACKING : EXIT_FAILURE);
}

/* A context on the first GPU. (Without a kind, on the thread's current CUDA context.) */
static inline smelt_context *open_context(void) {
    smelt_context *context = NULL;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    require(smelt_context_create(&context, &options), "context");
    return context;
}

/* An operator with the kernels of its spec, compiled or taken from the cache. The spec is written as
 * printf writes it. */
static inline smelt_operator *make_operator(smelt_context *context, const char *format, ...) {
    smelt_operator *made = NULL;
    char spec[256];
    va_list numbers;
    va_start(numbers, format);
    vsnprintf(spec, sizeof spec, format, numbers);
    va_end(numbers);
    require(smelt_operator_create(&made, context, spec), spec);
    return made;
}

/* Device memory, aligned to 256 bytes; NULL for 0 bytes. */
static inline void *allocate(smelt_context *context, size_t bytes) {
    void *memory = NULL;
    if (bytes > 0)
        require(smelt_device_alloc(context, bytes, &memory), "memory");
    return memory;
}

static inline void upload(smelt_context *context, void *to, const void *host, size_t bytes) {
    require(smelt_device_upload(context, to, host, bytes), "upload");
}

/* Waits for earlier calls and copies their output. */
static inline void download(smelt_context *context, void *host, const void *from, size_t bytes) {
    require(smelt_stream_synchronize(context, NULL), "synchronize");
    require(smelt_device_download(context, host, from, bytes), "download");
}
