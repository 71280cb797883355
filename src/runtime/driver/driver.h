/*
 * The CUDA driver, opened at run time: libcuda.so.1 by the loader's rules, or the file named by
 * SMELT_CUDA (a fake driver in tests; ignored in set-user-id programs).
 */
#pragma once

#include "runtime/cubin.h"
#include "runtime/driver/cuda_abi.h"
#include "smelt/status.h"

/* The driver's entry points, each under its unversioned name; see driver.c for the exported one. */
struct smelt__driver {
    CUresult (*cuInit)(unsigned int flags);
    CUresult (*cuDriverGetVersion)(int *version);
    CUresult (*cuGetErrorName)(CUresult error, const char **name);
    CUresult (*cuGetErrorString)(CUresult error, const char **text);
    CUresult (*cuDeviceGetCount)(int *count);
    CUresult (*cuDeviceGet)(CUdevice *device, int ordinal);
    CUresult (*cuDeviceGetName)(char *name, int length, CUdevice device);
    CUresult (*cuDeviceGetAttribute)(int *value, int attribute, CUdevice device);
    CUresult (*cuDeviceTotalMem)(size_t *bytes, CUdevice device);
    CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *context, CUdevice device);
    CUresult (*cuDevicePrimaryCtxRelease)(CUdevice device);
    CUresult (*cuCtxGetCurrent)(CUcontext *context);
    CUresult (*cuCtxPushCurrent)(CUcontext context);
    CUresult (*cuCtxPopCurrent)(CUcontext *context);
    CUresult (*cuCtxGetDevice)(CUdevice *device);
    CUresult (*cuCtxGetId)(CUcontext context, unsigned long long *id);
    CUresult (*cuModuleLoadData)(CUmodule *module, const void *image);
    CUresult (*cuModuleUnload)(CUmodule module);
    CUresult (*cuModuleGetFunction)(CUfunction *function, CUmodule module, const char *name);
    CUresult (*cuFuncSetAttribute)(CUfunction function, int attribute, int value);
    CUresult (*cuLaunchKernelEx)(const CUlaunchConfig *config, CUfunction function,
                                 void **parameters, void **extra);
    CUresult (*cuMemAlloc)(CUdeviceptr *pointer, size_t bytes);
    CUresult (*cuMemFree)(CUdeviceptr pointer);
    CUresult (*cuMemcpyHtoD)(CUdeviceptr to, const void *from, size_t bytes);
    CUresult (*cuMemcpyDtoH)(void *to, CUdeviceptr from, size_t bytes);
    CUresult (*cuMemsetD8)(CUdeviceptr pointer, unsigned char value, size_t bytes);
    CUresult (*cuMemsetD32Async)(CUdeviceptr pointer, unsigned value, size_t words,
                                 CUstream stream);
    CUresult (*cuTensorMapEncodeTiled)(CUtensorMap *map, int type, unsigned rank, void *address,
                                       const unsigned long long *extents,
                                       const unsigned long long *strides, const unsigned *box,
                                       const unsigned *element_strides, int interleave, int swizzle,
                                       int promotion, int fill);
    CUresult (*cuMemGetInfo)(size_t *free_bytes, size_t *total_bytes);
    CUresult (*cuStreamCreate)(CUstream *stream, unsigned int flags);
    CUresult (*cuStreamSynchronize)(CUstream stream);
    CUresult (*cuStreamDestroy)(CUstream stream);
    CUresult (*cuEventCreate)(CUevent *event, unsigned int flags);
    CUresult (*cuEventRecord)(CUevent event, CUstream stream);
    CUresult (*cuEventSynchronize)(CUevent event);
    CUresult (*cuEventElapsedTime)(float *milliseconds, CUevent begin, CUevent end);
    CUresult (*cuEventDestroy)(CUevent event);
    int version;               /* cuDriverGetVersion: 13000 for CUDA 13.0 */
    char path[4096];           /* the file it was loaded from */
    enum smelt__output output; /* the kind of kernels it runs */
};

/* The process's driver, opened by the first call and never closed, because streams and contexts of
 * other libraries live in it. The caller calls cuInit. NULL, with a message for the status
 * SMELT_ERROR_NO_DRIVER, when there is none; this result, too, is kept for the process. */
const struct smelt__driver *smelt__driver_get(void);

/* The CUDA version that the driver supports, 13000 for 13.0; 0 without a driver. Sets no message.
 */
int smelt__driver_version(void);

/* Sets the message for a failed call, "cuMemAlloc failed: CUDA_ERROR_... (...)", and returns
 * SMELT_ERROR_DRIVER, or NO_DEVICE for CUDA_ERROR_NO_DEVICE. */
__attribute__((cold)) smelt_status smelt__driver_fail(const struct smelt__driver *driver,
                                                      const char *call, CUresult result);
