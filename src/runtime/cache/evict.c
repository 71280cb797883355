/*
 * Eviction above the cap, and pruning on request. When the entries together exceed the cap, the
 * least recently used ones (by modification time, which hits renew) are removed until a sixteenth
 * of the cap is free, so that a full cache is not counted at every store. The same pass removes
 * temporary files that killed processes left.
 *
 * A lock, taken without waiting, lets one process evict at a time; without it two would do the same
 * work. Lookups take no lock and never wait for an eviction: an entry that vanishes between two
 * steps of a lookup is a miss.
 *
 * A store does not wait long either: counting and removing have a time limit each, and later stores
 * continue the work. A hash spreads kernels evenly over the subfolders, so the subfolders counted
 * within the limit, starting at a different one each time, are a sample from which the total is
 * estimated; their oldest entries are removed in proportion to the excess. On a local disk the
 * whole folder is usually counted and nothing is estimated.
 *
 * Clocks. Ages are differences between times of the file system's own clock; "now" is the
 * modification time of the entry just stored. A host with a wrong clock therefore evicts no fresh
 * entry. An entry with a time in the future (a clock was set back) would never age, so it gets the
 * present time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cache/internal.h"
#include "runtime/clock.h"

enum { TEMPORARY_SECONDS = 3600, FUTURE_SECONDS = 3600, SLACK = 16, RECOUNT = 64 };

/* Limits of one store: the time for each step, and the minimum done regardless of time. */
enum { COUNT_MS = 25, REMOVE_MS = 5, MIN_SUBFOLDERS = 16, MIN_REMOVED = 2 };

struct candidate {
    char name[SMELT__FILE_NAME_BYTES];
    struct timespec used;
    uint64_t bytes;
    ino_t inode;
};

struct pass {
    struct candidate *candidates;
    size_t count, capacity;
    uint64_t total; /* bytes of the remaining candidates */
    uint64_t removed, removed_bytes, temporaries;
    int listed, counted; /* subfolders */
    /* Receives subfolders that could not be read, if a user prunes; NULL: after a store, which ignores them. */
    struct smelt__unread *unread;
    int error; /* errno of the last entry that could not be removed; 0: none */
    time_t now;
};

/* ---- files that smelt wrote ----------------------------------------------------------------- */

/* Entries, unfinished entries and unfinished counter files. */
static bool has_smelt_magic(const unsigned char *bytes, size_t count) {
    return smelt__entry_begins_with(bytes, count) || smelt__counters_begin_with(bytes, count);
}

int smelt__found_remove(int subfolder, const char *name) {
    unsigned char begin[SMELT__ENTRY_PREFIX_BYTES];
    struct stat status;
    bool ours = false;
    int file = openat(subfolder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (file < 0) /* not an error: gone, a symbolic link or a socket */
        return errno == ENOENT || errno == ELOOP || errno == ENXIO ? 0 : -1;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
        size_t count = status.st_size < (off_t)sizeof begin ? (size_t)status.st_size : sizeof begin;
        ours = smelt__read_at(file, 0, begin, count) == 0 && has_smelt_magic(begin, count);
    }
    close(file);
    if (!ours)
        return 0;
    return unlinkat(subfolder, name, 0) == 0 ? 1 : errno == ENOENT ? 0 : -1;
}

/* ---- counting ------------------------------------------------------------------------------ */

