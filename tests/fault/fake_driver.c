/* The fake driver: see fake_driver.h. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"

#define EXPORT __attribute__((visibility("default")))
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"

enum { STACK = 8 };

struct CUctx_st {
    int unused;
};

static struct fake_driver state = {
    .context_id = 1, .devices = 1, .capability_major = 9, .version = 13000, .multiprocessors = 132};
static struct CUctx_st primary;
static char handle;                     /* what streams and events point to */
static atomic_ulong last_module = 4096; /* modules are numbers, each also its function's */
static _Thread_local CUcontext stack[STACK];
static _Thread_local int depth;

EXPORT struct fake_driver *fake_driver_state(void) {
    return &state;
}

EXPORT CUcontext fake_driver_current(void) {
    return depth ? stack[depth - 1] : NULL;
}

/* Every call begins here. A call that releases something does so even if it fails. */
static CUresult begin(const char *name) {
    int number = atomic_fetch_add(&state.calls, 1) + 1;
    if (number <= FAKE_LOGGED)
        snprintf(state.log[number - 1], FAKE_CALL, "%s", name);
    return number == state.fail_at ? state.fail_with : CUDA_SUCCESS;
}

#define BEGIN()                                                                                    \
    do {                                                                                           \
        CUresult begun = begin(__func__);                                                          \
        if (begun)                                                                                 \
            return begun;                                                                          \
    } while (0)

/* A call that runs `does` unless it fails; without and with the check for a current context that
 * the real driver requires for device work. */
#define CALL(name, parameters, does)                                                               \
    EXPORT CUresult name parameters {                                                              \
        BEGIN();                                                                                   \
        does;                                                                                      \
        return CUDA_SUCCESS;                                                                       \
    }
#define BEGIN_WORK()                                                                               \
    do {                                                                                           \
        BEGIN();                                                                                   \
        if (!depth)                                                                                \
            return CUDA_ERROR_INVALID_CONTEXT;                                                     \
    } while (0)
#define WORK(name, parameters, does)                                                               \
    EXPORT CUresult name parameters {                                                              \
        BEGIN_WORK();                                                                              \
        does;                                                                                      \
        return CUDA_SUCCESS;                                                                       \
    }
/* Decrements the counter, also if the call fails. */
#define RELEASE(name, parameters, count)                                                           \
    EXPORT CUresult name parameters {                                                              \
        (count)--;                                                                                 \
        return begin(__func__);                                                                    \
    }

CALL(cuInit, (unsigned int flags), (void)0)

/* Called once, when the library is opened. */
EXPORT CUresult cuDriverGetVersion(int *version) {
    *version = state.version;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == FAKE_UNKNOWN_ERROR ? "CUDA_ERROR_UNKNOWN" : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    (void)error;
    *text = "told to fail";
    return CUDA_SUCCESS;
}

CALL(cuDeviceGetCount, (int *count), *count = state.devices)
CALL(cuDeviceGet, (CUdevice * device, int ordinal), *device = ordinal)
CALL(cuDeviceGetName, (char *name, int length, CUdevice device),
     snprintf(name, (size_t)length, "Fake GPU %d", device))

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    (void)device;
    BEGIN();
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? state.capability_major
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? state.capability_minor
                                                                         : state.multiprocessors;
    return CUDA_SUCCESS;
}

CALL(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device), *bytes = (size_t)1 << 37)
CALL(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), *context = &primary;
     state.retained++)
RELEASE(cuDevicePrimaryCtxRelease_v2, (CUdevice device), state.retained)
CALL(cuCtxGetCurrent, (CUcontext * context), *context = depth ? stack[depth - 1] : NULL)

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    BEGIN();
    if (depth == STACK)
        abort();
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return begin(__func__);
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    BEGIN();
    *device = 0;
    return depth ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    BEGIN();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context == state.destroyed)
        return CUDA_ERROR_INVALID_CONTEXT;
    /* Another context has another id, and the primary one the state's. */
    *id = state.context_id + ((uintptr_t)context ^ (uintptr_t)&primary);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    BEGIN_WORK();
    state.loads++;
    if (memcmp((const char *)image + 8, "FAKECUBI", 8) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    if (state.reject_images > 0) {
        state.reject_images--;
        return CUDA_ERROR_INVALID_IMAGE;
    }
    state.modules++;
    *module = (CUmodule)(atomic_fetch_add(&last_module, 1) + 1); // NOLINT: nothing is there
    return CUDA_SUCCESS;
}

RELEASE(cuModuleUnload, (CUmodule module), state.modules)

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    BEGIN_WORK();
    if (!name[0])
        return CUDA_ERROR_NOT_FOUND;
    *function = (CUfunction)(void *)module;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    (void)function;
    BEGIN_WORK();
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        state.shared_bytes = value;
    return CUDA_SUCCESS;
}

static unsigned cluster_of(const CUlaunchConfig *config) {
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            return config->attrs[i].value.clusterDim[0];
    return 0;
}

static int launched_with_pdl(const CUlaunchConfig *config) {
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return config->attrs[i].value.programmaticStreamSerializationAllowed != 0;
    return 0;
}

