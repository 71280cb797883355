/*
 * smelt: the context. It connects a CUDA context (or, for compilation only, an architecture) with a
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
 * Opaque. Thread-safe: any number of threads may use a context and its operators at the same time;
 * only destroying it must not overlap with other calls. Contexts of one process that share a cache
 * folder share compiled kernels like processes do. Threads that the library starts to compile in
 * parallel end before the call returns and receive none of the program's signals.
 *
 * Forks. A context and its operators belong to the process that made them. In a forked child,
 * planning, compiling, loading, launching, tuning and device calls fail (INVALID_ARGUMENT); reading
 * the context, its counters and its cache works; destroying it only sets the pointer to NULL. The
 * child may make contexts of its own: compile-only ones always, device ones if the driver was not
 * used before the fork (otherwise the driver fails: DRIVER). A child forked while other threads are
 * inside NVRTC must exec before it compiles, because it inherits NVRTC's locks. Cache locks stay
 * with the parent.
 *
 * Unloading. dlclose of this library is safe once its contexts and operators are destroyed and no
 * thread is inside. The driver and NVRTC, once opened, stay loaded.
 */
typedef struct smelt_context smelt_context;

/* The detail of the log, and the severity of a message. */
typedef enum smelt_log_level {
    SMELT_LOG_DEFAULT = 0, /* in options: SMELT_LOG_WARNING; never passed to `log` */
    SMELT_LOG_ERROR = 1,
    SMELT_LOG_WARNING = 2,
    SMELT_LOG_INFO = 3, /* libraries found; kernels loaded; compilations, at start and end */
    SMELT_LOG_DEBUG = 4 /* cache lookups, library searches */
} smelt_log_level;

/* Called with one line without its newline, from any thread that works for the context, possibly
 * concurrently. Must not call back into the same context. */
typedef void (*smelt_log_function)(void *user, smelt_log_level level, const char *message);

/* Which processes wait for each other's compilation of the same kernel. */
typedef enum smelt_cache_lock {
    SMELT_CACHE_LOCK_DEFAULT = 0, /* the environment's, else local */
    SMELT_CACHE_LOCK_LOCAL = 1,   /* one compile per node */
    SMELT_CACHE_LOCK_SHARED = 2,  /* one compile per cache folder, if its file system has locks */
    SMELT_CACHE_LOCK_OFF = 3      /* no locks: processes may compile the same kernel */
} smelt_cache_lock;

/* The CUDA context that a smelt context uses. */
typedef enum smelt_context_kind {
    SMELT_CONTEXT_CURRENT = 0,     /* the calling thread's current one */
    SMELT_CONTEXT_DEVICE = 1,      /* the primary one of device number `device`, retained until the
                                    * smelt context is destroyed */
    SMELT_CONTEXT_COMPILE_ONLY = 2 /* none and no device; `arch` is required */
} smelt_context_kind;

/*
 * Options. Zero or NULL in a field means the environment variable named beside it, else the
 * default. Exception: SMELT_LOG overrides log_level, so that a user can debug a program that sets
 * its own. Environment variables are read once, when the context is created, and never in
 * set-user-id programs.
 *
 * Two variables are for work on kernels. SMELT_TEMPLATES names a folder whose templates (NAME.cu,
 * common/NAME.cuh, ptx/NAME.cuh, as in the source tree) replace the library's own, so that an edit
 * needs no build. SMELT_NVRTC_DEBUG=lines compiles kernels with line numbers, =full for a debugger.
 * For tests, SMELT_CUDA names the driver library to open instead of libcuda.so.1; it is read when
 * the process first uses the driver.
 */
