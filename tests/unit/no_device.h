/* For tests that check operators' calls without launching them: a context without a device, and addresses
 * that are not dereferenced. */
#pragma once

#include "runtime/context.h"
#include "runtime/process.h"

static inline CUresult no_device_current(CUcontext *current) {
    *current = NULL;
    return CUDA_SUCCESS;
}

static inline CUresult no_device_id(CUcontext context, unsigned long long *id) {
    (void)context;
    *id = 0;
    return CUDA_SUCCESS;
}

/* Its CUDA context, NULL, is always current. */
static inline smelt_context *no_device(void) {
    static const struct smelt__driver driver = {.cuCtxGetCurrent = no_device_current,
                                                .cuCtxGetId = no_device_id};
    static smelt_context context;
    context.driver = &driver;
    context.process = smelt__process_number();
    return &context;
}

/* Addresses with different numbers are 16 TiB apart; `offset` can misalign one. */
static inline void *address(int number, uintptr_t offset) {
    return (void *)(((uintptr_t)number << 44) + offset); // NOLINT: never dereferenced
}
