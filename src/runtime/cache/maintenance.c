/*
 * Looking after the writable layer: counting, walking, verifying, pruning, clearing. Unlike lookups
 * and stores these fail with a status and a message.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cache/archive.h"

smelt_status smelt__maintenance_open(struct smelt__cache *cache, int *folder) {
    char why[512];

    *folder = -1;
    if (!cache)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    if (cache->problem[0] != '\0')
        return smelt__fail(SMELT_ERROR_CACHE, "the cache cannot be used: %s", cache->problem);
    *folder = smelt__folder_open(cache->folder, false, why, sizeof why);
    if (*folder < 0 && errno != ENOENT)
        return smelt__fail(SMELT_ERROR_CACHE, "the cache cannot be used: %s", why);
    return SMELT_OK;
}

static smelt_status maintenance_walk(struct smelt__cache *cache, smelt__found_function each,
                                     void *user) {
    int folder, result;
    smelt_status status = smelt__maintenance_open(cache, &folder);

    if (status != SMELT_OK || folder < 0)
        return status;
    result = smelt__folder_each(folder, false, each, user);
    if (result == -1)
        status = smelt__fail(SMELT_ERROR_CACHE, "the cache folder %s cannot be read: %s",
                             cache->folder, strerror(errno));
    close(folder);
    return status;
}

static int count_found(void *user, const struct smelt__found *found) {
    smelt_cache_stats *stats = user;

    if (found->temporary) {
        stats->temporaries++;
        return 0;
    }
    if (!S_ISREG(found->status.st_mode))
        return 0;
    stats->entries++;
    stats->bytes += (uint64_t)found->status.st_size;
    return 0;
}

static void read_counters(struct smelt__cache *cache, smelt_cache_stats *stats) {
    uint64_t counts[SMELT__COUNTS];
    char why[512];
    int folder;

    smelt__counters_record(cache);
    folder = smelt__folder_open(cache->folder, false, why, sizeof why);
    if (folder < 0)
        return;
    smelt__counters_read(folder, counts);
    close(folder);
    stats->hits = counts[SMELT__COUNT_HITS];
    stats->readonly_hits = counts[SMELT__COUNT_READONLY_HITS];
    stats->misses = counts[SMELT__COUNT_MISSES];
    stats->stores = counts[SMELT__COUNT_STORES];
    stats->errors = counts[SMELT__COUNT_ERRORS];
    stats->saved_seconds = 1e-3 * (double)counts[SMELT__COUNT_SAVED_MS];
}

static int count_readonly_found(void *user, const struct smelt__found *found) {
    smelt_cache_stats *stats = user;

    if (!found->temporary && S_ISREG(found->status.st_mode)) {
        stats->readonly_entries++;
        stats->readonly_bytes += (uint64_t)found->status.st_size;
    }
    return 0;
}

/* What is wrong with it is no failure of the call. */
static void count_readonly(const struct smelt__cache *cache, smelt_cache_stats *stats) {
    const char *path = cache->readonly;
    struct smelt__archive archive;
    char why[sizeof stats->readonly_problem];
    int folder;

    if (path[0] == '\0')
        return;
    folder = smelt__folder_open(path, true, why, sizeof why);
    if (folder >= 0) {
        if (smelt__folder_each(folder, true, count_readonly_found, stats) != 0)
            snprintf(why, sizeof why, "%.400s: %s", path, strerror(errno));
        close(folder);
    } else if (errno == ENOTDIR && smelt__archive_open(path, &archive, why, sizeof why) == 0) {
        stats->readonly_entries = archive.count;
        stats->readonly_bytes = archive.bytes;
        smelt__archive_close(&archive);
    } else if (why[0] == '\0') {
        snprintf(why, sizeof why, "%.400s: %s", path, strerror(ENOENT));
    }
    memcpy(stats->readonly_problem, why, sizeof why);
}

smelt_status smelt__cache_stat(struct smelt__cache *cache, smelt_cache_stats *stats) {
    size_t size;

    if (!stats)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "stats is NULL");
    size = stats->size;
    memset(stats, 0, sizeof *stats);
    stats->size = size;
    snprintf(stats->problem, sizeof stats->problem, "%s", smelt__cache_problem(cache));
    if (!cache)
        return SMELT_OK;
    snprintf(stats->folder, sizeof stats->folder, "%s", cache->folder);
    snprintf(stats->readonly, sizeof stats->readonly, "%s", cache->readonly);
    stats->cap_bytes = cache->cap_bytes;
    count_readonly(cache, stats);
    if (cache->problem[0] != '\0')
        return SMELT_OK;
    read_counters(cache, stats);
    return maintenance_walk(cache, count_found, stats);
}

struct walk {
    smelt_cache_entry_function each;
    void *user;
};

static void describe_entry(const struct smelt__cache_entry *entry, smelt_kernel_info *info) {
    const struct smelt__compiled *compiled = &entry->compiled;

    memcpy(info->spec, compiled->spec, sizeof info->spec);
    memcpy(info->arch, entry->key.arch, sizeof info->arch);
    memcpy(info->kernel, compiled->kernel_name, sizeof info->kernel);
    smelt__cache_key_hex(&entry->key, info->key);
    info->state = SMELT_KERNEL_CACHED;
    info->compile_seconds = compiled->compile_seconds;
    info->registers = compiled->registers;
    info->spill_bytes = compiled->spill_bytes;
    info->static_shared_bytes = compiled->static_shared_bytes;
    info->dynamic_shared_bytes = compiled->dynamic_shared_bytes;
    info->threads = compiled->threads;
    info->cubin_bytes = compiled->cubin_bytes;
}

