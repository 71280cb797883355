/*
 * smelt: the context. It ties a CUDA context (or, for compilation alone, an architecture) to a
 * compiler, a disk cache and the table of loaded kernels.
 */
#ifndef SMELT_CONTEXT_H
#define SMELT_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#include "smelt/status.h"
#include "smelt/struct.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Opaque. Thread-safe: any number of threads may use one context, and operators made from it, at
 * the same time; only its destruction must be alone. Contexts of one process on one cache folder
 * share their work as processes do. Threads that the library starts itself, to compile kernels side
 * by side, end before the call that needs them returns, and take none of the program's signals.
 *
 * Forks. A context, and the operators made from it, belong to the process that made them. In a
 * forked child what would plan, compile, load, launch, tune or touch the device is refused
 * (INVALID_ARGUMENT); looking at the context, its counters and its cache is fine; destroying it
 * sets the pointer to NULL and leaves the rest alone. The child may make contexts of its own: to
 * compile, always; on a device, when the driver was not used before the fork (it says so itself
 * otherwise: DRIVER). While other threads are inside NVRTC, a child of that moment that is to
 * compile must exec first: NVRTC's own locks are not ours to hand over. Locks on the cache stay
 * with the parent.
 *
 * Unloading. dlclose of this library is safe when its contexts and operators are destroyed and no
 * thread is inside. The driver and NVRTC, once opened, stay.
 */
typedef struct smelt_context smelt_context;

typedef enum smelt_log_level {
    SMELT_LOG_DEFAULT = 0, /* in options: SMELT_LOG_WARNING; no line has it */
    SMELT_LOG_ERROR = 1,
    SMELT_LOG_WARNING = 2,
    SMELT_LOG_INFO = 3, /* what was found, compiled, loaded */
    SMELT_LOG_DEBUG = 4 /* cache lookups, library searches */
} smelt_log_level;

/* Called with one line without its newline, from any thread that works for the context, possibly
 * several at once. Must not call back into the same context. */
typedef void (*smelt_log_function)(void *user, smelt_log_level level, const char *message);

typedef enum smelt_cache_lock {
    SMELT_CACHE_LOCK_DEFAULT = 0, /* the environment's, else local */
    SMELT_CACHE_LOCK_LOCAL = 1,   /* one compile per node */
    SMELT_CACHE_LOCK_SHARED = 2,  /* one compile per cache folder, on a file system that locks */
    SMELT_CACHE_LOCK_OFF = 3      /* every process compiles for itself */
} smelt_cache_lock;

/* Which CUDA context a smelt context works in. */
typedef enum smelt_context_kind {
    SMELT_CONTEXT_CURRENT = 0,     /* the one current in the thread that makes the smelt context */
    SMELT_CONTEXT_DEVICE = 1,      /* the primary one of the device that `device` numbers, retained
                                      until the smelt context is destroyed */
    SMELT_CONTEXT_COMPILE_ONLY = 2 /* none, and no device: `arch` names the architecture */
} smelt_context_kind;

/*
 * Options. Zero or NULL in a field means: the environment variable named beside it, else the
 * default. One variable works the other way round: SMELT_LOG wins over log_level, so that one can
 * look into a program that sets its own. Environment variables are read once, when the context is
 * made, and not at all in set-user-id programs.
 *
 * Two variables are for work on kernels. SMELT_TEMPLATES names a folder whose templates (NAME.cu,
 * common/NAME.cuh, ptx/NAME.cuh, as in the source tree) replace the library's own, so that an edit
 * needs no build. SMELT_NVRTC_DEBUG=lines compiles kernels with line numbers, =full for a debugger.
 * For tests, SMELT_CUDA names the driver library to open in place of libcuda.so.1; it is read when
 * the process first uses the driver.
 */
