/*
 * The tuning entries a context works with: those of the tuning file and of the read-only layer's,
 * read once when the context is made. The file is read first: what it says of a kernel and device
 * wins. Thread-safe.
 */
#ifndef SMELT_RUNTIME_TUNING_H
#define SMELT_RUNTIME_TUNING_H

#include "runtime/log.h"
#include "runtime/tuning/file.h"
#include "smelt/tuning.h"

struct smelt__tuning; /* opaque */

/* Everything resolved; strings are copied. */
struct smelt__tuning_settings {
    const char *file;     /* "": none */
    int named;            /* the user named that file; else it is the writable layer's */
    const char *readonly; /* the read-only layer's; "": none */
    /* That layer is one file: `readonly` is only what messages call it, and this is the text; NULL:
     * it has none. */
    int readonly_is_text;
    const char *readonly_text;
    size_t readonly_bytes;
};

/* NULL when memory is out. Files that are not there are empty ones; a file or a line that cannot be
 * used costs a warning. */
struct smelt__tuning *smelt__tuning_open(const struct smelt__tuning_settings *settings,
                                         const struct smelt__log *log);
void smelt__tuning_close(struct smelt__tuning *tuning);

/* The file that is written, "" when there is none. */
const char *smelt__tuning_file(const struct smelt__tuning *tuning);

/* The entry of a kernel (canonical text without knobs) on a device. 1: *line filled; 0: none. */
int smelt__tuning_find(struct smelt__tuning *tuning, const char *spec, const char *device,
                       struct smelt__tuning_line *line);
/* Hands over every entry, in no order that counts; *stopped: what `each` returned. */
smelt_status smelt__tuning_walk(struct smelt__tuning *tuning, smelt_tuning_function each,
                                void *user);
/* Whether this is the first time that the entry is said to be no good. */
int smelt__tuning_first_complaint(struct smelt__tuning *tuning,
                                  const struct smelt__tuning_line *line);

/* Puts a line into the file in place of every other of its spec and device, or with knobs "" takes
 * them out. Other lines stay as they are. OK, or CACHE with the reason. */
smelt_status smelt__tuning_store(struct smelt__tuning *tuning,
                                 const struct smelt__tuning_line *line);

/* Adds those lines of a text whose spec and device the file has not. *taken: how many. */
smelt_status smelt__tuning_merge(struct smelt__tuning *tuning, const char *text, size_t bytes,
                                 size_t *taken);

#endif