static int walk_found(void *user, const struct smelt__found *found) {
    const struct walk *walk = user;
    smelt_kernel_info info = {.size = sizeof info};
    struct smelt__cache_entry entry;
    enum smelt__read_state state;
    const char *why;

    if (found->temporary)
        return 0;
    state = smelt__file_read(found->subfolder, found->name, false, false, &entry, &why);
    if (state == SMELT__READ_ABSENT) /* evicted since it was listed */
        return 0;
    if (state == SMELT__READ_SOUND) {
        describe_entry(&entry, &info);
        free(entry.compiled.cubin);
    } else {
        info.state = SMELT_KERNEL_FAILED;
        info.status = state == SMELT__READ_FOREIGN ? SMELT_ERROR_UNSUPPORTED : SMELT_ERROR_CACHE;
        snprintf(info.key, sizeof info.key, "%.32s", found->name);
        snprintf(info.error, sizeof info.error, "%s: %s", found->path, why);
    }
    return walk->each(walk->user, found->path, &info) != 0;
}

smelt_status smelt__cache_walk(struct smelt__cache *cache, smelt_cache_entry_function each,
                               void *user) {
    struct walk walk = {each, user};

    if (!each)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "the function to call is NULL");
    return maintenance_walk(cache, walk_found, &walk);
}

struct verification {
    uint64_t sound, removed;
};

static bool remove_found(const struct smelt__found *found) {
    int flags = S_ISDIR(found->status.st_mode) ? AT_REMOVEDIR : 0;

    return unlinkat(found->subfolder, found->name, flags) == 0;
}

static int verify_found(void *user, const struct smelt__found *found) {
    struct verification *counts = user;
    struct smelt__cache_entry entry;
    struct stat now;
    enum smelt__read_state state;
    const char *why;

    if (found->temporary)
        return 0;
    state = smelt__file_read(found->subfolder, found->name, false, false, &entry, &why);
    if (state == SMELT__READ_SOUND) {
        counts->sound++;
        free(entry.compiled.cubin);
    }
    /* Not what a store healed a moment ago. */
    if (state == SMELT__READ_BAD &&
        fstatat(found->subfolder, found->name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
        now.st_ino == found->status.st_ino && remove_found(found))
        counts->removed++;
    return 0;
}

smelt_status smelt__cache_verify(struct smelt__cache *cache, uint64_t *sound, uint64_t *removed) {
    struct verification counts = {0, 0};
    smelt_status status = maintenance_walk(cache, verify_found, &counts);

    if (sound)
        *sound = counts.sound;
    if (removed)
        *removed = counts.removed;
    return status;
}

static int clear_found(void *user, const struct smelt__found *found) {
    uint64_t *removed = user;

    if (remove_found(found) && !found->temporary)
        (*removed)++;
    return 0;
}

smelt_status smelt__cache_clear(struct smelt__cache *cache, uint64_t *removed) {
    uint64_t count = 0;
    int folder;
    smelt_status status = smelt__maintenance_open(cache, &folder);

    if (status == SMELT_OK && folder >= 0) {
        smelt__counters_record(cache);
        smelt__counters_remove(folder);
        close(folder);
        status = maintenance_walk(cache, clear_found, &count);
    }
    if (removed)
        *removed = count;
    return status;
}

/* ---- pruning ------------------------------------------------------------------------------- */

/* Another process that evicts is let finish, but not waited for longer than it should take. */
static void wait_for_evictor(struct smelt__cache *cache, int *lock) {
    enum { TRIES = 50, PAUSE_NS = 10000000 };
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    for (int i = 0; i < TRIES && !smelt__cache_evictor_lock(cache, lock); i++)
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

smelt_status smelt__cache_prune(struct smelt__cache *cache, uint64_t max_bytes,
                                uint64_t older_than_seconds, smelt_cache_pruned *pruned) {
    struct smelt__pruning pruning = {.unused_since = INT64_MIN};
    struct timespec now;
    int folder, lock = -1;
    smelt_status status = smelt__maintenance_open(cache, &folder);

    if (status != SMELT_OK || folder < 0)
        return status;
    if (smelt__folder_now(folder, &now) != 0) {
        status = smelt__fail(SMELT_ERROR_CACHE, "the cache folder %s cannot be written: %s",
                             cache->folder, strerror(errno));
        goto out;
    }
    pruning.goal_bytes = max_bytes ? max_bytes : cache->cap_bytes;
    if (pruning.goal_bytes == 0) /* a cache without a cap */
        pruning.goal_bytes = UINT64_MAX;
    if (older_than_seconds > 0 && older_than_seconds < (uint64_t)now.tv_sec)
        pruning.unused_since = now.tv_sec - (int64_t)older_than_seconds;
    wait_for_evictor(cache, &lock);
    if (smelt__cache_prune_folder(folder, now.tv_sec, &pruning) != 0)
        status = smelt__fail(SMELT_ERROR_CACHE, "the cache folder %s cannot be read: %s",
                             cache->folder, strerror(errno));
    if (pruned) {
        pruned->removed = pruning.removed;
        pruned->removed_bytes = pruning.removed_bytes;
        pruned->temporaries = pruning.temporaries;
        pruned->kept = pruning.kept;
        pruned->kept_bytes = pruning.kept_bytes;
    }
    smelt__cache_lock_release(lock);
out:
    close(folder);
    return status;
}
