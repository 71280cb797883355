/*
 * The archive: a whole cache in one file, which another machine imports, names as its read-only
 * layer, or unpacks. It is a tar file (POSIX ustar). Its first member is an index, so that a lookup
 * finds one entry without reading the rest. Unpacked with tar it is the folder of a read-only
 * layer. Equal contents give equal bytes: members are sorted, without owner and time. Numbers are
 * little-endian.
 *
 *   archive  := member("index") [member("tuning")] member("ab/KEY-COMPILER.smelt")*
 *               member("contents") zeros
 *   member   := ustar header of 512 bytes, content, zeros up to a multiple of 512
 *   contents := for people, in text: "smelt VERSION", then a line "ARCH SPEC" for each entry
 *   zeros    := at least 1024 bytes
 *
 *   index    :=   0  magic          8 bytes  "smelt\r\nA"
 *                 8  version        u32      1
 *                12  record_bytes   u32      48
 *                16  archive_bytes  u64      of the whole file
 *                24  count          u64      records, at most 2^20
 *                32  tuning_offset  u64      of the tuning file's text; 0: there is none
 *                40  tuning_bytes   u64      at most 1 MiB
 *                48  tuning_check   u64      XXH3-64 of that text
 *                56  reserved       u64      0
 *                64  record*                 ascending by key, then compiler, no duplicates
 *                    checksum       16       XXH3-128, canonical, of the index before it
 *                    spare                   up to the member's end
 *   record   :=   0  key            16       as in the entry's file name, in binary
 *                16  compiler       16
 *                32  offset         u64      of the entry; ascending
 *                40  bytes          u64
 *
 * A lookup reads the head, the records that a binary search needs, and the entry, which has its own
 * checksum: a damaged or hostile index costs no more than that and gives a miss. An import reads
 * the whole index and refuses one that is not sorted, so that it reads no byte twice.
 *
 * Versions. The first 24 bytes of the head are the same in every version. An archive of another
 * version is refused with a message; for the versions of the entries in it see entry.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cache/archive.h"
#include "runtime/cache/bytes.h"
#include "runtime/hash.h"
#include "runtime/tuning/file.h"

enum {
    VERSION = 1,
    BLOCK = SMELT__TAR_BLOCK,
    RECORD_BYTES = 48,
    HEAD_BYTES = 64,
    CHECKSUM_BYTES = 16,
    AT_VERSION = 8,
    AT_RECORD_BYTES = 12,
    AT_ARCHIVE_BYTES = 16,
    AT_COUNT = 24,
    AT_TUNING_OFFSET = 32,
    AT_TUNING_BYTES = 40,
    AT_TUNING_CHECK = 48,
    AT_OFFSET = 32,
    AT_BYTES = 40
};

static const unsigned char magic[8] = {'s', 'm', 'e', 'l', 't', '\r', '\n', 'A'};
static const char index_name[] = "index", tuning_name[] = "tuning", contents_name[] = "contents";
static const char not_archive[] = "it is not a file that `smelt cache export` wrote";

static uint64_t padded(uint64_t bytes) {
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* The file's size bounds every number in its head, so that sums of two of them do not overflow. */
static const char *head_fault(const unsigned char *head, struct smelt__archive *archive) {
    uint64_t records;

    if (smelt__get_u32(head + AT_VERSION) != VERSION)
        return "it was exported by another version of smelt";
    if (smelt__get_u64(head + AT_ARCHIVE_BYTES) != archive->bytes)
        return "its size differs from the size in its head: it was truncated or appended to";
    archive->count = smelt__get_u64(head + AT_COUNT);
    archive->tuning_offset = smelt__get_u64(head + AT_TUNING_OFFSET);
    archive->tuning_bytes = smelt__get_u64(head + AT_TUNING_BYTES);
    archive->tuning_check = smelt__get_u64(head + AT_TUNING_CHECK);
    records = (archive->bytes - BLOCK - HEAD_BYTES) / RECORD_BYTES;
    if (smelt__get_u32(head + AT_RECORD_BYTES) != RECORD_BYTES || archive->count > records ||
        archive->count > SMELT__ARCHIVE_MOST_ENTRIES)
        return "its index is longer than the file";
    if (archive->tuning_bytes > SMELT__TUNING_MAX_BYTES ||
        archive->tuning_offset > archive->bytes ||
        archive->tuning_bytes > archive->bytes - archive->tuning_offset)
        return "its tuning file is outside the file";
    return NULL;
}

