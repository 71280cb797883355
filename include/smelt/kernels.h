/*
 * smelt: specs, plans, sources and compiled kernels, for tools and cache warmers. A trainer needs
 * only context.h and an operator's header.
 *
 * A spec's text is `family:key=value,...`: an operator ("sparse_attn:heads=64,dqk=576,dv=512,
 * topk=2048") or one of the kernels it expands to ("sparse_attn_fwd:..."). The first half of this
 * header uses no device, compiler or file.
 */
#ifndef SMELT_KERNELS_H
#define SMELT_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "smelt/context.h"
#include "smelt/status.h"
#include "smelt/struct.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The passes of an operator, a set. Each pass has its own kernels, errors and workspace. */
enum smelt_pass { SMELT_PASS_FORWARD = 1, SMELT_PASS_BACKWARD = 2 };

/* ---- specs: pure, any thread ----------------------------------------------------------------- */

/* Called once per item of a list; `text` is valid during the call. A result other than 0 stops the
 * enumeration, which then returns SMELT_ERROR_CANCELLED. */
typedef int (*smelt_text_function)(void *user, const char *text);

/* *canonical: the spec's canonical text (without defaults, keys in declared order); freed by
 * smelt_free. Errors: INVALID_SPEC with the key and its legal values, OUT_OF_MEMORY. */
SMELT_CALL smelt_status smelt_spec_canonical(const char *spec, char **canonical);

/* The value of one of the family's own keys: an integer; for a key with named values the index of the
 * name, as messages list them, from 0; for a list its length; INT64_MIN for `auto`.
 * Errors: INVALID_SPEC, INVALID_ARGUMENT for a key that the family does not have. */
SMELT_CALL smelt_status smelt_spec_get(const char *spec, const char *key, int64_t *value);

/* Calls `each` with the kernels that an operator's passes launch, pass by pass, in the order of launch. (A
 * call omits kernels that it does not need; a call that is divided into parts launches some kernels once
 * for each part.) A kernel expands to itself. `arch`: only those launched on this architecture. NULL: on
 * the context's; without a context, the kernels of all architectures. On the context's own architecture
 * its device's tuning entries apply, since a kernel's variant can decide which others are launched.
 * Without a context (NULL) the function is pure. Errors: INVALID_ARGUMENT, INVALID_SPEC (also for an
 * unknown architecture), UNSUPPORTED (a pass that the operator lacks, a kernel without a plan), CANCELLED,
 * OUT_OF_MEMORY. */
SMELT_CALL smelt_status smelt_spec_expand(const smelt_context *context, const char *spec,
                                          const char *arch, smelt_text_function each, void *user);

/* The operators that a model needs on one of `tp` tensor-parallel ranks, for `passes` (of enum
 * smelt_pass; 0: all passes of each operator, as training needs). Errors: INVALID_SPEC for an
 * unknown preset or a tp that is below 1 or does not divide the model's heads; INVALID_ARGUMENT,
 * CANCELLED. */
SMELT_CALL smelt_status smelt_preset_expand(const char *preset, int tp, unsigned passes,
                                            smelt_text_function each, void *user);

/* Kinds of names that smelt_list has. */
enum smelt_list_kind {
    SMELT_LIST_PRESETS = 0,
    SMELT_LIST_FAMILIES = 1,
    SMELT_LIST_ARCHS = 2,
    SMELT_LIST_GPUS = 3 /* "h100 sm_90a": a GPU and the architecture of its kernels */
};

/* The names of a kind. Wherever a function takes an architecture, it takes a GPU's name as well.
 * Errors: INVALID_ARGUMENT, CANCELLED. */
SMELT_CALL smelt_status smelt_list(enum smelt_list_kind kind, smelt_text_function each, void *user);

/* A family's properties. Strings are constants of the library. */
typedef struct smelt_family_info {
    size_t size;
    const char *summary; /* one line on what it computes */
    int is_operator;     /* 0: a kernel */
    int keys;            /* number of keys */
    const char *example; /* an operator's spec, "sparse_attn:heads=64,..."; of a kernel "" */
} smelt_family_info;

#define SMELT_FAMILY_INFO_INIT SMELT_INIT(smelt_family_info)

/* Fills *info, whose `size` the caller has set. `family`: a family's name or a spec. Errors: INVALID_SPEC
 * (no such family, or an invalid spec), INVALID_ARGUMENT. */
SMELT_CALL smelt_status smelt_family_get_info(const char *family, smelt_family_info *info);

/* One key of a family. Strings are constants of the library. */
typedef struct smelt_family_key {
    size_t size;
    const char *name;      /* "heads" */
    const char *legal;     /* "1..128 and multiples of 64 above", "auto, mma" */
    const char *meaning;   /* one line */
    int required;          /* has no default */
    int knob;              /* overrides the plan; does not change what is computed */
    const char *kernel;    /* for an operator's knob whose legal values differ between kernels: this
                              row's kernel, "fwd"; else "" */
    const char *variants;  /* the kernel's variants that have the knob, "sm90"; "": all */
    const char *only_with; /* another key's values with which the knob exists,
                              "orientation=keys"; "": all */
} smelt_family_key;

#define SMELT_FAMILY_KEY_INIT SMELT_INIT(smelt_family_key)

/* Fills *key, whose `size` the caller has set, with key number `index`, in canonical order, of a family
 * (its name or a spec). Errors: as above, and INVALID_ARGUMENT for an index past the last key. */
SMELT_CALL smelt_status smelt_family_get_key(const char *family, int index, smelt_family_key *key);

/* ---- plan and source: any thread ------------------------------------------------------------- */

