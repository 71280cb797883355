/* The driver's devices. */
#include <stdio.h>
#include <stdlib.h>

#include "emu/driver/driver.h"
#include "emu/memory/global.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum {
    DRIVER_VERSION = 13000,
    DEFAULT_MULTIPROCESSORS = 2, /* so that a persistent kernel runs several items per block */
};

pthread_mutex_t emu_driver_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- their settings -------------------------------------------------------------------------- */

static const struct emu_variable devices = {"SMELT_EMU_DEVICES", MAX_DEVICES};
static const struct emu_variable multiprocessors = {"SMELT_EMU_MULTIPROCESSORS",
                                                    1024}; /* more than any GPU has */

/* 0: unset; -1: not a legal number. */
static int read_variable(const struct emu_variable *variable) {
    const char *text = secure_getenv(variable->name);
    int number = 0;
    if (!text || !*text)
        return 0;
    for (const char *digit = text; *digit; digit++) {
        if (*digit < '0' || *digit > '9')
            return -1;
        number = number * 10 + *digit - '0';
        if (number > variable->max)
            return -1;
    }
    return number > 0 ? number : -1;
}

const struct emu_variable *emu_bad_variable(void) {
    return read_variable(&multiprocessors) < 0 ? &multiprocessors
           : read_variable(&devices) < 0       ? &devices
                                               : NULL;
}

int emu_device_count(void) {
    const int named = read_variable(&devices);
    return named > 0 ? named : 1;
}

void emu_default_settings(void) {
    struct emu_settings *settings = &emu.settings;
    if (settings->major == 0) {
        settings->major = 9;
        settings->minor = 0;
    }
    if (settings->multiprocessors == 0) {
        const int named = read_variable(&multiprocessors);
        settings->multiprocessors = named > 0 ? named : DEFAULT_MULTIPROCESSORS;
    }
    if (settings->seconds <= 0)
        settings->seconds = 60;
}

/* ---- properties ------------------------------------------------------------------------------ */

static bool is_device(CUdevice device) {
    return device >= 0 && device < emu_device_count();
}

EMU_EXPORT CUresult cuInit(unsigned int flags) {
    (void)flags;
    return emu_bad_variable() ? ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDriverGetVersion(int *version) {
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDeviceGetCount(int *count) {
    *count = emu_device_count();
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EMU_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    emu_default_settings();
    snprintf(name, (size_t)length, "smelt's emulator of compute capability %d.%d",
             emu.settings.major, emu.settings.minor);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    emu_default_settings();
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = emu.settings.major;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = emu.settings.minor;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = emu.settings.multiprocessors + device; /* see emulator.h */
        return CUDA_SUCCESS;
    default:
        *value = 0;
        return ERROR_INVALID_VALUE;
    }
}

EMU_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
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