int smelt__archive_check_head(const unsigned char head[SMELT__ARCHIVE_HEAD_BYTES],
                              struct smelt__archive *archive, const char **why) {
    if (archive->bytes < SMELT__ARCHIVE_HEAD_BYTES ||
        memcmp(head, index_name, sizeof index_name) != 0 ||
        memcmp(head + BLOCK, magic, sizeof magic) != 0)
        *why = not_archive;
    else
        *why = head_fault(head + BLOCK, archive);
    return *why ? -1 : 0;
}

/* Why an open file cannot be used as an archive, or NULL. */
static const char *file_fault(struct smelt__archive *archive) {
    unsigned char head[SMELT__ARCHIVE_HEAD_BYTES];
    struct stat status;
    const char *fault = NULL;

    if (fstat(archive->file, &status) != 0)
        return strerror(errno);
    if (!S_ISREG(status.st_mode))
        return "it is neither a folder nor a regular file";
    if (status.st_mode & S_IWOTH)
        return "it is writable by everyone (use chmod o-w)";
    archive->bytes = (uint64_t)status.st_size;
    if (archive->bytes < sizeof head)
        return not_archive;
    if (smelt__read_at(archive->file, 0, head, sizeof head) != 0)
        return strerror(errno);
    (void)smelt__archive_check_head(head, archive, &fault);
    return fault;
}

int smelt__archive_open(const char *path, struct smelt__archive *archive, char *why,
                        size_t why_bytes) {
    const char *fault;

    archive->file = smelt__file_open(path, why, why_bytes);
    if (archive->file < 0)
        return -1;
    fault = file_fault(archive);
    if (!fault)
        return 0;
    snprintf(why, why_bytes, "%s: %s", path, fault);
    smelt__archive_close(archive);
    errno = EPERM;
    return -1;
}

void smelt__archive_close(struct smelt__archive *archive) {
    if (archive->file >= 0)
        close(archive->file);
    archive->file = -1;
}

static uint64_t record_offset(uint64_t number) {
    return BLOCK + HEAD_BYTES + number * RECORD_BYTES;
}

static void take_record(const unsigned char *bytes, struct smelt__archive_record *record) {
    memcpy(record->name, bytes, sizeof record->name);
    record->offset = smelt__get_u64(bytes + AT_OFFSET);
    record->bytes = smelt__get_u64(bytes + AT_BYTES);
}

int smelt__archive_record(const struct smelt__archive *archive, uint64_t number,
                          struct smelt__archive_record *record) {
    unsigned char bytes[RECORD_BYTES];

    if (smelt__read_at(archive->file, record_offset(number), bytes, sizeof bytes) != 0)
        return -1;
    take_record(bytes, record);
    return 0;
}

int64_t smelt__archive_bisect(const struct smelt__archive *archive, const unsigned char name[32]) {
    uint64_t low = 0, high = archive->count;
    struct smelt__archive_record record;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (smelt__archive_record(archive, middle, &record) != 0)
            return -1;
        if (memcmp(record.name, name, sizeof record.name) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return (int64_t)low;
}

/* ---- reading the whole index -------------------------------------------------------------- */

/* Why a record cannot follow `before`, or NULL. */
static const char *record_fault(const struct smelt__archive *archive,
                                const struct smelt__archive_record *before,
                                const struct smelt__archive_record *record) {
    uint64_t first = before ? before->offset + before->bytes : record_offset(archive->count);

    if (before && memcmp(before->name, record->name, sizeof record->name) >= 0)
        return "is out of order";
    if (record->bytes > SMELT__ENTRY_MAX_BYTES)
        return "names an entry above the maximum size";
    if (record->offset < first || record->offset > archive->bytes ||
        record->bytes > archive->bytes - record->offset)
        return "names an entry that overlaps another or the file's end";
    return NULL;
}

enum { RECORDS_PER_READ = 256 };

/* The index, read in blocks, and its checksum so far. */
struct index_reading {
    const struct smelt__archive *archive;
    XXH3_state_t state;
    unsigned char bytes[RECORDS_PER_READ * RECORD_BYTES];
};

static int reading_begin(struct index_reading *reading, const struct smelt__archive *archive) {
    unsigned char head[HEAD_BYTES];

    memset(reading, 0, sizeof *reading);
    reading->archive = archive;
    XXH3_128bits_reset(&reading->state);
    if (smelt__read_at(archive->file, BLOCK, head, sizeof head) != 0)
        return -1;
    XXH3_128bits_update(&reading->state, head, sizeof head);
    return 0;
}

static int reading_next(struct index_reading *reading, uint64_t number,
                        struct smelt__archive_record *record) {
    size_t at = (size_t)(number % RECORDS_PER_READ);
    uint64_t left = reading->archive->count - number;
    size_t bytes = (left < RECORDS_PER_READ ? (size_t)left : RECORDS_PER_READ) * RECORD_BYTES;

    if (at == 0) {
        if (smelt__read_at(reading->archive->file, record_offset(number), reading->bytes, bytes) !=
            0)
            return -1;
        XXH3_128bits_update(&reading->state, reading->bytes, bytes);
    }
    take_record(reading->bytes + at * RECORD_BYTES, record);
    return 0;
}

/* 0; 1: the checksum is wrong; -1 with errno. */
static int reading_end(const struct index_reading *reading) {
    unsigned char stated[CHECKSUM_BYTES];
    XXH128_canonical_t canonical;

    if (smelt__read_at(reading->archive->file, record_offset(reading->archive->count), stated,
                       sizeof stated) != 0)
        return -1;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&reading->state));
    return memcmp(canonical.digest, stated, sizeof stated) != 0;
}