typedef struct smelt_context_options {
    size_t size;             /* set by SMELT_CONTEXT_OPTIONS_INIT, see struct.h */
    smelt_context_kind kind; /* whose CUDA context */
    int device;              /* its number, with SMELT_CONTEXT_DEVICE; 0 with the others */
    const char *arch;       /* with SMELT_CONTEXT_COMPILE_ONLY: "sm_80", "sm_90a", ...; else NULL */
    const char *nvrtc_path; /* SMELT_NVRTC: libnvrtc to use, nothing else is searched */
    const char *cache_dir;  /* SMELT_CACHE_DIR, else $XDG_CACHE_HOME/smelt, ~/.cache/smelt */
    const char *cache_readonly_dir; /* SMELT_CACHE_READONLY_DIR: looked at first, never written; a
                                       folder, or a file of smelt_cache_export */
    uint64_t cache_cap_bytes;       /* SMELT_CACHE_CAP (bytes, or with K, M, G); default 1 GiB */
    smelt_cache_lock cache_lock;    /* SMELT_CACHE_LOCK: local, shared, off */
    int cache_lock_timeout_ms;      /* SMELT_CACHE_LOCK_TIMEOUT (seconds); default 60 s */
    int cache_disable;              /* SMELT_CACHE_DISABLE=1: neither read nor written */
    int cache_recompile;            /* SMELT_CACHE_RECOMPILE=1: written, not read */
    smelt_log_function log;         /* NULL: no log */
    void *log_user;                 /* handed to `log` */
    smelt_log_level log_level;      /* unless SMELT_LOG says error, warning, info or debug */
    int tuning_disable;             /* SMELT_TUNING_DISABLE=1: plans are the rule's */
    const char *tuning; /* SMELT_TUNING: the tuning file, see tuning.h; default: in the cache */
    const char *tuning_device; /* compile-only: whose tuning entries are used, "NVIDIA H200"; NULL:
                                  none. A context with a device uses its own */
} smelt_context_options;

#define SMELT_CONTEXT_OPTIONS_INIT SMELT_INIT(smelt_context_options)

/*
 * Makes a context. `options` may be NULL for the defaults. The strings in it are copied.
 *
 * With a device: opens the driver and ties the context to a CUDA context. NVRTC is not opened: that
 * happens at the first kernel the cache does not hold. A cache folder that cannot be used costs one
 * warning in the log, not a failure.
 *
 * Errors: INVALID_ARGUMENT (an option; a device number that the driver does not know), INVALID_SPEC
 * (arch), NO_DRIVER, NO_DEVICE (no current CUDA context: name a device), DRIVER, OUT_OF_MEMORY.
 * *context is NULL on failure.
 */
SMELT_API smelt_status smelt_context_create(smelt_context **context,
                                            const smelt_context_options *options);

/*
 * Unloads the kernels, releases what create retained and sets *context to NULL; *context may be
 * NULL. Operators made from the context must be destroyed first and their launches be complete. A
 * CUDA context that was destroyed in the meantime is noticed and left alone.
 */
SMELT_API void smelt_context_destroy(smelt_context **context);

/* The architecture kernels are compiled for, "sm_90a" on an H200. Lives as long as the context. */
SMELT_API const char *smelt_context_arch(const smelt_context *context);

/* What the context did so far. Counters only grow; each is read atomically. */
typedef struct smelt_context_counters {
    size_t size;
    uint64_t cache_hits;   /* kernels read from the disk cache */
    uint64_t cache_misses; /* lookups that found no usable entry */
    uint64_t cache_errors; /* entries or folders that could not be used; work went on */
    uint64_t compiled;     /* kernels compiled */
    uint64_t loaded;       /* kernels handed to the driver */
} smelt_context_counters;

#define SMELT_CONTEXT_COUNTERS_INIT SMELT_INIT(smelt_context_counters)

/* Fills *counters, whose `size` the caller has set. Errors: INVALID_ARGUMENT. */
SMELT_API smelt_status smelt_context_get_counters(const smelt_context *context,
                                                  smelt_context_counters *counters);

#ifdef __cplusplus
}
#endif

#endif
