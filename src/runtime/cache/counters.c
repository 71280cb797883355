/*
 * Totals over all processes that use a cache: <folder>/counters, a file of records whose sum is
 * computed when it is asked for. A process appends its counts since its last record after a store,
 * after a second, at every 64th event, and when it closes the cache. Appending takes no lock and
 * does not wait for the disk; only the record that replaces many is synchronised.
 *
 *   file   := record*                    damaged records are skipped. A file that does not begin
 *                                        with a record's magic is not smelt's: it is neither
 *                                        read, appended to nor removed
 *   record :=  0  magic          8 bytes  "smeltcn1"; another version has another last character
 *              8  counts         u64 * 6  little-endian, in the order of enum smelt__cache_count
 *             56  check          u64      XXH3-64 of the 56 bytes before
 *
 * Some counts may be lost: the last second of a killed process, a forked child's counts before its
 * first record, records that several nodes append to a network file system at the same time, and
 * records appended while the file is compacted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cache/bytes.h"
#include "runtime/cache/internal.h"
#include "runtime/clock.h"
#include "runtime/hash.h"

enum {
    RECORD_BYTES = 64,
    AT_COUNTS = 8,
    AT_CHECK = AT_COUNTS + 8 * SMELT__COUNTS,
    COMPACT_BYTES = 64 << 10, /* above this the file is compacted */
    MAX_BYTES = 1 << 20,      /* larger files are read up to here */
    MAX_PENDING = 64
};
#define RECORD_NS INT64_C(1000000000)

_Static_assert(AT_CHECK + 8 == RECORD_BYTES, "a record is its magic, the counts and the check");

static const char file_name[] = "counters";
static const char magic[8] = {'s', 'm', 'e', 'l', 't', 'c', 'n', '1'};

/* ---- records ------------------------------------------------------------------------------- */

static void write_record(unsigned char record[RECORD_BYTES], const uint64_t counts[SMELT__COUNTS]) {
    memcpy(record, magic, sizeof magic);
    for (int i = 0; i < SMELT__COUNTS; i++)
        smelt__put_u64(record + AT_COUNTS + 8 * i, counts[i]);
    smelt__put_u64(record + AT_CHECK, XXH3_64bits(record, AT_CHECK));
}

static void add_record(uint64_t counts[SMELT__COUNTS], const unsigned char record[RECORD_BYTES]) {
    if (memcmp(record, magic, sizeof magic) != 0 ||
        smelt__get_u64(record + AT_CHECK) != XXH3_64bits(record, AT_CHECK))
        return;
    for (int i = 0; i < SMELT__COUNTS; i++) {
        uint64_t more = smelt__get_u64(record + AT_COUNTS + 8 * i);
        counts[i] = counts[i] > UINT64_MAX - more ? UINT64_MAX : counts[i] + more;
    }
}

/* ---- the file ------------------------------------------------------------------------------ */

/* Compares all but the version, the magic's last character. */
bool smelt__counters_begin_with(const unsigned char *bytes, size_t count) {
    return memcmp(bytes, magic, count < sizeof magic - 1 ? count : sizeof magic - 1) == 0;
}

