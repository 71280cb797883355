/*
 * smelt: device memory, streams and timing for programs that do not call the CUDA API themselves:
 * the examples, the `smelt` command, tests. A trainer uses its framework's.
 *
 * Every function makes the context's CUDA context current while it runs and then restores the
 * previous one. All return NO_DEVICE for a compile-only context, INVALID_ARGUMENT for a null
 * argument (and in a forked child), and DRIVER for errors of the driver, including those of earlier
 * work on the device, which the driver may report at any later call. Any thread.
 *
 * The caller owns the memory, streams and events that these functions create, and must free each
 * once, through the same context and before destroying it, because the device's primary CUDA
 * context may be destroyed with it. A call that fails creates nothing and sets the caller's pointer
 * to NULL.
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

/* A context's device. */
typedef struct smelt_device_info {
    size_t size;
    const char *name;                       /* "NVIDIA H200"; lives as long as the context */
    int capability_major, capability_minor; /* 9, 0 */
    int multiprocessors;                    /* 132 on an H200 */
    int driver_version;                     /* 13000 for CUDA 13.0 */
    uint64_t memory_bytes;                  /* bytes of device memory */
    uint64_t free_bytes;                    /* now free, counting all processes */
} smelt_device_info;

#define SMELT_DEVICE_INFO_INIT SMELT_INIT(smelt_device_info)

/* Fills *info, whose `size` the caller has set, for the context's device; unchanged on failure. */
SMELT_CALL smelt_status smelt_device_get_info(const smelt_context *context,
                                              smelt_device_info *info);

/* Device memory, aligned to 256 bytes and uninitialised. smelt_device_free, which may wait for work
 * on the device, accepts NULL. `bytes` must not be 0. */
SMELT_CALL smelt_status smelt_device_alloc(const smelt_context *context, size_t bytes,
                                           void **pointer);
SMELT_API smelt_status smelt_device_free(const smelt_context *context, void *pointer);

/* Copies between host and device, and fills; complete when they return. They use the default
 * stream, which does not synchronise with streams of smelt_stream_create: synchronise such a stream
 * before downloading its results or overwriting its inputs. */
SMELT_CALL smelt_status smelt_device_upload(const smelt_context *context, void *device,
                                            const void *host, size_t bytes);
SMELT_CALL smelt_status smelt_device_download(const smelt_context *context, void *host,
                                              const void *device, size_t bytes);
SMELT_CALL smelt_status smelt_device_fill(const smelt_context *context, void *device, int byte,
                                          size_t bytes);

/* A non-blocking stream. smelt_stream_synchronize waits for all work on a stream (NULL: the default
 * stream). smelt_stream_destroy rejects NULL; work still on the stream completes. */
SMELT_CALL smelt_status smelt_stream_create(const smelt_context *context,
                                            struct CUstream_st **stream);
SMELT_CALL smelt_status smelt_stream_synchronize(const smelt_context *context,
                                                 struct CUstream_st *stream);
SMELT_API smelt_status smelt_stream_destroy(const smelt_context *context,
                                            struct CUstream_st *stream);

/* Events for timing. An event may be recorded again on a stream (NULL: the default stream); the
 * last time counts. *milliseconds: from `begin` to `end`, both recorded, accurate to about half a
 * microsecond; 0 on failure. smelt_event_elapsed waits for `end` and fails (DRIVER) if `begin` has
 * not been reached by then. smelt_event_destroy rejects NULL. */
SMELT_CALL smelt_status smelt_event_create(const smelt_context *context, struct CUevent_st **event);
SMELT_CALL smelt_status smelt_event_record(const smelt_context *context, struct CUevent_st *event,
                                           struct CUstream_st *stream);
SMELT_CALL smelt_status smelt_event_elapsed(const smelt_context *context, struct CUevent_st *begin,
                                            struct CUevent_st *end, float *milliseconds);
SMELT_API smelt_status smelt_event_destroy(const smelt_context *context, struct CUevent_st *event);

/* ---- machine report (no context needed) ------------------------------------------------------ */

/* Strings and arrays live until smelt_machine_report_release. */
typedef struct smelt_machine_report {
    size_t size;
    void *memory;                    /* internal: holds the strings and arrays */
    int driver_found;                /* libcuda opened and initialised */
    int driver_version;              /* 13000; 0 when not found */
    const char *driver_path;         /* libcuda, "" when not found */
    const char *driver_problem;      /* why not, and a remedy */
    int devices;                     /* CUDA devices of this machine */
    int nvrtc_found;                 /* libnvrtc opened */
    const char *const *device_names; /* `devices` of them */
    const char *const *device_archs; /* "sm_90a"; "": one that smelt has no kernels for */
    int nvrtc_major, nvrtc_minor;    /* its version */
    const char *nvrtc_path;          /* the one a context would use */
    const char *nvrtc_problem;       /* why none, what was tried, a remedy */
    const char *nvrtc_archs;         /* architectures it compiles for, "sm_75 sm_80 ..." */
    const char *cache_folder;        /* where kernels are kept */
    const char *cache_problem;       /* "" when it can be used */
} smelt_machine_report;

#define SMELT_MACHINE_REPORT_INIT SMELT_INIT(smelt_machine_report)

/* Finds driver, devices, NVRTC and the cache folder as a context with `options` would (NULL:
 * defaults). The driver and NVRTC, once opened, stay loaded until the process ends, since neither
 * can be unloaded safely. Missing things are no error: the report lists them. The caller releases
 * *report, whose `size` it has set; on failure there is nothing to release. Errors:
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
SMELT_CALL smelt_status smelt_machine_get_report(const smelt_context_options *options,
                                                 smelt_machine_report *report);

/* Frees a report's memory and sets its fields to 0. Legal for NULL, and for a report that was only
 * initialised or already released. */
SMELT_API void smelt_machine_report_release(smelt_machine_report *report);

#ifdef __cplusplus
}
#endif

#endif
