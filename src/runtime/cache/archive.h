/* A whole cache in one file: reading and writing it. The grammar is in archive.c. */
#pragma once

#include "runtime/cache/internal.h"

enum {
    SMELT__TAR_BLOCK = 512,
    SMELT__ARCHIVE_HEAD_BYTES = SMELT__TAR_BLOCK + 64, /* the index's header and head */
    SMELT__ARCHIVE_MOST_ENTRIES = 1 << 20
};

/* An open archive: its head, checked against the file's size. */
struct smelt__archive {
    int file;
    uint64_t bytes, count;
    uint64_t tuning_offset, tuning_bytes, tuning_check;
};

struct smelt__archive_record {
    unsigned char name[32]; /* smelt__cache_binary_name */
    uint64_t offset, bytes;
};

/* Fills *archive from the head; archive->bytes, the file's size, is given. -1: *why is the reason.
 * Pure. */
int smelt__archive_check_head(const unsigned char head[SMELT__ARCHIVE_HEAD_BYTES],
                              struct smelt__archive *archive, const char **why);
/* -1 with errno and a sentence in `why` ("" for ENOENT). A file that everyone can write is refused.
 */
int smelt__archive_open(const char *path, struct smelt__archive *archive, char *why,
                        size_t why_bytes);
void smelt__archive_close(struct smelt__archive *archive);
/* Record number 0 to count - 1. -1 with errno. */
int smelt__archive_record(const struct smelt__archive *archive, uint64_t number,
                          struct smelt__archive_record *record);
/* The number of records with names no greater than `name`; -1 with errno. For an index that is not
 * sorted: some number from 0 to count. */
int64_t smelt__archive_bisect(const struct smelt__archive *archive, const unsigned char name[32]);
/* Calls `each` (may be NULL) with every record in order, after checking it, and checks the index's
 * checksum at the end. A result of `each` above 0 stops the walk and is returned. -1: `why` names
 * the fault and its position. */
int smelt__archive_each(const struct smelt__archive *archive,
                        int (*each)(void *user, const struct smelt__archive_record *record),
                        void *user, char *why, size_t why_bytes);

/* An archive being written into an empty file. */
struct smelt__archive_writer {
    int file;
    uint64_t at;               /* bytes written */
    uint64_t max_count, count; /* records: capacity, written so far */
    unsigned char *index;
    uint64_t tuning_offset, tuning_bytes, tuning_check;
};

/* Begins an archive of at most `max_count` entries, which must be added in ascending order of their
 * names. These four functions return -1 with errno; call smelt__archive_abandon in any case. */
int smelt__archive_begin(struct smelt__archive_writer *writer, int file, uint64_t max_count,
                         const char *tuning, size_t tuning_bytes);
int smelt__archive_add(struct smelt__archive_writer *writer,
                       const struct smelt__cache_entry *entry);
/* Writes the member `contents` and the index, and synchronises the file. */
int smelt__archive_end(struct smelt__archive_writer *writer, const char *contents,
                       size_t contents_bytes);
void smelt__archive_abandon(struct smelt__archive_writer *writer);