int smelt__archive_each(const struct smelt__archive *archive,
                        int (*each)(void *user, const struct smelt__archive_record *record),
                        void *user, char *why, size_t why_bytes) {
    struct index_reading reading;
    struct smelt__archive_record before, record;
    uint64_t number = 0;
    const char *fault = NULL;
    int result = reading_begin(&reading, archive);

    for (; result == 0 && number < archive->count; number++, before = record) {
        result = reading_next(&reading, number, &record);
        if (result == 0)
            fault = record_fault(archive, number > 0 ? &before : NULL, &record);
        if (fault) {
            snprintf(why, why_bytes, "record %llu of its index (byte %llu) %s",
                     (unsigned long long)number, (unsigned long long)record_offset(number), fault);
            return -1;
        }
        if (result == 0 && each && (result = each(user, &record)) != 0)
            return result;
    }
    if (result == 0)
        result = reading_end(&reading);
    if (result > 0)
        snprintf(why, why_bytes, "its index's checksum (byte %llu) is wrong",
                 (unsigned long long)record_offset(archive->count));
    else if (result < 0)
        snprintf(why, why_bytes, "%s", strerror(errno));
    return result == 0 ? 0 : -1;
}

/* ---- writing ------------------------------------------------------------------------------- */

static void put_octal(unsigned char *at, int width, uint64_t number) {
    for (int i = width - 2; i >= 0; i--, number /= 8)
        at[i] = (unsigned char)('0' + number % 8);
}

/* One header of a regular file; the name has at most 100 bytes. */
static void tar_header(unsigned char header[BLOCK], const char *name, uint64_t bytes) {
    unsigned sum = 0;

    memset(header, 0, BLOCK);
    memcpy(header, name, strlen(name));
    put_octal(header + 100, 8, 0644); /* mode */
    put_octal(header + 108, 8, 0);    /* owner */
    put_octal(header + 116, 8, 0);    /* group */
    put_octal(header + 124, 12, bytes);
    put_octal(header + 136, 12, 0); /* time */
    memset(header + 148, ' ', 8);   /* the checksum counts as blanks */
    header[156] = '0';              /* a regular file */
    memcpy(header + 257, "ustar\00000", 8);
    for (int i = 0; i < BLOCK; i++)
        sum += header[i];
    put_octal(header + 148, 7, sum);
    header[154] = '\0';
}

static int write_zeros(struct smelt__archive_writer *writer, uint64_t end) {
    static const unsigned char zeros[2 * BLOCK];

    while (writer->at < end) {
        uint64_t left = end - writer->at;
        size_t count = left < sizeof zeros ? (size_t)left : sizeof zeros;
        if (smelt__write_fully(writer->file, zeros, count) != 0)
            return -1;
        writer->at += count;
    }
    return 0;
}

static int write_bytes(struct smelt__archive_writer *writer, const void *bytes, size_t count) {
    writer->at += count;
    return smelt__write_fully(writer->file, bytes, count);
}

