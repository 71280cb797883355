/* The driver's contexts: each device's primary one. */
#include "emu/driver/driver.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { STACK = 16 };

static struct CUctx_st primary[MAX_DEVICES];
static _Thread_local CUcontext stack[STACK];
static _Thread_local int depth;

CUcontext emu_context_current(void) {
    return depth ? stack[depth - 1] : NULL;
}

CUdevice emu_device_current(void) {
    const CUcontext context = emu_context_current();
    return context ? context->device : 0;
}

EMU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    if (device < 0 || device >= emu_device_count())
        return CUDA_ERROR_INVALID_DEVICE;
    primary[device].device = device;
    *context = &primary[device];
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return device < 0 || device >= emu_device_count() ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = emu_context_current();
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    if (depth == STACK)
        return ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    *device = emu_device_current();
    return emu_context_current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EMU_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    *id = 1 + (unsigned long long)(context ? context->device : emu_device_current());
    return CUDA_SUCCESS;
}