typedef struct smelt_context_options {
    size_t size;             /* set by SMELT_CONTEXT_OPTIONS_INIT, see struct.h */
    smelt_context_kind kind; /* which CUDA context */
    int device;              /* its number with SMELT_CONTEXT_DEVICE, else 0 */
    const char *arch; /* with SMELT_CONTEXT_COMPILE_ONLY: "sm_90a", or a GPU, "h100"; else NULL */
    const char *nvrtc_path; /* SMELT_NVRTC: the libnvrtc to use instead of searching */
    const char *cache_dir;  /* SMELT_CACHE_DIR, else $XDG_CACHE_HOME/smelt, ~/.cache/smelt */
    const char *cache_readonly_dir; /* SMELT_CACHE_READONLY_DIR: searched first, never written; a
                                     * folder, or a file of smelt_cache_export */
    uint64_t cache_cap_bytes;       /* SMELT_CACHE_CAP (bytes, or with K, M, G); default 1 GiB */
    smelt_cache_lock cache_lock;    /* SMELT_CACHE_LOCK: local, shared, off */
    int cache_lock_timeout_ms;      /* SMELT_CACHE_LOCK_TIMEOUT (seconds); default 60 s */
    int cache_disable;              /* SMELT_CACHE_DISABLE=1: neither read nor written */
    int cache_recompile;            /* SMELT_CACHE_RECOMPILE=1: written, not read */
    smelt_log_function log;         /* NULL: no log, or standard error if SMELT_LOG is set */
    void *log_user;                 /* passed to `log` */
    smelt_log_level log_level;      /* SMELT_LOG: error, warning, info or debug */
    int tuning_disable;             /* SMELT_TUNING_DISABLE=1: ignore tuning entries */
    const char *tuning; /* SMELT_TUNING: the tuning file, see tuning.h; default: in the cache */
    const char *tuning_device; /* compile-only: device whose tuning entries to use, "NVIDIA H200";
                                * NULL: none. Other contexts use their device's */
    int offline; /* SMELT_OFFLINE=1: nothing is compiled; a kernel that is not cached is NO_COMPILER */
    int reserved; /* 0 */
} smelt_context_options;

#define SMELT_CONTEXT_OPTIONS_INIT SMELT_INIT(smelt_context_options)

/*
 * Creates a context. `options` may be NULL for the defaults; its strings are copied.
 *
 * With a device, it opens the driver and attaches to a CUDA context. NVRTC is opened only for the
 * first kernel that is not cached. A cache folder that cannot be used costs one warning in the log
 * and is no failure.
 *
 * Errors: INVALID_ARGUMENT (an option; a device number that the driver does not know), INVALID_SPEC
 * (arch), NO_DRIVER, NO_DEVICE (no current CUDA context: name a device), DRIVER, OUT_OF_MEMORY.
 * *context is NULL on failure.
 */
SMELT_CALL smelt_status smelt_context_create(smelt_context **context,
                                             const smelt_context_options *options);

/*
 * Unloads the kernels, releases the primary CUDA context if it was retained, and sets *context to
 * NULL, which it may be. The context's operators must be destroyed first and their launches be
 * complete. A CUDA context that was destroyed in the meantime is detected and left alone.
 */
SMELT_API void smelt_context_destroy(smelt_context **context);

/* The architecture of the context's kernels, "sm_90a" on an H200. Lives as long as the context. */
SMELT_API const char *smelt_context_arch(const smelt_context *context);

/* What a context uses for tuning, and its counts so far, which only grow; each is read atomically.
 * The strings live as long as the context. */
typedef struct smelt_context_info {
    size_t size;
    const char *tuning_device; /* the device whose tuning entries it uses: its own, or the option
                                * `tuning_device`; "": none */
    const char *tuning_path;   /* the tuning file that it writes; "": none (no cache folder and no
                                * named file, or tuning_disable) */
    uint64_t cache_hits;       /* kernels read from the disk cache */
    uint64_t cache_misses;     /* lookups that found no usable entry */
    uint64_t cache_errors;     /* unusable entries or folders; not failures */
    uint64_t compiled;         /* kernels compiled */
    uint64_t loaded;           /* kernels loaded by the driver */
} smelt_context_info;

#define SMELT_CONTEXT_INFO_INIT SMELT_INIT(smelt_context_info)

/* Fills *info, whose `size` the caller has set. Errors: INVALID_ARGUMENT. */
SMELT_CALL smelt_status smelt_context_get_info(const smelt_context *context,
                                               smelt_context_info *info);

#ifdef __cplusplus
}
#endif

#endif
