/* The driver's memory: allocations, copies, fills, tensor maps. */
#include <stdio.h>
#include <string.h>

#include "emu/driver/driver.h"
#include "emu/formats/layout.h"
#include "emu/machine/report.h"
#include "emu/memory/global.h"
#include "emu/memory/pdl.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EMU_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    if (!emu_context_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (bytes == 0)
        return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&emu_driver_lock);
    *pointer = emu_memory_allocate(emu_device_current(), bytes, false);
    pthread_mutex_unlock(&emu_driver_lock);
    return *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
    pthread_mutex_lock(&emu_driver_lock);
    bool freed = emu_memory_free(pointer);
    pthread_mutex_unlock(&emu_driver_lock);
    return freed ? CUDA_SUCCESS : ERROR_INVALID_VALUE;
}

/* Whether the bytes are device memory. Waits for the default stream, as a copy does. `written`: the
 * host writes them. */
static bool touch(CUdeviceptr pointer, size_t bytes, bool written) {
    pthread_mutex_lock(&emu_driver_lock);
    emu_pdl_synchronize(emu_stream_of(NULL, emu_device_current()));
    const bool held = emu_memory_holds(pointer, bytes);
    if (held && written) {
        emu_memory_produce(pointer, NULL);
        emu_memory_overwritten(pointer, bytes);
    }
    pthread_mutex_unlock(&emu_driver_lock);
    return held;
}

EMU_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    if (!touch(to, bytes, true))
        return ERROR_INVALID_VALUE;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    pthread_mutex_lock(&emu_driver_lock);
    const bool complete = emu_pdl_check_ended();
    pthread_mutex_unlock(&emu_driver_lock);
    if (!complete)
        return ERROR_LAUNCH_FAILED;
    if (!touch(from, bytes, false))
        return ERROR_INVALID_VALUE;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t bytes) {
    if (!touch(pointer, bytes, true))
        return ERROR_INVALID_VALUE;
    memset((void *)(uintptr_t)pointer, value, bytes);
    return CUDA_SUCCESS;
}

/* Fills in stream order: after the stream's earlier launches and before its later ones, which do not
 * overlap with it. The address must be a multiple of 4. */
EMU_EXPORT CUresult cuMemsetD32Async(CUdeviceptr pointer, unsigned value, size_t words,
                                     CUstream handle) {
    const size_t bytes = words * sizeof value;
    CUresult result = CUDA_SUCCESS;
    if (pointer % sizeof value != 0 || words > SIZE_MAX / sizeof value)
        return ERROR_INVALID_VALUE;
    if (!emu_context_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    const void *stream = emu_stream_find(handle);
    if (!stream)
        return ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&emu_driver_lock);
    emu_reports_begin();
    if (bytes > 0 &&
        (!emu_memory_holds(pointer, bytes) || emu_memory_device(pointer) != emu_device_current()))
        result = ERROR_INVALID_VALUE;
    else if (bytes > 0 && !emu_memory_fill_begins(pointer, bytes, stream))
        result = ERROR_LAUNCH_FAILED;
    else
        emu_pdl_interrupt(stream);
    if (result == CUDA_SUCCESS)
        emu_memory_overwritten(pointer, bytes);
    emu_reports_end();
    pthread_mutex_unlock(&emu_driver_lock);
    for (size_t i = 0; i < words && result == CUDA_SUCCESS; i++)
        ((unsigned *)(uintptr_t)pointer)[i] = value;
    return result;
}

EMU_EXPORT CUresult cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                                           const uint64_t *dimensions, const uint64_t *strides,
                                           const uint32_t *box, const uint32_t *element_strides,
                                           int interleave, int swizzle, int promotion, int fill) {
    char why[256];
    if (!emu_context_current()) /* as in CUDA 13's driver, although no device is used */
        return CUDA_ERROR_INVALID_CONTEXT;
    if (emu_tensor_map_encode(map, type, rank, (u64)(uintptr_t)address, dimensions, strides, box,
                              element_strides, interleave, swizzle, promotion, fill, why,
                              sizeof why))
        return CUDA_SUCCESS;
    fprintf(stderr, "smelt's emulator: cuTensorMapEncodeTiled: %s\n", why);
    return ERROR_INVALID_VALUE;
}
