/*
 * smelt: a little device memory, streams and timing, for programs that do not call the CUDA API
 * themselves: the examples, the `smelt` command, tests. A trainer uses its framework's.
 *
 * Every function makes the context's CUDA context current while it runs and restores what was
 * there. All return NO_DEVICE for a compile-only context, INVALID_ARGUMENT for a null argument (and
 * in a forked child) and DRIVER for what the driver refuses: also for what earlier work on the
 * device did wrong, which the driver may report at any later call. Any thread.
 *
 * Memory, streams and events that they make are the caller's, who frees each once, through the same
 * context and before that is destroyed: the device's primary CUDA context may go with it, and all
 * that was made in it. A call that fails makes nothing and leaves NULL in the caller's pointer.
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
    const char *name; /* "NVIDIA H200"; lives as long as the context */
    int capability_major, capability_minor;
    int multiprocessors;
    int driver_version;    /* 13000 for CUDA 13.0 */
    uint64_t memory_bytes; /* of device memory, */
    uint64_t free_bytes;   /* and how many of them are free now, of all processes */
} smelt_device_info;

#define SMELT_DEVICE_INFO_INIT SMELT_INIT(smelt_device_info)

/* The context's device, into *info, whose `size` the caller has set; untouched on failure. */
SMELT_API smelt_status smelt_device_get_info(const smelt_context *context, smelt_device_info *info);

/* Device memory, at a multiple of 256 bytes and with any contents. Freed by smelt_device_free,
 * which may wait for work on the device, and takes NULL. `bytes` 0 is refused. */
SMELT_API smelt_status smelt_device_alloc(const smelt_context *context, size_t bytes,
                                          void **pointer);
SMELT_API smelt_status smelt_device_free(const smelt_context *context, void *pointer);

/* Copies between host and device, and fills: done when they return. They go through the default
 * stream, which does not wait for streams of smelt_stream_create, nor these for it: wait for such a
 * stream before its results are downloaded or its inputs written over. */
SMELT_API smelt_status smelt_device_upload(const smelt_context *context, void *device,
                                           const void *host, size_t bytes);
SMELT_API smelt_status smelt_device_download(const smelt_context *context, void *host,
                                             const void *device, size_t bytes);
SMELT_API smelt_status smelt_device_fill(const smelt_context *context, void *device, int byte,
                                         size_t bytes);

/* A stream that the default stream does not wait for (non-blocking). smelt_stream_synchronize waits
 * until all work on a stream is done (NULL: on the default stream). smelt_stream_destroy refuses
 * NULL; work that is still on the stream is done nevertheless. */
SMELT_API smelt_status smelt_stream_create(const smelt_context *context,
                                           struct CUstream_st **stream);
SMELT_API smelt_status smelt_stream_synchronize(const smelt_context *context,
                                                struct CUstream_st *stream);
SMELT_API smelt_status smelt_stream_destroy(const smelt_context *context,
                                            struct CUstream_st *stream);

/* Events for timing. An event is recorded on a stream (NULL: the default stream), again if need be:
 * the last time counts. *milliseconds: from `begin` to `end`, both recorded, to about half a
 * microsecond, or 0 on failure; it waits for `end`, and fails (DRIVER) where `begin` is not reached
 * by then. smelt_event_destroy refuses NULL. */
SMELT_API smelt_status smelt_event_create(const smelt_context *context, struct CUevent_st **event);
SMELT_API smelt_status smelt_event_record(const smelt_context *context, struct CUevent_st *event,
                                          struct CUstream_st *stream);
SMELT_API smelt_status smelt_event_elapsed(const smelt_context *context, struct CUevent_st *begin,
                                           struct CUevent_st *end, float *milliseconds);
SMELT_API smelt_status smelt_event_destroy(const smelt_context *context, struct CUevent_st *event);

/* ---- what is on this machine (no context needed) --------------------------------------------- */

/* Strings and arrays live until smelt_machine_report_release. */
typedef struct smelt_machine_report {
    size_t size;
    void *memory;       /* the library's: what the strings and arrays stand in */
    int driver_found;   /* libcuda opened and initialised */
    int driver_version; /* 13000; 0 when not found */
    const char *driver_path;
    const char *driver_problem; /* why not, and what to do */
    int devices;
    int nvrtc_found;
    const char *const *device_names; /* `devices` of them */
    const char *const *device_archs; /* "sm_90a"; "": one that smelt has no kernels for */
    int nvrtc_major, nvrtc_minor;
    const char *nvrtc_path;    /* the one a context would use */
    const char *nvrtc_problem; /* why none, what was tried, what to do */
    const char *nvrtc_archs;   /* architectures it compiles for, "sm_75 sm_80 ..." */
    const char *cache_folder;
    const char *cache_problem; /* "" when it can be used */
} smelt_machine_report;

#define SMELT_MACHINE_REPORT_INIT SMELT_INIT(smelt_machine_report)

/* Looks for driver, devices, NVRTC and the cache folder as a context made with `options` would
 * (NULL: defaults). The driver and NVRTC, once opened, stay open until the process ends: neither
 * can be unloaded safely. The cache is closed again. Missing things are not an error: the report
 * says so. *report, whose `size` the caller has set, is the caller's to release; on failure there
 * is nothing to release. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_machine_get_report(const smelt_context_options *options,
                                                smelt_machine_report *report);

/* Frees what a report holds and sets its fields to 0. Legal for NULL, for one that was only
 * initialised and for one that was released. */
SMELT_API void smelt_machine_report_release(smelt_machine_report *report);

#ifdef __cplusplus
}
#endif

#endif
