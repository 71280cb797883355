/* Makes a context for the emulator's last device (SMELT_EMU_DEVICES) while the first device's
 * context is current, so that the emulator refuses or reports work in the wrong context. */
#pragma once

#include "harness/emulated.h"
#include "runtime/driver/driver.h"
#include "smelt/context.h"

/* Makes device 0's primary context current on this thread; the number of devices, or -1. */
static inline int second_device_begin(void) {
    const struct smelt__driver *const driver = smelt__driver_get();
    CUcontext context;
    int devices = 0;
    return !driver || driver->cuDeviceGetCount(&devices) ||
                   driver->cuDevicePrimaryCtxRetain(&context, 0) ||
                   driver->cuCtxPushCurrent(context)
               ? -1
               : devices;
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
