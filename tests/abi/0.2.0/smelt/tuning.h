/*
 * smelt: tuning. A kernel's plan is chosen by a rule; where measurement found better knobs for a
 * kernel on a device (`smelt tune`, or a program's own search), the tuning file says so, and every
 * plan made through a context takes them over: compiling, warming and running agree as long as they
 * use the same file and device. A knob that a spec names itself is never overridden.
 *
 * The file is plain text, one line a kernel and device: spec  device  knobs  microseconds. It is
 * the context option `tuning`, else SMELT_TUNING, else the file `tuning` in the cache's folder; and
 * the read-only cache's `tuning` counts for what that one does not hold. It is read when a context
 * is made. Lines that cannot be used are warned of in the log, with file and line, and passed over.
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

/* What is known of one kernel on one device. Strings of an entry that the library fills live as
 * long as the context; those of one that a function of the caller's is given, for that call. */
typedef struct smelt_tuning_entry {
    size_t size;
    const char *spec;    /* the kernel, canonical and without knobs */
    const char *device;  /* as the driver names it: "NVIDIA H200" */
    const char *knobs;   /* in which its plan differs from the rule's: "stages=2,turn_steps=4" */
    double microseconds; /* what it took with them, in whatever it was tuned for */
} smelt_tuning_entry;

#define SMELT_TUNING_ENTRY_INIT SMELT_INIT(smelt_tuning_entry)

/* The device whose entries a context uses: its own, or a compile-only context's option
 * `tuning_device`; "" when none. And the file it would write, "" when there is none (no cache
 * folder and none named, or tuning_disable). Both live as long as the context. */
SMELT_API const char *smelt_tuning_device(const smelt_context *context);
SMELT_API const char *smelt_tuning_path(const smelt_context *context);

/* *subject: what an entry for a kernel names, its canonical text without knobs; freed by
 * smelt_free. Pure. Errors: INVALID_ARGUMENT, INVALID_SPEC (also for an operator), OUT_OF_MEMORY.
 */
SMELT_API smelt_status smelt_tuning_subject(const char *kernel, char **subject);

/* The entry that plans of a kernel (its knobs are not looked at) take over in this context, into
 * *entry, whose `size` the caller has set; `knobs` is "" when there is none. Errors:
 * INVALID_ARGUMENT, INVALID_SPEC, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_tuning_get_entry(const smelt_context *context, const char *kernel,
                                              smelt_tuning_entry *entry);

/* Called once per entry, which is valid during the call and not to be stored from within it. A
 * value other than 0 ends the walk, which then returns SMELT_ERROR_CANCELLED. */
typedef int (*smelt_tuning_function)(void *user, const smelt_tuning_entry *entry);

/* Every entry that was read, of every device. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_tuning_walk(const smelt_context *context, smelt_tuning_function each,
                                         void *user);

/*
 * Writes an entry into the tuning file, in place of an earlier one of its kernel and device; with
 * knobs NULL or "" it only takes that out. device NULL or "" means the context's. Plans made
 * through this context from then on use it; operators that exist keep their kernels; other contexts
 * see it when they are made. The file is replaced whole, under a lock, other lines kept.
 *
 * Errors: INVALID_ARGUMENT (no device, a device or knobs of more than 255 bytes, microseconds that
 * are not in 0.01..1e12), INVALID_SPEC (not a kernel, or knobs that are none), UNSUPPORTED (they
 * are not legal together for this kernel on this context's architecture), CACHE (there is no file,
 * or it cannot be written; the message says why).
 */
SMELT_API smelt_status smelt_tuning_store(smelt_context *context, const smelt_tuning_entry *entry);

/*
 * What there is to choose from: every plan of a kernel that differs from the others, as the
 * kernel's spec with as few knobs as make it; the rule's own first, then those nearest to it. Knobs
 * that `kernel` names stay; `knobs` ("stages,turn_steps") restricts what is varied, NULL means all
 * whose best value does not depend on the data. Of a wide range some values are tried. `limit` 0:
 * no limit. Pure: no tuning entry plays a part. Errors: INVALID_ARGUMENT, INVALID_SPEC (also for
 * `knobs` that it has not), UNSUPPORTED (no plan at all), CANCELLED (`each` returned other than 0),
 * OUT_OF_MEMORY.
 */
SMELT_API smelt_status smelt_tuning_candidates(const char *kernel, const char *arch,
                                               const char *knobs, size_t limit,
                                               smelt_text_function each, void *user);

#ifdef __cplusplus
}
#endif

#endif
