/*
 * A context's tuning entries: those of the tuning file and of the read-only layer's, read when the
 * context is created. The tuning file takes precedence. Thread-safe.
 */
#pragma once

#include "runtime/log.h"
#include "runtime/tuning/file.h"
#include "smelt/tuning.h"

struct smelt__tuning; /* opaque */

/* All settings are resolved; strings are copied. */
struct smelt__tuning_settings {
    const char *file;     /* "": none */
    int named;            /* the user named it; else it is the writable layer's */
    const char *readonly; /* the read-only layer's; "": none */
    /* The read-only layer is an archive: `readonly` is only its name in messages, readonly_text its
     * tuning file's text (NULL: none). */
    int readonly_is_text;
    const char *readonly_text;
    size_t readonly_bytes;
};

/* NULL when out of memory. Missing files count as empty; a file or line that cannot be used costs a
 * warning. */
struct smelt__tuning *smelt__tuning_open(const struct smelt__tuning_settings *settings,
                                         const struct smelt__log *log);
void smelt__tuning_close(struct smelt__tuning *tuning);

/* The file that is written; "": none. */
const char *smelt__tuning_file(const struct smelt__tuning *tuning);

/* The entry of a kernel (canonical text without knobs) on a device. 1: *line filled; 0: none. */
int smelt__tuning_find(struct smelt__tuning *tuning, const char *spec, const char *device,
                       struct smelt__tuning_line *line);
/* Calls `each` with every entry, sorted by kernel and device; a result other than 0 stops the walk:
 * CANCELLED. */
smelt_status smelt__tuning_walk(struct smelt__tuning *tuning, smelt_tuning_function each,
                                void *user);
/* Whether this is the first warning about the entry. */
int smelt__tuning_first_complaint(struct smelt__tuning *tuning,
                                  const struct smelt__tuning_line *line);

/* Replaces the file's lines of this spec and device by `line`, or removes them if its knobs are "".
 * Other lines are kept. OK, or CACHE with the reason. */
smelt_status smelt__tuning_store(struct smelt__tuning *tuning,
                                 const struct smelt__tuning_line *line);

/* Adds those lines of a text whose spec and device the file lacks. *taken: their number. */
smelt_status smelt__tuning_merge(struct smelt__tuning *tuning, const char *text, size_t bytes,
                                 size_t *taken);
