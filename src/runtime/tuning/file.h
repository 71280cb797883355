/*
 * The tuning file: one line a kernel and device,
 *
 *   spec  device  knobs  microseconds
 *
 * for example
 *
 *   sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048  NVIDIA H200  stages=2,turn_steps=4  2104.5
 *
 * apart by blanks: the spec is a kernel's canonical text without knobs, the first word;
 * microseconds are the last, knobs the one before; the device's name, as the driver gives it, is
 * what stands between. Blank lines and lines that begin with '#' are passed over. Of two lines with
 * one spec and device the later counts. Text and files here, the entries of a context in tuning.h.
 */
#ifndef SMELT_RUNTIME_TUNING_FILE_H
#define SMELT_RUNTIME_TUNING_FILE_H

#include <stddef.h>

#include "codegen/text.h"

enum {
    SMELT__TUNING_MAX_BYTES = 1 << 20, /* of a file; a longer one is not read */
    SMELT__TUNING_MAX_LINE = 1024,
    SMELT__TUNING_TEXT = 256 /* of each text in an entry, NUL included */
};

struct smelt__tuning_line {
    char spec[SMELT__TUNING_TEXT], device[SMELT__TUNING_TEXT], knobs[SMELT__TUNING_TEXT];
    double microseconds;
};

/* Reads a line of `length` bytes, without its newline. 1: an entry; 0: blank or a comment; -1: what
 * is wrong with it. Pure. */
int smelt__tuning_line_parse(const char *text, size_t length, struct smelt__tuning_line *line,
                             struct smelt__message *message);
/* Appends the line and a newline. */
void smelt__tuning_line_print(const struct smelt__tuning_line *line, struct smelt__text *text);

/* Who chose a file, which says what it may look like. */
enum smelt__tuning_trust {
    SMELT__TUNING_NAMED,    /* the user: links are followed, anyone may own it */
    SMELT__TUNING_OURS,     /* in the writable layer of the cache: ours or root's, no link */
    SMELT__TUNING_READONLY, /* in the read-only layer: no link */
};

/* Reads a whole file, which nobody but its owner (and, unless OURS, its group) may write. *text is
 * the caller's to free, NUL-terminated. 1; 0: there is none; -1: why not. */
int smelt__tuning_file_read(const char *path, enum smelt__tuning_trust trust, char **text,
                            size_t *bytes, struct smelt__message *message);

/* What becomes of a file's text: appends the new one. 0, or -1 with a message. */
typedef int (*smelt__tuning_edit)(void *user, const char *text, size_t bytes,
                                  struct smelt__text *edited, struct smelt__message *message);

/*
 * Reads, edits and replaces a file under its lock, PATH.lock, which is waited for at most some
 * seconds: temporary, fsync, rename. A file that is not there is empty; its folder is made. Where
 * nothing locks, of two writers at once one may be lost, never a half. *edited: the file's new
 * text, the caller's to free. 0, or -1 with a message and the file as it was.
 */
int smelt__tuning_file_edit(const char *path, enum smelt__tuning_trust trust,
                            smelt__tuning_edit edit, void *user, struct smelt__text *edited,
                            struct smelt__message *message);

#endif
