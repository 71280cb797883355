/* The driver's device. */
#include <stdio.h>
#include <stdlib.h>

#include "emu/driver/driver.h"
#include "emu/memory/global.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum {
    DRIVER_VERSION = 13000,
    DEFAULT_MULTIPROCESSORS = 2, /* so that a persistent kernel goes round */
};

pthread_mutex_t emu_driver_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- its settings ---------------------------------------------------------------------------- */

const char emu_multiprocessors_variable[] = "SMELT_EMU_MULTIPROCESSORS";

int emu_named_multiprocessors(void) {
    const char *text = secure_getenv(emu_multiprocessors_variable);
    int number = 0;
    if (!text || !*text)
        return 0;
    for (const char *digit = text; *digit; digit++) {
        if (*digit < '0' || *digit > '9')
            return -1;
        number = number * 10 + *digit - '0';
        if (number > MOST_MULTIPROCESSORS)
            return -1;
    }
    return number > 0 ? number : -1;
}

void emu_default_settings(void) {
    struct emu_settings *settings = &emu.settings;
    if (settings->major == 0) {
        settings->major = 9;
        settings->minor = 0;
    }
    if (settings->multiprocessors == 0) {
        const int named = emu_named_multiprocessors();
        settings->multiprocessors = named > 0 ? named : DEFAULT_MULTIPROCESSORS;
    }
    if (settings->seconds <= 0)
        settings->seconds = 60;
}

/* ---- what it is ------------------------------------------------------------------------------ */

EMU_EXPORT CUresult cuInit(unsigned int flags) {
    (void)flags;
    return emu_named_multiprocessors() < 0 ? ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDriverGetVersion(int *version) {
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EMU_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    (void)device;
    emu_default_settings();
    snprintf(name, (size_t)length, "smelt's emulator of compute capability %d.%d",
             emu.settings.major, emu.settings.minor);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    (void)device;
    emu_default_settings();
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = emu.settings.major;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = emu.settings.minor;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = emu.settings.multiprocessors;
        return CUDA_SUCCESS;
    default:
        *value = 0;
        return ERROR_INVALID_VALUE;
    }
}

EMU_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    (void)device;
    *bytes = emu_memory_total();
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    pthread_mutex_lock(&emu_driver_lock);
    *free_bytes = emu_memory_left();
    pthread_mutex_unlock(&emu_driver_lock);
    *total_bytes = emu_memory_total();
    return CUDA_SUCCESS;
}
