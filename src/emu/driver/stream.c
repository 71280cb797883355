/* The driver's streams and events, which are always done. */
#include <stdlib.h>
#include <time.h>

#include "emu/driver/driver.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static char handle; /* what streams point to */

EMU_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    (void)flags;
    *stream = (CUstream)(void *)&handle;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    (void)stream;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    (void)stream;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    (void)flags;
    *event = calloc(1, sizeof(struct timespec));
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, (struct timespec *)(void *)event);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuEventSynchronize(CUevent event) {
    (void)event;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
    const struct timespec *a = (void *)begin, *b = (void *)end;
    *milliseconds =
        (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
    free((void *)event);
    return CUDA_SUCCESS;
}
