/* Folders that are trusted, and bytes into and out of files: the rules are in files.c. */
#ifndef SMELT_RUNTIME_FILES_H
#define SMELT_RUNTIME_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Whether what a stat describes belongs to us or to root. */
bool smelt__is_ours(const struct stat *status);
/* NULL, or what is wrong with a folder: "is writable by everyone". */
const char *smelt__folder_fault(const struct stat *status, bool readonly);
/* Opens a layer's folder, after a check of every component of its path: the rules are in files.c.
 * -1: errno and a sentence in `why` ("" for ENOENT). */
int smelt__folder_open(const char *path, bool readonly, char *why, size_t why_bytes);
/* The same of a writable folder, which is made with its missing parents, 0700. */
int smelt__folder_make(const char *path, char *why, size_t why_bytes);
/* Opens a file that the user named, for reading and without blocking, by the read-only layer's
 * rules. Result as above; the caller checks what it is and who can write it. */
int smelt__file_open(const char *path, char *why, size_t why_bytes);
/* All `count` bytes at `offset`; 0 or -1 with errno (EIO for a file that ends early). */
int smelt__read_at(int file, uint64_t offset, void *bytes, size_t count);
/* All bytes, however many writes it takes. 0 or -1 with errno; EFBIG above the process's limit on
 * files, without its signal. */
int smelt__write_fully(int file, const void *bytes, size_t count);
/* The same by one write, which is enough or a failure: for what is appended beside other writers.
 */
int smelt__write_once(int file, const void *bytes, size_t count);

#endif
