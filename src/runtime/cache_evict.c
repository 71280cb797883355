/*
 * The cap. When the entries' sizes add up to more than it, the least recently used ones (by
 * modification time, renewed at hits) go until a sixteenth of the cap is free, so that not every
 * store of a full cache counts it anew. The same pass sweeps temporaries that a killed process
 * left.
 *
 * One evictor at a time, decided by a lock that is never waited for; without it two of them would
 * only do the work twice. Lookups take no lock and never wait for an eviction: an entry that
 * vanishes between two of their steps is a miss.
 *
 * Clocks. Ages are differences between times the file system itself gave: "now" is the modification
 * time of the entry just stored. A host whose clock is off therefore evicts nothing fresh. An entry
 * from the future (a clock was set back) would never age: it is given the present time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cache_internal.h"

enum { TEMPORARY_SECONDS = 3600, FUTURE_SECONDS = 3600, SLACK = 16, RECOUNT = 64 };

struct candidate {
    char name[SMELT__FILE_NAME_BYTES];
    struct timespec used;
    uint64_t bytes;
    ino_t inode;
};

struct pass {
    struct candidate *candidates;
    size_t count, room;
    uint64_t total;
    time_t now;
};

static int compare_used(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;

    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    if (a->used.tv_nsec != b->used.tv_nsec)
        return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Counts one file; returns -1 when out of memory. */
static int consider(void *user, const struct smelt__found *found) {
    struct pass *pass = user;
    struct candidate *candidate;
    const struct timespec present[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};

    if (found->temporary) {
        if (pass->now - found->status.st_mtim.tv_sec > TEMPORARY_SECONDS)
            (void)unlinkat(found->subfolder, found->name, 0);
        return 0;
    }
    if (S_ISDIR(found->status.st_mode))
        return 0;
    if (found->status.st_mtim.tv_sec - pass->now > FUTURE_SECONDS)
        (void)utimensat(found->subfolder, found->name, present, AT_SYMLINK_NOFOLLOW);
    if (pass->count == pass->room) {
        size_t room = pass->room ? 2 * pass->room : 256;
        struct candidate *grown = realloc(pass->candidates, room * sizeof *grown);
        if (!grown)
            return -1;
        pass->candidates = grown;
        pass->room = room;
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

/* Unlinks the candidate unless it was used or renewed since it was counted. */
static bool remove_unchanged(int folder, const struct candidate *candidate) {
    struct stat status;
    int subfolder = smelt__subfolder_open(folder, candidate->name, false, false);
    bool removed;

    if (subfolder < 0)
        return false;
    removed = fstatat(subfolder, candidate->name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
              status.st_ino == candidate->inode &&
              status.st_mtim.tv_sec == candidate->used.tv_sec &&
              status.st_mtim.tv_nsec == candidate->used.tv_nsec &&
              unlinkat(subfolder, candidate->name, 0) == 0;
    close(subfolder);
    return removed;
}

static void remove_oldest(struct smelt__cache *cache, int folder, struct pass *pass,
                          const char *kept) {
    uint64_t goal = cache->cap_bytes - cache->cap_bytes / SLACK;
    size_t removed = 0;

    qsort(pass->candidates, pass->count, sizeof *pass->candidates, compare_used);
    for (size_t i = 0; i < pass->count && pass->total > goal; i++) {
        const struct candidate *candidate = &pass->candidates[i];
        if (strcmp(candidate->name, kept) == 0 || !remove_unchanged(folder, candidate))
            continue;
        pass->total -= candidate->bytes;
        removed++;
    }
    smelt__log_write(&cache->log, SMELT_LOG_INFO,
                     "cache: %s was over its cap of %llu bytes, evicted %zu of %zu entries",
                     cache->folder, (unsigned long long)cache->cap_bytes, removed, pass->count);
}

/* How much may be stored before the next count. Other processes store too, so only a part of what
 * is free is granted. */
static int_fast64_t grant(const struct smelt__cache *cache, uint64_t total) {
    if (cache->cap_bytes == 0) /* no cap; still sweep now and then */
        return INT64_C(1) << 30;
    return total < cache->cap_bytes ? (int_fast64_t)((cache->cap_bytes - total) / RECOUNT) : 0;
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
    if (smelt__folder_each(folder, false, consider, &pass) != 0) {
        smelt__cache_warn_once(cache, SMELT__WARNED_EVICT, "cache: cannot count %s: %s",
                               cache->folder, strerror(errno));
    } else {
        if (cache->cap_bytes != 0 && pass.total > cache->cap_bytes)
            remove_oldest(cache, folder, &pass, kept);
        atomic_store_explicit(&cache->store_budget, grant(cache, pass.total), memory_order_relaxed);
    }
    free(pass.candidates);
    smelt__cache_lock_release(lock);
}