static bool is_ours(int file, const struct stat *status) {
    unsigned char begin[sizeof magic];
    size_t count = status->st_size < (off_t)sizeof begin ? (size_t)status->st_size : sizeof begin;

    return S_ISREG(status->st_mode) && smelt__is_ours(status) &&
           (status->st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
           smelt__read_at(file, 0, begin, count) == 0 && smelt__counters_begin_with(begin, count);
}

/* Opens the file if smelt wrote it; *bytes is its size. -1 with errno; EPERM: another program's
 * file. */
static int file_open(int folder, int flags, size_t *bytes) {
    struct stat status;
    int file = smelt__file_open_to_write(folder, file_name, flags, 0600);

    if (file < 0)
        return -1;
    if (fstat(file, &status) != 0 || !is_ours(file, &status)) {
        close(file);
        errno = EPERM;
        return -1;
    }
    *bytes = (size_t)status.st_size;
    return file;
}

void smelt__counters_read(int folder, uint64_t counts[SMELT__COUNTS]) {
    unsigned char block[64 * RECORD_BYTES];
    size_t bytes, done = 0;
    int file = file_open(folder, O_RDONLY, &bytes);

    memset(counts, 0, SMELT__COUNTS * sizeof *counts);
    if (file < 0)
        return;
    while (done < MAX_BYTES) {
        ssize_t got = pread(file, block, sizeof block, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < RECORD_BYTES)
            break;
        got -= got % RECORD_BYTES;
        for (ssize_t at = 0; at < got; at += RECORD_BYTES)
            add_record(counts, block + at);
        done += (size_t)got;
    }
    close(file);
}

/* Replaces all records by their sum. Records appended meanwhile are lost with the old file. */
static void compact(int folder) {
    unsigned char record[RECORD_BYTES];
    uint64_t counts[SMELT__COUNTS];
    char temporary[SMELT__FILE_NAME_BYTES];
    int file, subfolder;

    smelt__counters_read(folder, counts);
    write_record(record, counts);
    subfolder = smelt__subfolder_open(folder, "00", false, true);
    if (subfolder < 0)
        return;
    file = smelt__temporary_create(subfolder, temporary);
    if (file >= 0) {
        /* It replaces all counts so far, so it must be on the disk before the rename. */
        bool written = smelt__write_once(file, record, sizeof record) == 0 && fsync(file) == 0;
        if (close(file) != 0 || !written || renameat(subfolder, temporary, folder, file_name) != 0)
            (void)unlinkat(subfolder, temporary, 0);
    }
    close(subfolder);
}

/* One process at a time; the size is checked again under the lock. */
static void compact_when_large(struct smelt__cache *cache, int folder) {
    size_t size = 0;
    int lock, file;

    if (!smelt__cache_evictor_lock(cache, &lock))
        return;
    file = file_open(folder, O_RDONLY, &size);
    if (file >= 0)
        close(file);
    if (size > COMPACT_BYTES)
        compact(folder);
    smelt__cache_lock_release(lock);
}

/* Appends one record by one write. If an earlier write was torn, fills up its record first, so that
 * records stay aligned. */
static void append(struct smelt__cache *cache, int folder, const uint64_t counts[SMELT__COUNTS]) {
    unsigned char bytes[2 * RECORD_BYTES] = {0};
    size_t size, fill;
    int file = file_open(folder, O_RDWR | O_CREAT | O_APPEND, &size);

    if (file < 0 && errno == EPERM)
        smelt__cache_warn_once(cache, SMELT__WARNED_COUNTERS,
                               "cache: statistics are not kept: %s/%s is not smelt's file, or "
                               "others can write it; move it away",
                               cache->folder, file_name);
    if (file < 0)
        return;
    /* Not an empty file: several processes may create it and append at once. */
    if (size > 0 && size < sizeof magic && ftruncate(file, 0) == 0)
        size = 0; /* a write that was torn within the magic */
    fill = (RECORD_BYTES - size % RECORD_BYTES) % RECORD_BYTES;
    write_record(bytes + fill, counts);
    if (smelt__write_once(file, bytes, fill + RECORD_BYTES) != 0)
        smelt__log_write(&cache->log, SMELT_LOG_DEBUG, "cache: counters not written: %s",
                         strerror(errno));
    close(file);
    if (size > COMPACT_BYTES)
        compact_when_large(cache, folder);
}

/* ---- counting ------------------------------------------------------------------------------ */

void smelt__counters_begin(struct smelt__cache *cache) {
    atomic_store_explicit(&cache->recorded_ns, smelt__now_ns(), memory_order_relaxed);
    atomic_flag_clear(&cache->recording);
    cache->counting_process = getpid();
}

/* The counts since the last record; false when all are 0. */
static bool take_pending(struct smelt__cache *cache, uint64_t pending[SMELT__COUNTS]) {
    bool inherited = cache->counting_process != getpid();
    uint64_t any = 0;

    for (int i = 0; i < SMELT__COUNTS; i++) {
        uint64_t now =
            atomic_load_explicit(&cache->counts[SMELT__KIND_GPU][i], memory_order_relaxed);
        pending[i] = now - cache->recorded[i];
        cache->recorded[i] = now;
        any |= pending[i];
    }
    cache->counting_process = getpid();
    /* A forked child must not record its parent's counts. */
    return any != 0 && !inherited;
}

void smelt__counters_record(struct smelt__cache *cache) {
    uint64_t pending[SMELT__COUNTS];
    char why[512];
    int folder;

    if (cache->disabled || cache->problem[0] != '\0' ||
        atomic_flag_test_and_set_explicit(&cache->recording, memory_order_acquire))
        return; /* no folder to write to, or another thread is writing */
    atomic_store_explicit(&cache->recorded_ns, smelt__now_ns(), memory_order_relaxed);
    atomic_store_explicit(&cache->pending, 0, memory_order_relaxed);
    if (take_pending(cache, pending)) {
        folder = smelt__folder_open(cache->folder, false, why, sizeof why);
        if (folder >= 0) {
            append(cache, folder, pending);
            close(folder);
        }
    }
    atomic_flag_clear_explicit(&cache->recording, memory_order_release);
}

void smelt__counters_record_when_due(struct smelt__cache *cache) {
    unsigned pending = 1 + atomic_fetch_add_explicit(&cache->pending, 1, memory_order_relaxed);
    int64_t recorded_ns = atomic_load_explicit(&cache->recorded_ns, memory_order_relaxed);

    if (pending >= MAX_PENDING || smelt__now_ns() - recorded_ns >= RECORD_NS)
        smelt__counters_record(cache);
}

void smelt__counters_remove(int folder) {
    size_t bytes;
    int file = file_open(folder, O_RDONLY, &bytes);

    if (file < 0)
        return;
    close(file);
    (void)unlinkat(folder, file_name, 0);
}