/* Counts one file; returns -1 when out of memory. */
static int consider(void *user, const struct smelt__found *found) {
    struct pass *pass = user;
    struct candidate *candidate;
    const struct timespec present[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};

    if (found->temporary) {
        if (pass->now - found->status.st_mtim.tv_sec > TEMPORARY_SECONDS &&
            smelt__found_remove(found->subfolder, found->name) > 0)
            pass->temporaries++;
        return 0;
    }
    if (S_ISDIR(found->status.st_mode))
        return 0;
    if (found->status.st_mtim.tv_sec - pass->now > FUTURE_SECONDS)
        (void)utimensat(found->subfolder, found->name, present, AT_SYMLINK_NOFOLLOW);
    if (pass->count == pass->capacity) {
        size_t capacity = pass->capacity ? 2 * pass->capacity : 256;
        struct candidate *grown = realloc(pass->candidates, capacity * sizeof *grown);
        if (!grown)
            return -1;
        pass->candidates = grown;
        pass->capacity = capacity;
    }
    candidate = &pass->candidates[pass->count++];
    memset(candidate, 0, sizeof *candidate);
    memcpy(candidate->name, found->name, strlen(found->name) + 1);
    candidate->used = found->status.st_mtim;
    candidate->bytes = (uint64_t)found->status.st_size;
    candidate->inode = found->status.st_ino;
    pass->total += candidate->bytes;
    return 0;
}

/* Counts subfolders, starting at a random one, until all are counted or the deadline passes. 0; -1
 * with errno. */
static int count_folder(struct pass *pass, int folder, int64_t deadline_ns) {
    char digits[SMELT__SUBFOLDERS][3];
    int first;

    pass->listed = smelt__folder_subfolders(folder, digits);
    if (pass->listed <= 0)
        return pass->listed;
    first = (int)(smelt__now_ns() / 1000 % pass->listed);
    while (pass->counted < pass->listed &&
           (pass->counted < MIN_SUBFOLDERS || smelt__now_ns() < deadline_ns)) {
        const char *next = digits[(first + pass->counted) % pass->listed];
        if (smelt__subfolder_each(folder, next, false, consider, pass) != 0) {
            if (pass->unread ? errno == ENOMEM : errno != EACCES)
                return -1;
            if (pass->unread)
                smelt__unread_note(pass->unread, next);
        }
        pass->counted++;
    }
    return 0;
}

/* Scales bytes by part / whole: from the counted subfolders to all, or back. Exact when all were
 * counted. */
static uint64_t scale(uint64_t bytes, int part, int whole) {
    if (part == whole)
        return bytes;
    return (uint64_t)((double)bytes / (double)whole * (double)part);
}

/* ---- removing ------------------------------------------------------------------------------ */

