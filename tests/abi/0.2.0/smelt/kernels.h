/*
 * smelt: specs, plans, sources and compiled kernels, for tools, cache warmers and the curious. A
 * trainer needs only context.h and an operator's header.
 *
 * A spec in text form is `family:key=value,...`: an operator ("sparse_attn:heads=64,dqk=576,dv=512,
 * topk=2048") or one of the kernels it expands to ("sparse_attn_fwd:..."). Nothing in the first
 * half of this header touches a device, a compiler or a file.
 */
#ifndef SMELT_KERNELS_H
#define SMELT_KERNELS_H

#include <stddef.h>

#include "smelt/context.h"
#include "smelt/status.h"
#include "smelt/struct.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an operator is made for: a set. Each pass has kernels, refusals and workspace of its own. */
enum smelt_pass { SMELT_PASS_FORWARD = 1, SMELT_PASS_BACKWARD = 2 };

/* ---- specs: pure, any thread ----------------------------------------------------------------- */

/* Called once per item of a list; `text` is valid during the call. A value other than 0 ends the
 * enumeration, which then returns SMELT_ERROR_CANCELLED. */
typedef int (*smelt_text_function)(void *user, const char *text);

/* *canonical: the spec's canonical text (defaults left out, keys in declared order); freed by
 * smelt_free. Errors: INVALID_SPEC naming the key and what is legal, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_spec_canonical(const char *spec, char **canonical);

/* 1 when the spec's family is an operator, 0 when it is a kernel. Errors: INVALID_SPEC. */
SMELT_API smelt_status smelt_spec_is_operator(const char *spec, int *is_operator);

/* The kernels an operator needs for its passes, pass after pass, each in launch order; a kernel
 * expands to itself. Errors: INVALID_ARGUMENT, INVALID_SPEC, UNSUPPORTED (a pass the operator has
 * not), CANCELLED, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_spec_expand(const char *spec, smelt_text_function each, void *user);

/* The operators a model needs on one of `tp` tensor-parallel ranks, for `passes` (of enum
 * smelt_pass; 0: all passes each operator has, which training needs). Errors: INVALID_SPEC for an
 * unknown preset, or a tp below 1 or that does not divide the model's heads; INVALID_ARGUMENT,
 * CANCELLED. */
SMELT_API smelt_status smelt_preset_expand(const char *preset, int tp, unsigned passes,
                                           smelt_text_function each, void *user);

/* What there is to choose from: preset names, family names, architecture names. Errors:
 * INVALID_ARGUMENT, CANCELLED. */
SMELT_API smelt_status smelt_list_presets(smelt_text_function each, void *user);
SMELT_API smelt_status smelt_list_families(smelt_text_function each, void *user);
SMELT_API smelt_status smelt_list_archs(smelt_text_function each, void *user);

/* Of a family. Strings are constants of the library. */
typedef struct smelt_family_info {
    size_t size;
    const char *summary; /* one line on what it computes */
    int is_operator;     /* 0: a kernel */
    int keys;            /* how many it has */
} smelt_family_info;

#define SMELT_FAMILY_INFO_INIT SMELT_INIT(smelt_family_info)

/* Fills *info, whose `size` the caller has set. Errors: INVALID_SPEC (no such family),
 * INVALID_ARGUMENT. */
SMELT_API smelt_status smelt_family_get_info(const char *family, smelt_family_info *info);

/* One key of a family. Strings are constants of the library. */
typedef struct smelt_family_key {
    size_t size;
    const char *name;
    const char *legal;   /* "1..128 and multiples of 64 above", "auto, mma" */
    const char *meaning; /* one line */
    int required;        /* has no default */
    int knob;            /* overrides the plan; does not change what is computed */
} smelt_family_key;

#define SMELT_FAMILY_KEY_INIT SMELT_INIT(smelt_family_key)

/* Key number `index` of a family, in canonical order, into *key, whose `size` the caller has set.
 * Errors: INVALID_SPEC (no such family), INVALID_ARGUMENT (also for an index past the last key). */
SMELT_API smelt_status smelt_family_get_key(const char *family, int index, smelt_family_key *key);

/* ---- plan and source: pure, any thread ------------------------------------------------------- */

/* The plan of a kernel on an architecture, as aligned text or (json != 0) as one JSON object.
 * Freed by smelt_free. Errors: INVALID_SPEC (also for an operator: expand it first), UNSUPPORTED
 * with the reason, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_plan_print(const char *kernel, const char *arch, int json,
                                        char **text);

/* The complete CUDA source of a kernel on an architecture. Same spec and architecture, same bytes.
 * Freed by smelt_free. Errors: as smelt_plan_print. */
SMELT_API smelt_status smelt_source_emit(const char *kernel, const char *arch, char **source);

/* ---- compiled kernels ------------------------------------------------------------------------ */

