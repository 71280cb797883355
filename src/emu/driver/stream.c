/* The driver's streams and events, whose work is always complete. */
#include <stdlib.h>
#include <time.h>

#include "emu/driver/driver.h"
#include "emu/memory/pdl.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

struct CUstream_st {
    CUcontext context;
    bool blocking; /* synchronises with the default stream */
    struct CUstream_st *next;
};

struct CUevent_st {
    CUcontext context;
    const void *stream; /* that recorded it; NULL: none */
    struct timespec time;
    struct CUevent_st *next;
};

/* Predefined handles of cuda.h: CU_STREAM_LEGACY (also NULL) and CU_STREAM_PER_THREAD, in the
 * current context. */
enum { LEGACY = 1, PER_THREAD = 2 };
static char named[MAX_DEVICES][PER_THREAD + 1];

static struct CUstream_st *streams; /* all existing streams */
static struct CUevent_st *events;   /* and events */

const void *emu_stream_of(CUstream stream, CUdevice device) {
    const uintptr_t handle = (uintptr_t)(void *)stream;
    if (handle <= PER_THREAD)
        return &named[device][handle ? handle : LEGACY];
    return stream->blocking ? &named[stream->context->device][LEGACY] : (const void *)stream;
}

const void *emu_stream_find(CUstream stream) {
    const CUcontext context = emu_context_current();
    bool found = (uintptr_t)(void *)stream <= PER_THREAD;
    pthread_mutex_lock(&emu_driver_lock);
    for (const struct CUstream_st *one = streams; one && !found; one = one->next)
        found = one == stream && one->context == context;
    pthread_mutex_unlock(&emu_driver_lock);
    return found && context ? emu_stream_of(stream, context->device) : NULL;
}

EMU_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    if (!emu_context_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    struct CUstream_st *made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = emu_context_current();
    made->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    pthread_mutex_lock(&emu_driver_lock);
    made->next = streams;
    streams = made;
    pthread_mutex_unlock(&emu_driver_lock);
    *stream = made;
    return CUDA_SUCCESS;
}

static CUresult wait_for(const void *stream) {
    if (!stream)
        return ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&emu_driver_lock);
    emu_pdl_synchronize(stream);
    pthread_mutex_unlock(&emu_driver_lock);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    return wait_for(emu_stream_find(stream));
}

EMU_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    CUresult result = ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&emu_driver_lock);
    for (struct CUstream_st **link = &streams; *link; link = &(*link)->next)
        if (*link == stream) {
            *link = stream->next;
            free(stream);
            result = CUDA_SUCCESS;
            break;
        }
    pthread_mutex_unlock(&emu_driver_lock);
    return result;
}

EMU_EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    (void)flags;
    if (!emu_context_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    struct CUevent_st *made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = emu_context_current();
    pthread_mutex_lock(&emu_driver_lock);
    made->next = events;
    events = made;
    pthread_mutex_unlock(&emu_driver_lock);
    *event = made;
    return CUDA_SUCCESS;
}

/* The pointer in the list that points to an event; NULL: no such event exists. The caller holds
 * emu_driver_lock. */
static struct CUevent_st **link_to(CUevent event) {
    struct CUevent_st **link = &events;
    while (*link && *link != event)
        link = &(*link)->next;
    return *link ? link : NULL;
}

EMU_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    const void *found = emu_stream_find(stream);
    pthread_mutex_lock(&emu_driver_lock);
    const bool known = found && link_to(event) && event->context == emu_context_current();
    if (known) {
        event->stream = found;
        clock_gettime(CLOCK_MONOTONIC, &event->time);
    }
    pthread_mutex_unlock(&emu_driver_lock);
    return known ? CUDA_SUCCESS : ERROR_INVALID_HANDLE;
}

/* Also waits for work launched after the event. */
EMU_EXPORT CUresult cuEventSynchronize(CUevent event) {
    pthread_mutex_lock(&emu_driver_lock);
    const bool known = link_to(event);
    if (known && event->stream)
        emu_pdl_synchronize(event->stream);
    pthread_mutex_unlock(&emu_driver_lock);
    return known ? CUDA_SUCCESS : ERROR_INVALID_HANDLE;
}

EMU_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
    pthread_mutex_lock(&emu_driver_lock);
    const bool recorded = link_to(begin) && link_to(end) && begin->stream && end->stream &&
                          begin->context == end->context;
    if (recorded) {
        const struct timespec *a = &begin->time, *b = &end->time;
        *milliseconds = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 +
                                (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    }
    pthread_mutex_unlock(&emu_driver_lock);
    return recorded ? CUDA_SUCCESS : ERROR_INVALID_HANDLE;
}

EMU_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
    pthread_mutex_lock(&emu_driver_lock);
    struct CUevent_st **link = link_to(event);
    if (link) {
        *link = event->next;
        free(event);
    }
    pthread_mutex_unlock(&emu_driver_lock);
    return link ? CUDA_SUCCESS : ERROR_INVALID_HANDLE;
}
