/*
 * The CUDA driver's entry points, implemented by the emulator. Its devices differ only in their
 * number of multiprocessors; each has a primary context. Work on streams is complete when the call
 * returns. Memory, modules, streams and events belong to the context that was current when they
 * were made. Constants are those of the driver API's reference manual.
 * Calls may come from several threads; one lock makes them one after another.
 */
#pragma once

#include <pthread.h>

#include "emu/machine/machine.h"
#include "runtime/driver/cuda_abi.h"

enum { /* of cuda.h, beside those the library uses */
       ERROR_INVALID_VALUE = 1,
       ERROR_INVALID_HANDLE = 400,
       ERROR_NOT_FOUND = 500,
       ERROR_LAUNCH_FAILED = 719,
       ERROR_NOT_SUPPORTED = 801,
       ERROR_INVALID_CLUSTER_SIZE = 912,
};

extern pthread_mutex_t emu_driver_lock;

/* ---- the device (device.c) ------------------------------------------------------------------- */

enum { MAX_DEVICES = 8 };

/* A number that the environment sets. */
struct emu_variable {
    const char *name;
    int max; /* legal: 1 to this, or unset */
};
/* The first variable whose text is not a legal number, or NULL. */
const struct emu_variable *emu_bad_variable(void);
int emu_device_count(void);
/* Sets defaults for settings that are 0. */
void emu_default_settings(void);

/* ---- contexts (context.c) -------------------------------------------------------------------- */

struct CUctx_st {
    CUdevice device;
};

/* The calling thread's, or NULL. */
CUcontext emu_context_current(void);
/* The device of the calling thread's context; without one, device 0. */
CUdevice emu_device_current(void);

/* ---- streams (stream.c) ---------------------------------------------------------------------- */

/* The stream of a handle in the current context; NULL: it belongs to another context or does not
 * exist. */
const void *emu_stream_find(CUstream stream);
/* The same for an existing stream of any context. `device`: the device of a predefined stream, such
 * as CU_STREAM_LEGACY. */
const void *emu_stream_of(CUstream stream, CUdevice device);

/* ---- modules (module.c) ---------------------------------------------------------------------- */

struct CUmod_st { /* a function handle is its module's */
    CUcontext context;
    void *library;
    int memory;          /* the memory file that holds the object */
    unsigned char *lazy; /* image that is compiled at the first launch; NULL: none (any more) */
    struct kernel kernel;
    const char *name;
    unsigned cluster[3];     /* from __cluster_dims__; 0: not given */
    unsigned dynamic_shared; /* bytes a launch may ask for */
};

/* Before a launch: compiles and loads a kernel whose image is lazy. The caller holds emu_driver_lock. */
CUresult emu_module_complete(struct CUmod_st *module);

/* ---- errors (error.c) ------------------------------------------------------------------------ */

/* The error of the last launch if it was refused with a report, else CUDA_SUCCESS. */
void emu_note_refusal(CUresult result);

/* Notes why a module cannot be loaded, for cuGetErrorString(CUDA_ERROR_INVALID_IMAGE). */
__attribute__((format(printf, 1, 2))) void emu_note_image(const char *format, ...);
