/* Opening libcuda and naming its errors. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/driver/driver.h"
#include "runtime/log.h"

/* Members and their exported names. The _v2 names are the 64-bit interfaces that cuda.h maps the
 * plain names to; the plain exports are their 32-bit predecessors. */
static const struct entry_point {
    const char *name;
    size_t offset;
} entry_points[] = {
#define ENTRY(member, export)                                                                      \
    { export, offsetof(struct smelt__driver, member) }
    ENTRY(cuInit, "cuInit"),
    ENTRY(cuDriverGetVersion, "cuDriverGetVersion"),
    ENTRY(cuGetErrorName, "cuGetErrorName"),
    ENTRY(cuGetErrorString, "cuGetErrorString"),
    ENTRY(cuDeviceGetCount, "cuDeviceGetCount"),
    ENTRY(cuDeviceGet, "cuDeviceGet"),
    ENTRY(cuDeviceGetName, "cuDeviceGetName"),
    ENTRY(cuDeviceGetAttribute, "cuDeviceGetAttribute"),
    ENTRY(cuDeviceTotalMem, "cuDeviceTotalMem_v2"),
    ENTRY(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"),
    ENTRY(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2"),
    ENTRY(cuCtxGetCurrent, "cuCtxGetCurrent"),
    ENTRY(cuCtxPushCurrent, "cuCtxPushCurrent_v2"),
    ENTRY(cuCtxPopCurrent, "cuCtxPopCurrent_v2"),
    ENTRY(cuCtxGetDevice, "cuCtxGetDevice"),
    ENTRY(cuCtxGetId, "cuCtxGetId"),
    ENTRY(cuModuleLoadData, "cuModuleLoadData"),
    ENTRY(cuModuleUnload, "cuModuleUnload"),
    ENTRY(cuModuleGetFunction, "cuModuleGetFunction"),
    ENTRY(cuFuncSetAttribute, "cuFuncSetAttribute"),
    ENTRY(cuLaunchKernelEx, "cuLaunchKernelEx"),
    ENTRY(cuMemAlloc, "cuMemAlloc_v2"),
    ENTRY(cuMemFree, "cuMemFree_v2"),
    ENTRY(cuMemcpyHtoD, "cuMemcpyHtoD_v2"),
    ENTRY(cuMemcpyDtoH, "cuMemcpyDtoH_v2"),
    ENTRY(cuMemsetD8, "cuMemsetD8_v2"),
    ENTRY(cuMemsetD32Async, "cuMemsetD32Async"),
    ENTRY(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled"),
    ENTRY(cuMemGetInfo, "cuMemGetInfo_v2"),
    ENTRY(cuStreamCreate, "cuStreamCreate"),
    ENTRY(cuStreamSynchronize, "cuStreamSynchronize"),
    ENTRY(cuStreamDestroy, "cuStreamDestroy_v2"),
    ENTRY(cuEventCreate, "cuEventCreate"),
    ENTRY(cuEventRecord, "cuEventRecord"),
    ENTRY(cuEventSynchronize, "cuEventSynchronize"),
    ENTRY(cuEventElapsedTime, "cuEventElapsedTime"),
    ENTRY(cuEventDestroy, "cuEventDestroy_v2"),
#undef ENTRY
};

/* Written once, before the first pthread_once returns. */
static struct smelt__driver driver_table;
static char driver_problem[1024];
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

/* memcpy, because ISO C does not convert dlsym's object pointer to a function pointer; POSIX
 * guarantees that both have the same representation. */
static int resolve(void *library, const char **missing) {
    for (size_t i = 0; i < sizeof entry_points / sizeof entry_points[0]; i++) {
        void *symbol = dlsym(library, entry_points[i].name);
        if (!symbol) {
            *missing = entry_points[i].name;
            return -1;
        }
        memcpy((char *)&driver_table + entry_points[i].offset, &symbol, sizeof symbol);
    }
    return 0;
}

static void note_path(const char *name) {
    Dl_info where;
    void *symbol;
    memcpy(&symbol, &driver_table.cuInit, sizeof symbol);
    int known = dladdr(symbol, &where) != 0 && where.dli_fname;
    snprintf(driver_table.path, sizeof driver_table.path, "%s", known ? where.dli_fname : name);
}

static void open_driver(void) {
    const char *override = secure_getenv("SMELT_CUDA");
    const char *name = override && *override ? override : "libcuda.so.1";
    const char *missing = NULL;

    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        snprintf(driver_problem, sizeof driver_problem,
                 "the CUDA driver cannot be opened (%s): install the NVIDIA driver, or in a "
                 "container pass the GPU through",
                 reason ? reason : name);
        return;
    }
    if (resolve(library, &missing)) {
        snprintf(driver_problem, sizeof driver_problem,
                 "%s has no %s: smelt needs a driver for CUDA 12.0 (525.60) or newer", name,
                 missing);
        goto out;
    }
    CUresult result = driver_table.cuDriverGetVersion(&driver_table.version);
    if (result != CUDA_SUCCESS) {
        snprintf(driver_problem, sizeof driver_problem, "%s: cuDriverGetVersion failed with %d",
                 name, result);
        goto out;
    }
    note_path(name);
    /* The emulator's own interface: src/emu/emulator.h. */
    driver_table.output = dlsym(library, "emu_get") ? SMELT__OUTPUT_EMULATED : SMELT__OUTPUT_CUBIN;
    return;
out:
    dlclose(library);
}

static void open_driver_once(void) {
    pthread_once(&driver_once, open_driver);
}

const struct smelt__driver *smelt__driver_get(void) {
    open_driver_once();
    if (driver_problem[0]) {
        smelt__fail(SMELT_ERROR_NO_DRIVER, "%s", driver_problem);
        return NULL;
    }
    return &driver_table;
}

int smelt__driver_version(void) {
    open_driver_once();
    return driver_problem[0] ? 0 : driver_table.version;
}

smelt_status smelt__driver_fail(const struct smelt__driver *driver, const char *call,
                                CUresult result) {
    const char *name = NULL;
    const char *text = NULL;
    if (driver->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        name = "an unknown error";
    if (driver->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
        text = "no description";
    smelt_status status =
        result == CUDA_ERROR_NO_DEVICE ? SMELT_ERROR_NO_DEVICE : SMELT_ERROR_DRIVER;
    return smelt__fail(status, "%s failed: %s, %d (%s)", call, name, result, text);
}
