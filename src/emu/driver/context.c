/* The driver's contexts: the device's primary one. */
#include "emu/driver/driver.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { STACK = 16 };

struct CUctx_st {
    int unused;
};

static struct CUctx_st primary;
static _Thread_local CUcontext stack[STACK];
static _Thread_local int depth;

bool emu_context_is_current(void) {
    return depth > 0;
}

EMU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    (void)device;
    *context = &primary;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    (void)device;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = depth ? stack[depth - 1] : NULL;
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
    *device = 0;
    return depth ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EMU_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    (void)context;
    *id = 1;
    return CUDA_SUCCESS;
}
