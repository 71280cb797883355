/* Device memory, streams and events for programs without a CUDA API of their own: see
 * smelt/device.h. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/abi.h"
#include "runtime/context.h"
#include "runtime/kernel.h"
#include "smelt/device.h"

/* Makes the CUDA context current. `argument`, called `name` in messages, must not be NULL. */
static smelt_status enter(const smelt_context *context, const void *argument, const char *name,
                          int *pushed) {
    smelt_status status = argument ? smelt__context_need_device(context) : smelt__fail_null(name);
    return status ? status : smelt__context_enter(context, pushed);
}

/* Undoes enter; returns the status of the driver's function `call`. */
static smelt_status leave(const smelt_context *context, int pushed, const char *call,
                          CUresult result) {
    smelt__context_leave(context, pushed);
    if (result == CUDA_SUCCESS)
        return SMELT_OK;
    return smelt__driver_fail(context->driver, call, result);
}

/* A public function that is one call of the driver: enters, calls, leaves. */
#define CALL(context, argument, name, call, ...)                                                   \
    int pushed;                                                                                    \
    smelt_status status = enter(context, argument, name, &pushed);                                 \
    return status ? status : leave(context, pushed, #call, (context)->driver->call(__VA_ARGS__))

static CUdeviceptr address(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

static CUresult read_info(const smelt_context *context, smelt_device_info *info,
                          const char **call) {
    const struct smelt__driver *driver = context->driver;
    CUdevice device = context->device;
    size_t free_bytes = 0;
    size_t total_bytes = 0;

    *call = "cuDeviceGetAttribute";
    CUresult result = driver->cuDeviceGetAttribute(
        &info->capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetAttribute(&info->capability_minor,
                                              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetAttribute(&info->multiprocessors,
                                              CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    if (result == CUDA_SUCCESS) {
        *call = "cuMemGetInfo";
        result = driver->cuMemGetInfo(&free_bytes, &total_bytes);
    }
    info->name = context->device_name;
    info->driver_version = driver->version;
    info->memory_bytes = total_bytes;
    info->free_bytes = free_bytes;
    return result;
}

smelt_status smelt_device_get_info(const smelt_context *context, smelt_device_info *info) {
    const struct smelt__struct *about =
        SMELT__STRUCT(smelt_device_info, "info", "SMELT_DEVICE_INFO_INIT", free_bytes);
    smelt_device_info found = {0};
    int pushed;
    const char *call;

    smelt_status status = smelt__struct_check(about, info);
    if (!status)
        status = enter(context, info, "info", &pushed);
    if (status)
        return status;
    CUresult result = read_info(context, &found, &call);
    if (result == CUDA_SUCCESS)
        smelt__struct_write(about, &found, info);
    return leave(context, pushed, call, result);
}

/* ---- memory ---- */

smelt_status smelt_device_alloc(const smelt_context *context, size_t bytes, void **pointer) {
    int pushed;
    CUdeviceptr allocated = 0;

    if (!pointer)
        return smelt__fail_null("pointer");
    *pointer = NULL;
    if (bytes == 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "bytes is 0; legal: 1 and up");
    smelt_status status = enter(context, pointer, "pointer", &pushed);
    if (status)
        return status;
    CUresult result = context->driver->cuMemAlloc(&allocated, bytes);
    if (result == CUDA_SUCCESS)
        *pointer = (void *)(uintptr_t)allocated;
    char call[48];
    snprintf(call, sizeof call, "cuMemAlloc of %zu bytes", bytes);
    return leave(context, pushed, call, result);
}

smelt_status smelt_device_free(const smelt_context *context, void *pointer) {
    if (!pointer)
        return smelt__context_need_device(context);
    CALL(context, pointer, "pointer", cuMemFree, address(pointer));
}

/* Waits for work that a driver's call left on the default stream; *call names the failed call. */
static CUresult finish(const smelt_context *context, CUresult result, const char **call) {
    if (result != CUDA_SUCCESS)
        return result;
    *call = "cuStreamSynchronize";
    return context->driver->cuStreamSynchronize(NULL);
}

smelt_status smelt_device_upload(const smelt_context *context, void *device, const void *host,
                                 size_t bytes) {
    int pushed;
    if (!device)
        return smelt__fail_null("device");
    smelt_status status = enter(context, host, "host", &pushed);
    if (status)
        return status;
    /* From pageable memory the call may return once the bytes are staged, before they
     * have arrived. */
    const char *call = "cuMemcpyHtoD";
    CUresult result = context->driver->cuMemcpyHtoD(address(device), host, bytes);
    result = finish(context, result, &call);
    return leave(context, pushed, call, result);
}

smelt_status smelt_device_download(const smelt_context *context, void *host, const void *device,
                                   size_t bytes) {
    if (!device)
        return smelt__fail_null("device");
    CALL(context, host, "host", cuMemcpyDtoH, host, address(device), bytes);
}

smelt_status smelt_device_fill(const smelt_context *context, void *device, int byte, size_t bytes) {
    int pushed;
    smelt_status status = enter(context, device, "device", &pushed);
    if (status)
        return status;
    /* The call may return before the memory is set. */
    const char *call = "cuMemsetD8";
    CUresult result =
        context->driver->cuMemsetD8(address(device), (unsigned char)(byte & 0xFF), bytes);
    result = finish(context, result, &call);
    return leave(context, pushed, call, result);
}

/* ---- streams and events ---- */

smelt_status smelt_stream_create(const smelt_context *context, struct CUstream_st **stream) {
    int pushed;
    if (stream)
        *stream = NULL;
    smelt_status status = enter(context, stream, "stream", &pushed);
    if (status)
        return status;
    CUstream made = NULL;
    CUresult result = context->driver->cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        *stream = made;
    return leave(context, pushed, "cuStreamCreate", result);
}

smelt_status smelt_stream_synchronize(const smelt_context *context, struct CUstream_st *stream) {
    CALL(context, context, "context", cuStreamSynchronize, stream);
}

smelt_status smelt_stream_destroy(const smelt_context *context, struct CUstream_st *stream) {
    CALL(context, stream, "stream", cuStreamDestroy, stream);
}

smelt_status smelt_event_create(const smelt_context *context, struct CUevent_st **event) {
    int pushed;
    if (event)
        *event = NULL;
    smelt_status status = enter(context, event, "event", &pushed);
    if (status)
        return status;
    CUevent made = NULL;
    CUresult result = context->driver->cuEventCreate(&made, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        *event = made;
    return leave(context, pushed, "cuEventCreate", result);
}

smelt_status smelt_event_record(const smelt_context *context, struct CUevent_st *event,
                                struct CUstream_st *stream) {
    CALL(context, event, "event", cuEventRecord, event, stream);
}

smelt_status smelt_event_elapsed(const smelt_context *context, struct CUevent_st *begin,
                                 struct CUevent_st *end, float *milliseconds) {
    int pushed;
    float elapsed = 0;
    if (milliseconds)
        *milliseconds = 0;
    if (!begin || !end)
        return smelt__fail_null(begin ? "end" : "begin");
    smelt_status status = enter(context, milliseconds, "milliseconds", &pushed);
    if (status)
        return status;
    const char *call = "cuEventSynchronize";
    CUresult result = context->driver->cuEventSynchronize(end);
    if (result == CUDA_SUCCESS) {
        call = "cuEventElapsedTime";
        result = context->driver->cuEventElapsedTime(&elapsed, begin, end);
    }
    if (result == CUDA_SUCCESS)
        *milliseconds = elapsed;
    return leave(context, pushed, call, result);
}

smelt_status smelt_event_destroy(const smelt_context *context, struct CUevent_st *event) {
    CALL(context, event, "event", cuEventDestroy, event);
}
