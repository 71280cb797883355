/* Trusted folders, and reading and writing files. files.c states the rules. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Whether a file belongs to this user or root. */
bool smelt__is_ours(const struct stat *status);
/* NULL, or why a folder is not trusted: "is writable by everyone". */
const char *smelt__folder_fault(const struct stat *status, bool readonly);
/* Opens a layer's folder after checking every component of its path. -1: errno and a sentence in
 * `why` ("" for ENOENT). */
int smelt__folder_open(const char *path, bool readonly, char *why, size_t why_bytes);
/* The same for a writable folder; creates it and its missing parents (smelt__folder_create). */
int smelt__folder_make(const char *path, char *why, size_t why_bytes);
/* mkdirat(2) with mode 0700 under any umask; an existing folder is no error. */
int smelt__folder_create(int folder, const char *name);
/* Opens a file that the user named, for reading and without blocking, by the read-only layer's
 * rules. Result as above; the caller checks the file's type and permissions. */
int smelt__file_open(const char *path, char *why, size_t why_bytes);
/* openat(2) for a file that is written, with O_NOFOLLOW, O_CLOEXEC and O_NONBLOCK. The owner of a new file has all
 * permissions that `mode` gives the owner, under any umask. Never returns one of the standard descriptors: in a program that closed
 * them, the file would receive what the program prints. */
int smelt__file_open_to_write(int folder, const char *name, int flags, mode_t mode);
/* Reads all `count` bytes at `offset`. 0 or -1 with errno (EIO: the file ends before). */
int smelt__read_at(int file, uint64_t offset, void *bytes, size_t count);
/* Writes all bytes, with as many writes as it takes. 0 or -1 with errno; EFBIG above the process's
 * limit on file size, without the signal. */
int smelt__write_fully(int file, const void *bytes, size_t count);
/* The same with a single write; a short write fails. For files that several processes append to. */
int smelt__write_once(int file, const void *bytes, size_t count);
