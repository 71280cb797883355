/* Makes a context for the emulator's last device (SMELT_EMU_DEVICES) while the first device's
 * context is current, so that the emulator refuses or reports work in the wrong context. */
#pragma once

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "harness/emulated.h"
#include "smelt/context.h"

struct CUctx_st;

static inline int second_device_find(const char *name, void *function) {
    void *library = dlopen(getenv("SMELT_CUDA"), RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, name) : NULL;
    memcpy(function, &symbol, sizeof symbol);
    return symbol ? 0 : -1;
}

/* Makes device 0's primary context current on this thread; the number of devices, or -1. */
static inline int second_device_begin(void) {
    int (*retain)(struct CUctx_st **, int), (*push)(struct CUctx_st *), (*count)(int *);
    struct CUctx_st *context;
    int devices = 0;
    if (second_device_find("cuDevicePrimaryCtxRetain", &retain) ||
        second_device_find("cuCtxPushCurrent_v2", &push) ||
        second_device_find("cuDeviceGetCount", &count) || count(&devices) || retain(&context, 0) ||
        push(context))
        return -1;
    return devices;
}

/* A context of the given architecture on the last of `devices` devices. */
static inline smelt_status second_device_context(int devices, const char *arch,
                                                 smelt_context **context) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    options.device = devices - 1;
    options.cache_disable = 1;
    smelt__emulator_configure(arch, smelt__schedule_at(0, 0), 0);
    return smelt_context_create(context, &options);
}