typedef enum smelt_kernel_state {
    SMELT_KERNEL_FAILED = 0,
    SMELT_KERNEL_CACHED = 1,   /* came from the disk cache */
    SMELT_KERNEL_COMPILED = 2, /* was compiled now */
    SMELT_KERNEL_AWAITED = 3   /* to progress functions alone: another process is compiling it */
} smelt_kernel_state;

/* What is known of one compiled kernel. The strings live as long as the context; those of an info
 * that a function of the caller's is given, for that call alone. A context keeps 1 MiB of messages
 * and of specs that are none; beyond that a sentence that says so takes their place. */
typedef struct smelt_kernel_info {
    size_t size;
    const char *spec;   /* canonical kernel spec; of a request that is none, its text */
    const char *arch;   /* "sm_90a" */
    const char *kernel; /* the function's name in the module */
    const char *key;    /* cache key, 32 hex digits */
    const char *error;  /* of a failed one the message; of one that was compiled and is well, but is
                           not in the cache, why not (kept is 0 then, status OK); else "" */
    smelt_kernel_state state;
    smelt_status status;    /* why it failed, else OK */
    double seconds;         /* of the call that made it: compiling, or reading the cache */
    double compile_seconds; /* what its compilation took when it happened */
    /* Of a kernel compiled now: the assembler's part of compile_seconds, as it reports it itself
     * (the rest is NVRTC's front end and optimiser); 0: it reported none. */
    double assembler_seconds;
    int registers;   /* per thread */
    int spill_bytes; /* stores plus loads, from the assembler's report */
    int static_shared_bytes;
    int dynamic_shared_bytes; /* the plan's */
    int threads;              /* per block */
    int serialised; /* of a kernel compiled now: the assembler's warning (C7510 to C7518) that it
                       makes products wait for one another, which is slow; 0: none */
    size_t cubin_bytes;
    int kept;     /* 1: it is in the cache */
    int emulated; /* it runs on the emulator, not on a GPU: that was the compiler (SMELT_NVRTC) */
} smelt_kernel_info;

#define SMELT_KERNEL_INFO_INIT SMELT_INIT(smelt_kernel_info)

typedef struct smelt_kernel_request {
    size_t size;
    const char *spec; /* a kernel (an operator is refused: expand it first) */
    const char *arch; /* NULL: the context's */
} smelt_kernel_request;

#define SMELT_KERNEL_REQUEST_INIT SMELT_INIT(smelt_kernel_request)

/* Progress, called after each kernel, from the worker thread that finished it, one call at a time;
 * `info` is valid during the call. Also called about every tenth of a second while there is nothing
 * to do but wait for what other processes compile: with one of those kernels, of which only state
 * (AWAITED), spec and arch are set. A value other than 0 stops: kernels not begun stay undone. */
typedef int (*smelt_progress_function)(void *user, size_t done, size_t total,
                                       const smelt_kernel_info *info);

/*
 * Compiles (or finds in the cache) `count` kernels with `jobs` threads (0: one per processor);
 * what is compiled goes into the cache. Nothing is loaded into a device: any context will do.
 * Processes that prepare the same kernels share them: a kernel that another one is compiling is
 * left for later, and compiled here only if that takes longer than the cache's lock time-out. Each
 * takes them in a random order, so that nodes which share no locks share most of the work as well.
 *
 * requests[count] and infos[count], which may be NULL, are arrays of the caller's structs: of each
 * the first element's `size` counts for all, and no byte is written beyond count times that. A
 * kernel that fails does not stop the others: the call then returns the first failure's status. An
 * info of one that was not begun is FAILED with the status CANCELLED.
 *
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY (nothing is begun then), CANCELLED, a kernel's own.
 */
SMELT_API smelt_status smelt_kernels_prepare(smelt_context *context,
                                             const smelt_kernel_request *requests, size_t count,
                                             int jobs, smelt_progress_function progress, void *user,
                                             smelt_kernel_info *infos);

/* The plan (text, or one JSON object) and the CUDA source of a kernel as this context makes them:
 * with its device's tuning entry (tuning.h), which smelt_plan_print and smelt_source_emit know
 * nothing of. arch NULL: the context's. Freed by smelt_free. Errors as theirs. */
SMELT_API smelt_status smelt_kernel_plan(const smelt_context *context, const char *kernel,
                                         const char *arch, int json, char **text);
SMELT_API smelt_status smelt_kernel_source(const smelt_context *context, const char *kernel,
                                           const char *arch, char **source);

/* The cubin of one kernel, from the cache or compiled (and then kept there), `*bytes` long, for an
 * architecture (NULL: the context's). *cubin is freed by smelt_free. Any context, any thread.
 * Errors: INVALID_ARGUMENT, INVALID_SPEC, UNSUPPORTED, NO_COMPILER, COMPILE, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_kernel_cubin(smelt_context *context, const char *kernel,
                                          const char *arch, void **cubin, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