static int write_member_header(struct smelt__archive_writer *writer, const char *name,
                               uint64_t bytes) {
    unsigned char header[BLOCK];

    tar_header(header, name, bytes);
    return write_bytes(writer, header, sizeof header);
}

static uint64_t index_bytes(uint64_t count) {
    return HEAD_BYTES + count * RECORD_BYTES + CHECKSUM_BYTES;
}

int smelt__archive_begin(struct smelt__archive_writer *writer, int file, uint64_t max_count,
                         const char *tuning, size_t tuning_bytes) {
    memset(writer, 0, sizeof *writer);
    writer->file = file;
    writer->max_count = max_count;
    writer->index = calloc(1, (size_t)index_bytes(max_count));
    if (!writer->index)
        return -1;
    /* The index is written last; leave space for it. */
    if (write_member_header(writer, index_name, index_bytes(max_count)) != 0 ||
        write_zeros(writer, BLOCK + padded(index_bytes(max_count))) != 0)
        return -1;
    if (tuning_bytes == 0)
        return 0;
    if (write_member_header(writer, tuning_name, tuning_bytes) != 0)
        return -1;
    writer->tuning_offset = writer->at;
    writer->tuning_bytes = tuning_bytes;
    writer->tuning_check = smelt__cache_hash(tuning, tuning_bytes);
    return write_bytes(writer, tuning, tuning_bytes) != 0 ? -1
                                                          : write_zeros(writer, padded(writer->at));
}

int smelt__archive_add(struct smelt__archive_writer *writer,
                       const struct smelt__cache_entry *entry) {
    unsigned char header[SMELT__ENTRY_HEADER_BYTES], checksum[SMELT__ENTRY_CHECKSUM_BYTES];
    char name[SMELT__FILE_NAME_BYTES], path[SMELT__FILE_NAME_BYTES];
    uint64_t bytes = sizeof header + entry->compiled.cubin_bytes + sizeof checksum;
    unsigned char *record = writer->index + HEAD_BYTES + writer->count * RECORD_BYTES;

    smelt__entry_encode(entry, header, checksum);
    smelt__cache_file_name(&entry->key, &entry->compiler, name);
    snprintf(path, sizeof path, "%.2s/%.76s", name, name);
    if (write_member_header(writer, path, bytes) != 0)
        return -1;
    smelt__cache_binary_name(&entry->key, &entry->compiler, record);
    smelt__put_u64(record + AT_OFFSET, writer->at);
    smelt__put_u64(record + AT_BYTES, bytes);
    writer->count++;
    if (write_bytes(writer, header, sizeof header) != 0 ||
        write_bytes(writer, entry->compiled.cubin, entry->compiled.cubin_bytes) != 0 ||
        write_bytes(writer, checksum, sizeof checksum) != 0)
        return -1;
    return write_zeros(writer, padded(writer->at));
}

int smelt__archive_end(struct smelt__archive_writer *writer, const char *contents,
                       size_t contents_bytes) {
    unsigned char *head = writer->index;
    size_t summed = HEAD_BYTES + (size_t)writer->count * RECORD_BYTES;
    XXH128_canonical_t canonical;

    if (write_member_header(writer, contents_name, contents_bytes) != 0 ||
        write_bytes(writer, contents, contents_bytes) != 0 ||
        write_zeros(writer, padded(writer->at) + 2 * BLOCK) != 0)
        return -1;
    memcpy(head, magic, sizeof magic);
    smelt__put_u32(head + AT_VERSION, VERSION);
    smelt__put_u32(head + AT_RECORD_BYTES, RECORD_BYTES);
    smelt__put_u64(head + AT_ARCHIVE_BYTES, writer->at);
    smelt__put_u64(head + AT_COUNT, writer->count);
    smelt__put_u64(head + AT_TUNING_OFFSET, writer->tuning_offset);
    smelt__put_u64(head + AT_TUNING_BYTES, writer->tuning_bytes);
    smelt__put_u64(head + AT_TUNING_CHECK, writer->tuning_check);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(head, summed));
    memcpy(head + summed, canonical.digest, CHECKSUM_BYTES);
    if (lseek(writer->file, BLOCK, SEEK_SET) != BLOCK ||
        smelt__write_fully(writer->file, head, summed + CHECKSUM_BYTES) != 0)
        return -1;
    return fsync(writer->file);
}

void smelt__archive_abandon(struct smelt__archive_writer *writer) {
    free(writer->index);
    writer->index = NULL;
}