/* The plan of a kernel, as aligned text or (json != 0) as one JSON object, and its complete CUDA
 * source, the same bytes each time. With a context, `arch` NULL is the context's architecture, on which
 * its device's tuning entry (tuning.h) applies; the source is made from the context's templates. Without
 * a context (NULL) the functions are pure, apply no tuning entry, and `arch` is required. Freed by
 * smelt_free. Errors: INVALID_ARGUMENT, INVALID_SPEC (also for an operator: expand it first), UNSUPPORTED
 * with the reason, OUT_OF_MEMORY. */
SMELT_CALL smelt_status smelt_kernel_plan(const smelt_context *context, const char *kernel,
                                          const char *arch, int json, char **text);
SMELT_CALL smelt_status smelt_kernel_source(const smelt_context *context, const char *kernel,
                                            const char *arch, char **source);

/* ---- compiled kernels ------------------------------------------------------------------------ */

/* Where a kernel came from. */
typedef enum smelt_kernel_state {
    SMELT_KERNEL_FAILED = 0,   /* it has an error */
    SMELT_KERNEL_CACHED = 1,   /* read from the disk cache */
    SMELT_KERNEL_COMPILED = 2, /* compiled by this call */
    SMELT_KERNEL_AWAITED = 3   /* for progress functions only: another process is compiling it */
} smelt_kernel_state;

/* Figures of one compiled kernel. The strings live as long as the context; those passed to a
 * callback live during the call. A context keeps at most 1 MiB of messages and invalid specs;
 * further ones are replaced by a constant text. */
typedef struct smelt_kernel_info {
    size_t size;
    const char *spec;   /* canonical kernel spec; the request's text if that is invalid */
    const char *arch;   /* "sm_90a" */
    const char *kernel; /* the function's name in the module */
    const char *key;    /* cache key, 32 hex digits; "" where a failure came before it was known */
    const char *error;  /* of a failed kernel the message; of a compiled one that could not be
                           stored in the cache (kept 0, status OK) the reason; else "" */
    smelt_kernel_state state; /* where it came from */
    smelt_status status;      /* why it failed, else OK */
    double seconds;           /* of this call: compiling, or reading the cache */
    double compile_seconds;   /* of its compilation, whenever that was */
    /* Of a kernel compiled now: the assembler's part of compile_seconds by its own report (the rest
     * is NVRTC's front end and optimiser); 0: no report. */
    double assembler_seconds;
    int registers;            /* per thread */
    int spill_bytes;          /* stores plus loads, from the assembler's report */
    int static_shared_bytes;  /* shared memory that the code declares */
    int dynamic_shared_bytes; /* the plan's */
    int threads;              /* per block */
    int serialised; /* of a kernel compiled now: the assembler's warning (C7510 to C7518) that it
                       serialises wgmma, which is slow; 0: none */
    size_t cubin_bytes; /* of its code */
    int kept;           /* 1: stored in the cache */
    int emulated;       /* 1: compiled by the emulator (SMELT_NVRTC), and runs only there */
    int nvrtc_major, nvrtc_minor; /* smelt_cache_walk: the compiler; other calls: 0 */
} smelt_kernel_info;

#define SMELT_KERNEL_INFO_INIT SMELT_INIT(smelt_kernel_info)

/* A kernel to prepare. */
typedef struct smelt_kernel_request {
    size_t size;
    const char *spec; /* a kernel (expand operators first) */
    const char *arch; /* NULL: the context's */
} smelt_kernel_request;

#define SMELT_KERNEL_REQUEST_INIT SMELT_INIT(smelt_kernel_request)

/* Progress callback, called after each kernel from the worker thread that finished it, one call at
 * a time; `info` is valid during the call. While all remaining kernels are being compiled by other
 * processes it is also called about ten times a second with one of them, of which only state
 * (AWAITED), spec and arch are set. A result other than 0 stops: kernels not started stay undone.
 */
typedef int (*smelt_progress_function)(void *user, size_t done, size_t total,
                                       const smelt_kernel_info *info);

/*
 * Compiles (or finds in the cache) `count` kernels with `jobs` threads (0: one per processor) and
 * stores them in the cache. Loads nothing into a device: any context will do. Processes that
 * prepare the same kernels share the work: a kernel that another process is compiling is deferred,
 * and compiled here only after the cache's lock time-out. Each process uses a random order, so that
 * nodes without common locks share most of the work, too.
 *
 * requests[count] and infos[count], which may be NULL, are arrays of the caller's structs; the
 * first element's `size` holds for all, and no byte is written beyond count times that. A failing
 * kernel does not stop the others: the call then returns the status of the first failure. The info
 * of a kernel that was not started is FAILED with status CANCELLED. In an offline context that of a
 * kernel that is not cached is FAILED with status NO_COMPILER, and has the key.
 *
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY (before anything is started), CANCELLED, a kernel's own.
 */
SMELT_CALL smelt_status smelt_kernels_prepare(smelt_context *context,
                                              const smelt_kernel_request *requests, size_t count,
                                              int jobs, smelt_progress_function progress,
                                              void *user, smelt_kernel_info *infos);

/* The cubin of one kernel, `*bytes` long, from the cache, or compiled and stored there. arch NULL:
 * the context's. *cubin is freed by smelt_free. Any context, any thread. Errors: INVALID_ARGUMENT,
 * INVALID_SPEC, UNSUPPORTED, NO_COMPILER, COMPILE, OUT_OF_MEMORY. */
SMELT_CALL smelt_status smelt_kernel_cubin(smelt_context *context, const char *kernel,
                                           const char *arch, void **cubin, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
