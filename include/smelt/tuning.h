/*
 * smelt: tuning. A rule chooses a kernel's plan. If measurement (`smelt tune`, or a program's own
 * search) found better knobs for a kernel on a device, the tuning file records them, and every plan
 * made through a context uses them: compiling, warming and running agree as long as they use the
 * same file and device. Knobs given in a spec are never overridden.
 *
 * The file is plain text, one line per kernel and device: spec  device  knobs  microseconds. It is
 * the context option `tuning`, else SMELT_TUNING, else the file `tuning` in the cache's folder; the
 * read-only cache's `tuning` supplies entries that it lacks. It is read when a context is created.
 * Lines that cannot be used are ignored, with a warning that names file and line.
 */
#ifndef SMELT_TUNING_H
#define SMELT_TUNING_H

#include <stddef.h>

#include "smelt/context.h"
#include "smelt/kernels.h"
#include "smelt/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The entry of one kernel on one device. Strings of an entry that the library fills live as long as
 * the context; those passed to a callback live during the call. */
typedef struct smelt_tuning_entry {
    size_t size;
    const char *spec;    /* the kernel, canonical and without knobs */
    const char *device;  /* as the driver names it: "NVIDIA H200" */
    const char *knobs;   /* that change the rule's plan */
    double microseconds; /* its time with them, on the problem it was tuned for */
} smelt_tuning_entry;

#define SMELT_TUNING_ENTRY_INIT SMELT_INIT(smelt_tuning_entry)

/* Fills *entry, whose `size` the caller has set, with the entry that plans of a kernel use in this
 * context (the kernel's own knobs are ignored). Without an entry, `spec` and `device` are filled in,
 * `knobs` is "" and `microseconds` 0. Errors: INVALID_ARGUMENT, INVALID_SPEC (also for an operator),
 * OUT_OF_MEMORY. */
SMELT_CALL smelt_status smelt_tuning_get_entry(const smelt_context *context, const char *kernel,
                                               smelt_tuning_entry *entry);

/* Called once per entry, which is valid during the call; must not store entries. A result other
 * than 0 stops the walk, which then returns SMELT_ERROR_CANCELLED. */
typedef int (*smelt_tuning_function)(void *user, const smelt_tuning_entry *entry);

/* Calls `each` with every entry, of every device. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY,
 * CANCELLED. */
SMELT_CALL smelt_status smelt_tuning_walk(const smelt_context *context, smelt_tuning_function each,
                                          void *user);

/*
 * Writes an entry into the tuning file, replacing an earlier one of its kernel and device; with
 * knobs NULL or "" only removes that. device NULL or "": the context's. Later plans of this context
 * use it; existing operators keep their kernels; other contexts see it when they are created. The
 * file is replaced as a whole, under a lock; other lines are kept.
 *
 * Errors: INVALID_ARGUMENT (no device, a device or knobs of more than 255 bytes, microseconds
 * outside 0.01..1e12), INVALID_SPEC (not a kernel, or invalid knobs), UNSUPPORTED (knobs that are
 * not legal together for this kernel on this context's architecture), CACHE (there is no file, or
 * it cannot be written, with the reason).
 */
SMELT_CALL smelt_status smelt_tuning_store(smelt_context *context, const smelt_tuning_entry *entry);

/*
 * The autotuning candidates: every distinct plan of a kernel, as its spec with the fewest knobs
 * that give it; the rule's plan first, then in order of distance from it. Knobs that `kernel` names
 * are kept; `knobs` ("stages,pv_overlap") restricts the knobs that vary; NULL: all whose best value
 * does not depend on the data. Of a wide range some values are tried. `limit` 0: no limit. Pure:
 * ignores tuning entries. Errors: INVALID_ARGUMENT, INVALID_SPEC (also for unknown names in
 * `knobs`), UNSUPPORTED (no plan at all), CANCELLED (`each` returned other than 0), OUT_OF_MEMORY.
 */
SMELT_CALL smelt_status smelt_tuning_candidates(const char *kernel, const char *arch,
                                                const char *knobs, size_t limit,
                                                smelt_text_function each, void *user);

#ifdef __cplusplus
}
#endif

#endif
