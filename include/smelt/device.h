/*
 * smelt: a little device memory, streams and timing, for programs that do not call the CUDA API
 * themselves: the examples, the `smelt` command, tests. A trainer uses its framework's.
 *
 * Every function makes the context's CUDA context current while it runs and restores what was
 * there. All return NO_DEVICE for a compile-only context, INVALID_ARGUMENT for a null argument and
 * DRIVER for what the driver refuses. Any thread.
 */
#ifndef SMELT_DEVICE_H
#define SMELT_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "smelt/context.h"
#include "smelt/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* the driver's stream; cudaStream_t and CUstream are pointers to it */
struct CUevent_st;

typedef struct smelt_device_info {
    size_t size;
    char name[256];
    int capability_major, capability_minor;
    int multiprocessors;
    int driver_version; /* 13000 for CUDA 13.0 */
    uint64_t memory_bytes;
    uint64_t free_bytes;
} smelt_device_info;

SMELT_API smelt_status smelt_device_get_info(smelt_context *context, smelt_device_info *info);

/* Device memory. Freed by smelt_device_free, which takes NULL. `bytes` 0 is refused. */
SMELT_API smelt_status smelt_device_alloc(smelt_context *context, size_t bytes, void **pointer);
SMELT_API smelt_status smelt_device_free(smelt_context *context, void *pointer);

/* Copies between host and device and fills, synchronous with the host. */
SMELT_API smelt_status smelt_device_upload(smelt_context *context, void *device, const void *host,
                                           size_t bytes);
SMELT_API smelt_status smelt_device_download(smelt_context *context, void *host, const void *device,
                                             size_t bytes);
SMELT_API smelt_status smelt_device_fill(smelt_context *context, void *device, int byte,
                                         size_t bytes);

/* A non-blocking stream, and waiting for one (NULL: the default stream). */
SMELT_API smelt_status smelt_stream_create(smelt_context *context, struct CUstream_st **stream);
SMELT_API smelt_status smelt_stream_synchronize(smelt_context *context, struct CUstream_st *stream);
SMELT_API smelt_status smelt_stream_destroy(smelt_context *context, struct CUstream_st *stream);

/* Events for timing: record on a stream, then milliseconds between two recorded and reached ones
 * (waits for `end`). */
SMELT_API smelt_status smelt_event_create(smelt_context *context, struct CUevent_st **event);
SMELT_API smelt_status smelt_event_record(smelt_context *context, struct CUevent_st *event,
                                          struct CUstream_st *stream);
SMELT_API smelt_status smelt_event_elapsed(smelt_context *context, struct CUevent_st *begin,
                                           struct CUevent_st *end, float *milliseconds);
SMELT_API smelt_status smelt_event_destroy(smelt_context *context, struct CUevent_st *event);

/* ---- what is on this machine (no context needed) ----------------------------------------------
 */

typedef struct smelt_machine_report {
    size_t size;
    int driver_found;   /* libcuda opened and initialised */
    int driver_version; /* 13000; 0 when not found */
    char driver_path[4096];
    char driver_problem[512]; /* why not, and what to do */
    int devices;
    char device_names[8][256]; /* the first eight */
    char device_archs[8][16];  /* "sm_90a" */
    int nvrtc_found;
    int nvrtc_major, nvrtc_minor;
    char nvrtc_path[4096];    /* the one a context would use */
    char nvrtc_problem[1024]; /* why none, what was tried, what to do */
    char nvrtc_archs[512];    /* architectures it compiles for, "sm_75 sm_80 ..." */
    char cache_folder[4096];
    char cache_problem[512]; /* "" when it can be used */
} smelt_machine_report;

/* Looks for driver, devices, NVRTC and the cache folder as a context made with `options` would
 * (NULL: defaults). The driver and NVRTC, once opened, stay open until the process ends: neither
 * can be unloaded safely. The cache is closed again. Missing things are not an error: the report
 * says so. Errors: INVALID_ARGUMENT. */
SMELT_API smelt_status smelt_machine_get_report(const smelt_context_options *options,
                                                smelt_machine_report *report);

#ifdef __cplusplus
}
#endif

#endif