/* Copies a params struct. Its size is unknown here, since there is no real cubin; a shorter one is
 * read beyond its end, and these bytes are ignored. Copies byte by byte, because a sanitizer checks
 * every memcpy. */
__attribute__((no_sanitize_address)) static void copy_params(unsigned char *to, const void *from,
                                                             size_t bytes) {
    const volatile unsigned char *const byte = from;
    for (size_t i = 0; i < bytes; i++)
        to[i] = byte[i];
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                                 void **parameters, void **extra) {
    (void)extra;
    BEGIN_WORK();
    if (state.launches++ >= state.most_launches && state.most_launches)
        return state.fail_with;
    state.launch = *config;
    state.strays += config->hStream != state.stream;
    for (unsigned i = 0;
         i < config->numAttrs && i < sizeof state.attributes / sizeof *config->attrs; i++)
        state.attributes[i] = config->attrs[i];
    state.launched = function;
    state.launch_context = stack[depth - 1];
    copy_params(state.params, parameters[0], FAKE_PARAMS);
    if (state.chain_length < FAKE_CHAIN) {
        const size_t kept = state.chain_length < state.chain_from ? 0 : state.chain_params;
        struct fake_launch *launch = &state.chain[state.chain_length++];
        launch->function = function;
        launch->blocks = config->gridDimX;
        launch->threads = config->blockDimX;
        launch->cluster = cluster_of(config);
        launch->pdl = launched_with_pdl(config);
        copy_params(launch->params, parameters[0], kept);
    }
    return CUDA_SUCCESS;
}

/* Device memory is host memory. */
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    BEGIN_WORK();
    void *memory = malloc(bytes);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    state.allocations++;
    *pointer = (CUdeviceptr)memory;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
    free((void *)pointer);
    state.allocations--;
    return begin(__func__);
}

WORK(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes),
     memcpy((void *)to, from, bytes))
WORK(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes),
     memcpy(to, (const void *)from, bytes))
WORK(cuMemsetD8_v2, (CUdeviceptr pointer, unsigned char value, size_t bytes),
     memset((void *)pointer, value, bytes))

EXPORT CUresult cuMemsetD32Async(CUdeviceptr pointer, unsigned value, size_t words,
                                 CUstream stream) {
    BEGIN_WORK();
    state.strays += stream != state.stream;
    state.fills++;
    state.filled = pointer;
    state.filled_words = words;
    /* A sanitizer sees by its ends that a fill is too long. */
    if (words && !state.no_fills) {
        memcpy((char *)pointer, &value, sizeof value);
        memcpy((char *)pointer + (words - 1) * sizeof value, &value, sizeof value);
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, unsigned rank, void *address,
                                       const unsigned long long *extents,
                                       const unsigned long long *strides, const unsigned *box,
                                       const unsigned *element_strides, int interleave, int swizzle,
                                       int promotion, int fill) {
    (void)element_strides, (void)interleave, (void)promotion, (void)fill;
    BEGIN_WORK();
    state.box = (struct smelt__tensor_box){.data = address,
                                           .element = (enum smelt__map_element)type,
                                           .swizzle = (enum smelt__map_swizzle)swizzle,
                                           .dimensions = (int)rank};
    for (unsigned i = 0; i + 1 < rank; i++) /* the copy engine's limits */
        if (strides[i] >= 1ULL << 40 || strides[i] % 16)
            return (CUresult)FAKE_UNKNOWN_ERROR;
    for (unsigned i = 0; i < rank; i++) {
        state.box.extents[i] = (int64_t)extents[i];
        state.box.strides[i] = i > 0 ? (int64_t)strides[i - 1] : 0; /* bytes */
        state.box.box[i] = (int)box[i];
    }
    memset((void *)map, 0, sizeof(struct tensor_map));
    return CUDA_SUCCESS;
}

WORK(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total_bytes), *free_bytes = (size_t)1 << 36;
     *total_bytes = (size_t)1 << 37)

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    *stream = (CUstream)(void *)&state; /* a failed call may leave this value, like the real
                                           driver */
    BEGIN_WORK();
    if (flags != CU_STREAM_NON_BLOCKING)
        abort();
    *stream = (CUstream)(void *)&handle;
    state.streams++;
    return CUDA_SUCCESS;
}

WORK(cuStreamSynchronize, (CUstream stream), (void)0)
RELEASE(cuStreamDestroy_v2, (CUstream stream), state.streams)

EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    (void)flags;
    *event = (CUevent)(void *)&state;
    BEGIN_WORK();
    *event = (CUevent)(void *)&handle;
    state.events++;
    return CUDA_SUCCESS;
}

WORK(cuEventRecord, (CUevent event, CUstream stream), (void)0)
WORK(cuEventSynchronize, (CUevent event), (void)0)

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    (void)start;
    (void)end;
    *milliseconds = -1;
    BEGIN_WORK();
    *milliseconds = 1.5F;
    return CUDA_SUCCESS;
}

RELEASE(cuEventDestroy_v2, (CUevent event), state.events)
