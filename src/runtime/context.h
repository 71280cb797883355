/* The context's members, for src/runtime only. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "codegen/arch.h"
#include "runtime/cache/cache.h"
#include "runtime/compiler/nvrtc.h"
#include "runtime/driver/driver.h"
#include "runtime/flight.h"
#include "runtime/log.h"
#include "runtime/strings.h"
#include "runtime/tuning/tuning.h"
#include "smelt/context.h"

struct smelt__template_table;

/* Options and environment, resolved. */
struct smelt__settings {
    smelt_context_kind kind;
    int device;    /* with SMELT_CONTEXT_DEVICE */
    char arch[16]; /* compile-only */
    char nvrtc_path[SMELT__PATH];
    const char *nvrtc_debug;            /* an additional NVRTC option; NULL: none */
    char templates_folder[SMELT__PATH]; /* "": the library's own templates */
    char cache_folder[SMELT__PATH];
    char cache_readonly[SMELT__PATH];
    struct smelt__cache_settings cache;     /* its strings point to the two members above */
    char tuning_path[SMELT__PATH];          /* "": beside the cache's entries */
    char tuning_device[SMELT__TUNING_TEXT]; /* compile-only */
    int tuning_disable;
    int offline; /* compile nothing */
    struct smelt__log log;
};

/* `options` may be NULL. Errors: INVALID_ARGUMENT naming the option or variable. */
smelt_status smelt__settings_resolve(struct smelt__settings *settings,
                                     const smelt_context_options *options);

/* The compiler, searched at the first kernel and opened at the first miss. */
struct smelt__compiler {
    pthread_mutex_t mutex; /* guards the other members until `searched` is set */
    int searched;
    smelt_status status; /* of the search, */
    char problem[2048];  /* and its message */
    struct smelt__nvrtc_file file;
};

/* The first member of every loaded kernel (kernel.h): what is unloaded with the context. */
struct smelt__loaded {
    CUmodule module;
};

struct smelt_context {
    struct smelt__settings settings;
    unsigned process; /* the process that made it (process.h) */
    const struct smelt__arch *arch;
    const struct smelt__driver *driver; /* NULL: compile-only */
    CUcontext cuda;
    unsigned long long cuda_id; /* of `cuda`: addresses are reused, ids are not */
    CUdevice device;
    int retained;                            /* the primary context must be released */
    struct smelt__template_table *templates; /* from SMELT_TEMPLATES; NULL: the library's own */
    struct smelt__cache *cache;
    struct smelt__tuning *tuning;
    char device_name[SMELT__TUNING_TEXT]; /* selects tuning entries; "": none */
    struct smelt__compiler compiler;
    struct smelt__flights compiling; /* by cache key: struct outcome of kernel.c */
    struct smelt__flights kernels;   /* by spec: struct smelt__kernel, kept for later calls */
    struct smelt__strings *strings;  /* referenced by infos and entries */
    atomic_ullong compiled, loaded;
};

/* OK, or NO_DEVICE with a message for a compile-only context. */
smelt_status smelt__context_need_device(const smelt_context *context);

/* INVALID_ARGUMENT when the context was made by this process's parent before a fork. */
smelt_status smelt__context_check_process(const smelt_context *context);

/* Makes the context's CUDA context current; *pushed tells smelt__context_leave whether to undo
 * that. Errors: DRIVER, also when the CUDA context was destroyed in the meantime; INVALID_ARGUMENT
 * in a forked child. */
smelt_status smelt__context_enter(const smelt_context *context, int *pushed);
void smelt__context_leave(const smelt_context *context, int pushed);

/* Whether the CUDA context that this context was made with still exists. */
int smelt__context_alive(const smelt_context *context);

/* The NVRTC of this context, valid as long as the context. The first call searches for it; later
 * calls search again if that search ran out of descriptors or memory. NULL when none was found; the
 * second function then gives status and message. Thread-safe. */
const struct smelt__nvrtc_file *smelt__context_compiler(smelt_context *context);
smelt_status smelt__context_compiler_problem(smelt_context *context);
/* The kind of this context's kernels: its driver's; without a driver, its compiler's; without
 * either, cubins. */
enum smelt__output smelt__context_output(smelt_context *context);
