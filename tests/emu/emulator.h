/* For tests that launch kernels of their own: the emulator as the library's driver and compiler, with
 * device 0's primary context current. */
#pragma once

#include <stdlib.h>

#include "harness/emulated.h"
#include "runtime/compiler/compile.h"
#include "runtime/compiler/nvrtc.h"
#include "runtime/driver/driver.h"

static const struct smelt__driver *driver;
static const struct smelt__nvrtc *nvrtc;
static const struct emu_interface *emulator;

/* 0; -1: SMELT_CUDA and SMELT_NVRTC name no emulator. */
static inline int open_emulator(void) {
    const struct smelt__log log = {NULL, NULL, 0};
    struct smelt__nvrtc_file file;
    CUcontext context;
    driver = smelt__driver_get();
    emulator = smelt__emulator();
    return !driver || !emulator || smelt__nvrtc_find(getenv("SMELT_NVRTC"), 0, &log, &file) ||
                   smelt__nvrtc_open(&file, &nvrtc) ||
                   driver->cuDevicePrimaryCtxRetain(&context, 0) ||
                   driver->cuCtxPushCurrent(context)
               ? -1
               : 0;
}

/* The module of a kernel's text; NULL: smelt_last_error() is the reason. */
static inline CUmodule load_kernel(const char *text, const char *file, const char *name) {
    struct smelt__compile_options options;
    struct smelt__compiled compiled = {0};
    CUmodule module = NULL;
    smelt__compile_options(&options, "sm_90a", NULL);
    if (smelt__compile_source(nvrtc, text, file, name, "sm_90a", &options, &compiled) ||
        driver->cuModuleLoadData(&module, compiled.cubin))
        module = NULL;
    free(compiled.cubin);
    return module;
}
