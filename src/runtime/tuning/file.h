/*
 * The tuning file: one line per kernel and device,
 *
 *   spec  device  knobs  microseconds
 *
 * for example
 *
 *   sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048  NVIDIA H200  stages=2,pv_overlap=4  2104.5
 *
 * separated by blanks. The first word is the kernel's canonical spec without knobs, the last the
 * microseconds, the word before it the knobs; the text between is the device's name as the driver
 * gives it. Blank lines and lines that begin with '#' are ignored. Of several lines with the same
 * spec and device the last counts. tuning.h has a context's entries.
 */
#pragma once

#include <stddef.h>

#include "codegen/text.h"

enum {
    SMELT__TUNING_MAX_BYTES = 1 << 20, /* of a file; longer ones are not read */
    SMELT__TUNING_MAX_LINE = 1024,
    SMELT__TUNING_TEXT = 256 /* of each text in an entry, NUL included */
};

struct smelt__tuning_line {
    char spec[SMELT__TUNING_TEXT], device[SMELT__TUNING_TEXT], knobs[SMELT__TUNING_TEXT];
    double microseconds;
};

/* Parses a line of `length` bytes, without its newline. 1: an entry; 0: blank or a comment; -1: a
 * message. Pure. */
int smelt__tuning_line_parse(const char *text, size_t length, struct smelt__tuning_line *line,
                             struct smelt__message *message);
/* Appends the line and a newline. */
void smelt__tuning_line_print(const struct smelt__tuning_line *line, struct smelt__text *text);

/* The origin of a file, which decides what is trusted. */
enum smelt__tuning_trust {
    SMELT__TUNING_NAMED,    /* named by the user: links are followed, anyone may own it */
    SMELT__TUNING_OURS,     /* in the cache's writable layer: this user's or root's, no link */
    SMELT__TUNING_READONLY, /* in the read-only layer: no link */
};

/* Reads a whole file that only its owner (and, unless OURS, its group) can write. The caller frees
 * *text, which is NUL-terminated. 1; 0: there is no file; -1: a message. */
int smelt__tuning_file_read(const char *path, enum smelt__tuning_trust trust, char **text,
                            size_t *bytes, struct smelt__message *message);

/* Appends the file's new text to `edited`. 0, or -1 with a message. */
typedef int (*smelt__tuning_edit)(void *user, const char *text, size_t bytes,
                                  struct smelt__text *edited, struct smelt__message *message);

/*
 * Reads, edits and replaces a file (temporary file, fsync, rename) under its lock, PATH.lock, for
 * which it waits some seconds at most. A missing file is empty; its folder is created. Where
 * locking fails, one of two concurrent edits may be lost, but the file stays whole. *edited: the
 * new text, freed by the caller. 0, or -1 with a message and the file unchanged.
 */
int smelt__tuning_file_edit(const char *path, enum smelt__tuning_trust trust,
                            smelt__tuning_edit edit, void *user, struct smelt__text *edited,
                            struct smelt__message *message);