static int compare_used(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;

    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    if (a->used.tv_nsec != b->used.tv_nsec)
        return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Removes the candidate unless it was used or replaced since it was counted. Result as for
 * smelt__found_remove. */
static int remove_unchanged(int folder, const struct candidate *candidate) {
    struct stat status;
    int subfolder = smelt__subfolder_open(folder, candidate->name, false, false), removed = 0;

    if (subfolder < 0)
        return errno == ENOENT ? 0 : -1;
    if (fstatat(subfolder, candidate->name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        status.st_ino == candidate->inode && status.st_mtim.tv_sec == candidate->used.tv_sec &&
        status.st_mtim.tv_nsec == candidate->used.tv_nsec)
        removed = smelt__found_remove(subfolder, candidate->name);
    close(subfolder);
    return removed;
}

static void remove_candidate(struct pass *pass, int folder, const struct candidate *candidate) {
    const int removed = remove_unchanged(folder, candidate);
    if (removed < 0)
        pass->error = errno;
    if (removed <= 0)
        return;
    pass->total -= candidate->bytes;
    pass->removed++;
    pass->removed_bytes += candidate->bytes;
}

/* Removes the oldest candidates, except `kept`, until `goal` bytes are left. After the deadline it
 * stops once it has removed `min_bytes`. */
static void remove_oldest(struct pass *pass, int folder, uint64_t goal, const char *kept,
                          int64_t deadline_ns, uint64_t min_bytes) {
    if (pass->count > 0)
        qsort(pass->candidates, pass->count, sizeof *pass->candidates, compare_used);
    for (size_t i = 0; i < pass->count && pass->total > goal; i++) {
        if (pass->removed_bytes >= min_bytes && smelt__now_ns() >= deadline_ns)
            return;
        if (strcmp(pass->candidates[i].name, kept) != 0)
            remove_candidate(pass, folder, &pass->candidates[i]);
    }
}

/* ---- after a store ------------------------------------------------------------------------- */

/* Bytes this process may store before it counts again: a part of the free space, since other
 * processes store too. */
static int_fast64_t grant(const struct smelt__cache *cache, uint64_t total) {
    if (cache->cap_bytes == 0) /* no cap; still remove old temporaries now and then */
        return INT64_C(1) << 30;
    return total < cache->cap_bytes ? (int_fast64_t)((cache->cap_bytes - total) / RECOUNT) : 0;
}

static void keep_to_cap(struct smelt__cache *cache, struct pass *pass, int folder, uint64_t bytes,
                        const char *kept) {
    uint64_t cap = cache->cap_bytes, goal = scale(cap - cap / SLACK, pass->counted, pass->listed);
    int64_t deadline_ns = smelt__now_ns() + REMOVE_MS * INT64_C(1000000);

    if (cap == 0 || scale(pass->total, pass->listed, pass->counted) <= cap)
        return;
    remove_oldest(pass, folder, goal, kept, deadline_ns, MIN_REMOVED * bytes);
    smelt__log_write(&cache->log, SMELT_LOG_INFO,
                     "cache: %s was over its cap of %llu bytes, evicted %llu of %zu entries%s",
                     cache->folder, (unsigned long long)cap, (unsigned long long)pass->removed,
                     pass->count, pass->total > goal ? "; later stores evict more" : "");
}

void smelt__cache_evict(struct smelt__cache *cache, int folder, uint64_t bytes, const char *kept,
                        const struct timespec *now) {
    struct pass pass = {.now = now->tv_sec};
    int lock;

    if (atomic_fetch_sub_explicit(&cache->store_budget, (int_fast64_t)bytes, memory_order_relaxed) >
        (int_fast64_t)bytes)
        return;
    if (!smelt__cache_evictor_lock(cache, &lock))
        return;
    if (count_folder(&pass, folder, smelt__now_ns() + COUNT_MS * INT64_C(1000000)) != 0) {
        smelt__cache_warn_once(cache, SMELT__WARNED_EVICT, "cache: cannot count %s: %s",
                               cache->folder, strerror(errno));
    } else if (pass.counted > 0) {
        keep_to_cap(cache, &pass, folder, bytes, kept);
        atomic_store_explicit(&cache->store_budget,
                              grant(cache, scale(pass.total, pass.listed, pass.counted)),
                              memory_order_relaxed);
    }
    free(pass.candidates);
    smelt__cache_lock_release(lock);
}

/* ---- pruning on request ---------------------------------------------------------------------- */

int smelt__cache_prune_folder(int folder, time_t now, struct smelt__pruning *pruning) {
    struct pass pass = {.now = now, .unread = &pruning->unread};
    int result = count_folder(&pass, folder, INT64_MAX);
    uint64_t counted = pass.count;

    if (result == 0) {
        size_t left = 0;
        for (size_t i = 0; i < pass.count; i++)
            if (pass.candidates[i].used.tv_sec < pruning->unused_since)
                remove_candidate(&pass, folder, &pass.candidates[i]);
            else
                pass.candidates[left++] = pass.candidates[i];
        pass.count = left;
        remove_oldest(&pass, folder, pruning->goal_bytes, "", INT64_MAX, 0);
    }
    pruning->removed = pass.removed;
    pruning->removed_bytes = pass.removed_bytes;
    pruning->temporaries = pass.temporaries;
    pruning->kept = counted - pass.removed;
    pruning->kept_bytes = pass.total;
    free(pass.candidates);
    if (result == 0 && (pass.error || pruning->unread.count > 0)) {
        errno = pass.error ? pass.error : pruning->unread.error;
        result = -1;
    }
    return result;
}
