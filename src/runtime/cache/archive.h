/* A whole cache in one file: reading and writing it. The grammar is in archive.c. */
#ifndef SMELT_RUNTIME_CACHE_ARCHIVE_H
#define SMELT_RUNTIME_CACHE_ARCHIVE_H

#include "runtime/cache/internal.h"

enum {
    SMELT__TAR_BLOCK = 512,
    SMELT__ARCHIVE_HEAD_BYTES = SMELT__TAR_BLOCK + 64, /* the index's header and head */
    SMELT__ARCHIVE_MOST_ENTRIES = 1 << 20
};

/* An open archive: what its head says, checked against the file's size. */
struct smelt__archive {
    int file;
    uint64_t bytes, count;
    uint64_t tuning_offset, tuning_bytes, tuning_check;
};

struct smelt__archive_record {
    unsigned char name[32]; /* smelt__cache_binary_name */
    uint64_t offset, bytes;
};

/* archive->bytes is the file's size; the rest is filled in. -1: *why says what is wrong. Pure. */
int smelt__archive_check_head(const unsigned char head[SMELT__ARCHIVE_HEAD_BYTES],
                              struct smelt__archive *archive, const char **why);
/* -1: errno and a sentence in `why` ("" for ENOENT). Writable by everyone is a fault. */
int smelt__archive_open(const char *path, struct smelt__archive *archive, char *why,
                        size_t why_bytes);
void smelt__archive_close(struct smelt__archive *archive);
/* Record number 0 to count - 1. -1 with errno. */
int smelt__archive_record(const struct smelt__archive *archive, uint64_t number,
                          struct smelt__archive_record *record);
/* How many records have names no greater than `name`; -1 with errno. Of an index that is not in
 * order: some number up to count. */
int64_t smelt__archive_bisect(const struct smelt__archive *archive, const unsigned char name[32]);
/* Every record in order, each checked before it is handed out; in the end the index's checksum.
 * Stops when `each` returns other than 0 and returns that, which is above 0; -1: `why` says what is
 * wrong, and where. `each` may be NULL. */
int smelt__archive_each(const struct smelt__archive *archive,
                        int (*each)(void *user, const struct smelt__archive_record *record),
                        void *user, char *why, size_t why_bytes);

/* An archive being written into an empty file. */
struct smelt__archive_writer {
    int file;
    uint64_t at;          /* bytes written */
    uint64_t most, count; /* records there is room for, records so far */
    unsigned char *index;
    uint64_t tuning_offset, tuning_bytes, tuning_check;
};

/* Room for `most` entries, which then come in ascending order of their names. -1 with errno: of all
 * four. Abandon in any case. */
int smelt__archive_begin(struct smelt__archive_writer *writer, int file, uint64_t most,
                         const char *tuning, size_t tuning_bytes);
int smelt__archive_add(struct smelt__archive_writer *writer,
                       const struct smelt__cache_entry *entry);
/* Writes the index and synchronises the file. */
int smelt__archive_end(struct smelt__archive_writer *writer);
void smelt__archive_abandon(struct smelt__archive_writer *writer);

#endif
