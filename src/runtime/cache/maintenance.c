/*
 * Maintenance of the writable layer: statistics, walk, verify, prune, clear. Unlike lookups and
 * stores these fail with a status and a message. Calls that remove entries also remove the
 * emulator's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cache/archive.h"

smelt_status smelt__maintenance_open(struct smelt__cache *cache, enum smelt__output output,
                                     int *folder) {
    char why[512];

    *folder = -1;
    if (!cache)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    if (cache->problem[0] != '\0')
        return smelt__fail(SMELT_ERROR_CACHE, "the cache cannot be used: %s", cache->problem);
    *folder = smelt__folder_open(smelt__cache_root(cache, output), false, why, sizeof why);
    if (*folder < 0 && errno != ENOENT)
        return smelt__fail(SMELT_ERROR_CACHE, "the cache cannot be used: %s", why);
    return SMELT_OK;
}

smelt_status smelt__unread_fail(const struct smelt__unread *unread, const char *path) {
    const char *why = strerror(errno);

    if (unread->count == 0)
        return smelt__fail(errno == ENOMEM ? SMELT_ERROR_OUT_OF_MEMORY : SMELT_ERROR_CACHE,
                           "the folder %s cannot be read: %s", path, why);
    return smelt__fail(SMELT_ERROR_CACHE, "%s %s of %s cannot be read: %s",
                       unread->count == 1 ? "the subfolder" : "the subfolders", unread->names, path,
                       why);
}

static smelt_status maintenance_walk(struct smelt__cache *cache, enum smelt__output output,
                                     smelt__found_function each, void *user) {
    struct smelt__unread unread;
    int folder;
    smelt_status status = smelt__maintenance_open(cache, output, &folder);

    if (status != SMELT_OK || folder < 0)
        return status;
    if (smelt__folder_each(folder, false, each, user, &unread) == -1)
        status = smelt__unread_fail(&unread, smelt__cache_root(cache, output));
    close(folder);
    return status;
}

/* The joint status of two calls. The first one left `message`; if both failed, the error's message has both texts. */
static smelt_status join(smelt_status first, const struct smelt__saved_error *message,
                         smelt_status second) {
    if (first && second)
        smelt__fail(first, "%s; %s", message->text, smelt_last_error());
    return first ? first : second;
}

static smelt_status walk_both(struct smelt__cache *cache, smelt__found_function each, void *user) {
    struct smelt__saved_error message;
    const smelt_status status = maintenance_walk(cache, SMELT__OUTPUT_CUBIN, each, user);

    smelt__error_save(&message);
    return join(status, &message, maintenance_walk(cache, SMELT__OUTPUT_EMULATED, each, user));
}

/* Entries that a call could not process. */
struct unprocessed {
    uint64_t count;
    char first[256]; /* the first one's path, and the reason */
};

static void note_unprocessed(struct unprocessed *unprocessed, const char *path, const char *why) {
    if (unprocessed->count++ == 0)
        snprintf(unprocessed->first, sizeof unprocessed->first, "%s: %s", path, why);
}

/* Returns `status` or, if there are such entries, a failure whose message also names the first of them. `verb`: what
 * they cannot be, for example "removed". */
static smelt_status check_unprocessed(smelt_status status, const struct smelt__cache *cache,
                                      const struct unprocessed *unprocessed, const char *verb) {
    struct smelt__saved_error message;
    smelt_status named = SMELT_OK;

    smelt__error_save(&message);
    if (unprocessed->count > 0)
        named = smelt__fail(
            SMELT_ERROR_CACHE, "%llu of the entries in %s cannot be %s, among them %s",
            (unsigned long long)unprocessed->count, cache->folder, verb, unprocessed->first);
    return join(status, &message, named);
}

/* The files of one layer. */
struct tally {
    uint64_t entries, bytes, temporaries;
};

static int count_found(void *user, const struct smelt__found *found) {
    struct tally *tally = user;

    if (found->temporary) {
        tally->temporaries++;
    } else if (S_ISREG(found->status.st_mode)) {
        tally->entries++;
        tally->bytes += (uint64_t)found->status.st_size;
    }
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

/* A fault of the read-only layer is reported in `why` and does not fail the call. */
static void count_readonly(const struct smelt__cache *cache, char why[SMELT__CACHE_PROBLEM],
                           smelt_cache_stats *stats) {
    const char *path = cache->readonly;
    struct smelt__archive archive;
    struct smelt__unread unread;
    struct tally tally = {0};
    int folder;

    if (path[0] == '\0')
        return;
    folder = smelt__folder_open(path, true, why, SMELT__CACHE_PROBLEM);
    if (folder >= 0) {
        why[0] = '\0';
        if (smelt__folder_each(folder, true, count_found, &tally, &unread) != 0)
            snprintf(why, SMELT__CACHE_PROBLEM, "%.400s: %s", path, strerror(errno));
        close(folder);
        stats->readonly_entries = tally.entries;
        stats->readonly_bytes = tally.bytes;
    } else if (errno == ENOTDIR &&
               smelt__archive_open(path, &archive, why, SMELT__CACHE_PROBLEM) == 0) {
        stats->readonly_entries = archive.count;
        stats->readonly_bytes = archive.bytes;
        smelt__archive_close(&archive);
        why[0] = '\0';
    } else if (why[0] == '\0') {
        snprintf(why, SMELT__CACHE_PROBLEM, "%.400s: %s", path, strerror(ENOENT));
    }
}

smelt_status smelt__cache_stat(struct smelt__cache *cache,
                               char readonly_problem[SMELT__CACHE_PROBLEM],
                               smelt_cache_stats *stats) {
    readonly_problem[0] = '\0';
    *stats = (smelt_cache_stats){.size = sizeof *stats,
                                 .folder = cache ? cache->folder : "",
                                 .problem = smelt__cache_problem(cache),
                                 .readonly = cache ? cache->readonly : "",
                                 .readonly_problem = readonly_problem};
    if (!cache)
        return SMELT_OK;
    stats->cap_bytes = cache->cap_bytes;
    count_readonly(cache, readonly_problem, stats);
    if (cache->problem[0] != '\0')
        return SMELT_OK;
    read_counters(cache, stats);
    struct tally cubins = {0}, emulated = {0};
    struct smelt__saved_error message;
    smelt_status status = maintenance_walk(cache, SMELT__OUTPUT_CUBIN, count_found, &cubins);
    smelt__error_save(&message);
    status = join(status, &message,
                  maintenance_walk(cache, SMELT__OUTPUT_EMULATED, count_found, &emulated));
    stats->entries = cubins.entries;
    stats->bytes = cubins.bytes;
    stats->temporaries = cubins.temporaries;
    stats->emulated_entries = emulated.entries;
    stats->emulated_bytes = emulated.bytes;
    return status;
}

struct walk {
    smelt_cache_entry_function each;
    void *user;
    bool readonly;                        /* by the trust rules of a read-only layer */
    const struct smelt__archive *archive; /* NULL: a folder */
    int ended;                            /* by the caller's function */
};

static int report(struct walk *walk, const char *path, const smelt_kernel_info *info) {
    walk->ended = walk->each(walk->user, path, info) != 0;
    return walk->ended;
}

static int report_valid(struct walk *walk, const char *path,
                        const struct smelt__cache_entry *entry) {
    const struct smelt__compiled *compiled = &entry->compiled;
    char key[33];
    const smelt_kernel_info info = {.size = sizeof info,
                                    .spec = compiled->spec,
                                    .arch = entry->key.arch,
                                    .kernel = compiled->kernel_name,
                                    .key = key,
                                    .error = "",
                                    .state = SMELT_KERNEL_CACHED,
                                    .compile_seconds = compiled->compile_seconds,
                                    .registers = compiled->registers,
                                    .spill_bytes = compiled->spill_bytes,
                                    .static_shared_bytes = compiled->static_shared_bytes,
                                    .dynamic_shared_bytes = compiled->dynamic_shared_bytes,
                                    .threads = compiled->threads,
                                    .cubin_bytes = compiled->cubin_bytes,
                                    .kept = 1,
                                    .nvrtc_major = entry->compiler.major,
                                    .nvrtc_minor = entry->compiler.minor};
    smelt__cache_key_hex(&entry->key, key);
    return report(walk, path, &info);
}

static int report_invalid(struct walk *walk, const char *path, enum smelt__read_state state,
                          const char *why) {
    char key[33], error[4096 + 512]; /* a path and a reason */
    const smelt_kernel_info info = {.size = sizeof info,
                                    .spec = "",
                                    .arch = "",
                                    .kernel = "",
                                    .key = key,
                                    .error = error,
                                    .state = SMELT_KERNEL_FAILED,
                                    .status = state == SMELT__READ_FOREIGN ? SMELT_ERROR_UNSUPPORTED
                                                                           : SMELT_ERROR_CACHE};
    snprintf(key, sizeof key, "%.32s", path + sizeof "ab/" - 1);
    snprintf(error, sizeof error, "%s: %s", path, why);
    return report(walk, path, &info);
}

/* An entry that was read, `path` within its layer. */
static int walk_entry(struct walk *walk, const char *path, enum smelt__read_state state,
                      struct smelt__cache_entry *entry, const char *why) {
    int result;

    if (state == SMELT__READ_ABSENT) /* evicted since it was listed */
        return 0;
    if (state != SMELT__READ_SOUND)
        return report_invalid(walk, path, state, why);
    /* Older versions of smelt stored emulated kernels here; they are never looked up. */
    result = entry->key.output == SMELT__OUTPUT_EMULATED ? 0 : report_valid(walk, path, entry);
    free(entry->compiled.cubin);
    return result;
}

static int walk_found(void *user, const struct smelt__found *found) {
    struct walk *walk = user;
    struct smelt__cache_entry entry;
    const char *why;

    if (found->temporary)
        return 0;
    const enum smelt__read_state state =
        smelt__file_read(found->subfolder, found->name, walk->readonly, false, &entry, &why);
    return walk_entry(walk, found->path, state, &entry, why);
}

static int walk_record(void *user, const struct smelt__archive_record *record) {
    struct walk *walk = user;
    char name[SMELT__FILE_NAME_BYTES], path[SMELT__FILE_NAME_BYTES + 3];
    struct smelt__cache_entry entry;
    const char *why;

    smelt__cache_name_of_binary(record->name, name);
    snprintf(path, sizeof path, "%.2s/%s", name, name);
    const enum smelt__read_state state =
        smelt__entry_read(walk->archive->file, record->offset, record->bytes, name, &entry, &why);
    return walk_entry(walk, path, state, &entry, why);
}

static smelt_status walk_archive(const char *path, struct walk *walk) {
    struct smelt__archive archive;
    smelt_status status = SMELT_OK;
    char why[512];

    if (smelt__archive_open(path, &archive, why, sizeof why) != 0)
        return why[0] ? smelt__fail(SMELT_ERROR_CACHE, "%s", why)
                      : smelt__fail(SMELT_ERROR_CACHE, "%s: %s", path, strerror(errno));
    walk->archive = &archive;
    if (smelt__archive_each(&archive, walk_record, walk, why, sizeof why) < 0)
        status = smelt__fail(SMELT_ERROR_CACHE, "%s: %s", path, why);
    smelt__archive_close(&archive);
    return status;
}

static smelt_status walk_layer(const char *path, struct walk *walk) {
    smelt_status status = SMELT_OK;
    struct smelt__unread unread;
    char why[512];
    const int folder = smelt__folder_open(path, true, why, sizeof why);

    walk->readonly = true;
    if (folder < 0)
        return errno == ENOTDIR || errno == ENOENT ? walk_archive(path, walk)
                                                   : smelt__fail(SMELT_ERROR_CACHE, "%s", why);
    if (smelt__folder_each(folder, true, walk_found, walk, &unread) == -1)
        status = smelt__unread_fail(&unread, path);
    close(folder);
    return status;
}

smelt_status smelt__cache_walk(struct smelt__cache *cache, const char *path,
                               smelt_cache_entry_function each, void *user) {
    struct walk walk = {.each = each, .user = user};

    if (!each)
        return smelt__fail_null("the function to call");
    smelt_status status = path ? walk_layer(path, &walk)
                               : maintenance_walk(cache, SMELT__OUTPUT_CUBIN, walk_found, &walk);
    return status == SMELT_OK && walk.ended
               ? smelt__fail(SMELT_ERROR_CANCELLED, "the caller's function stopped the walk")
               : status;
}

struct verification {
    uint64_t sound, removed;
    struct unprocessed unprocessed;
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
    /* Keep it if a store has replaced it since. */
    if (state == SMELT__READ_BAD &&
        fstatat(found->subfolder, found->name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
        now.st_ino == found->status.st_ino) {
        if (remove_found(found))
            counts->removed++;
        else if (errno != ENOENT)
            note_unprocessed(&counts->unprocessed, found->path, strerror(errno));
    }
    if (state == SMELT__READ_FAILED || state == SMELT__READ_STALE)
        note_unprocessed(&counts->unprocessed, found->path, why);
    return 0;
}

smelt_status smelt__cache_verify(struct smelt__cache *cache, uint64_t *sound, uint64_t *removed) {
    struct verification counts = {0};
    smelt_status status = walk_both(cache, verify_found, &counts);

    status = check_unprocessed(status, cache, &counts.unprocessed, "read or removed");
    if (sound)
        *sound = counts.sound;
    if (removed)
        *removed = counts.removed;
    return status;
}

struct clearing {
    uint64_t removed;
    struct unprocessed unprocessed;
};

static int clear_found(void *user, const struct smelt__found *found) {
    struct clearing *clearing = user;
    const int removed = smelt__found_remove(found->subfolder, found->name);

    if (removed < 0)
        note_unprocessed(&clearing->unprocessed, found->path, strerror(errno));
    clearing->removed += removed > 0 && !found->temporary;
    return 0;
}

smelt_status smelt__cache_clear(struct smelt__cache *cache, uint64_t *removed) {
    struct clearing clearing = {0};
    int folder;
    smelt_status status = smelt__maintenance_open(cache, SMELT__OUTPUT_CUBIN, &folder);

    if (status == SMELT_OK && folder >= 0) {
        smelt__counters_record(cache);
        smelt__counters_remove(folder);
        close(folder);
        status = walk_both(cache, clear_found, &clearing);
        status = check_unprocessed(status, cache, &clearing.unprocessed, "removed");
    }
    if (removed)
        *removed = clearing.removed;
    return status;
}

/* ---- pruning ------------------------------------------------------------------------------- */

/* Waits for another process's eviction, but not longer than one should take. */
static void wait_for_evictor(struct smelt__cache *cache, int *lock) {
    enum { TRIES = 50, PAUSE_NS = 10000000 };
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    for (int i = 0; i < TRIES && !smelt__cache_evictor_lock(cache, lock); i++)
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

/* Prunes the folder of one kind and adds up the counts. */
static smelt_status prune_kind(struct smelt__cache *cache, enum smelt__output output,
                               uint64_t max_bytes, uint64_t older_than_seconds,
                               smelt_cache_pruned *pruned) {
    const char *root = smelt__cache_root(cache, output);
    struct smelt__pruning pruning = {.unused_since = INT64_MIN};
    struct timespec now;
    int folder;
    smelt_status status = smelt__maintenance_open(cache, output, &folder);

    if (status != SMELT_OK || folder < 0)
        return status;
    if (smelt__folder_now(folder, &now) != 0) {
        status = smelt__fail(SMELT_ERROR_CACHE, "the cache folder %s cannot be written: %s", root,
                             strerror(errno));
        goto out;
    }
    pruning.goal_bytes = max_bytes ? max_bytes : cache->cap_bytes;
    if (pruning.goal_bytes == 0) /* a cache without a cap */
        pruning.goal_bytes = UINT64_MAX;
    if (older_than_seconds > 0 && older_than_seconds < (uint64_t)now.tv_sec)
        pruning.unused_since = now.tv_sec - (int64_t)older_than_seconds;
    if (smelt__cache_prune_folder(folder, now.tv_sec, &pruning) != 0)
        status = pruning.unread.count > 0
                     ? smelt__unread_fail(&pruning.unread, root)
                     : smelt__fail(SMELT_ERROR_CACHE,
                                   "the cache folder %s cannot be read or pruned completely: %s",
                                   root, strerror(errno));
    pruned->removed += pruning.removed;
    pruned->removed_bytes += pruning.removed_bytes;
    pruned->temporaries += pruning.temporaries;
    pruned->kept += pruning.kept;
    pruned->kept_bytes += pruning.kept_bytes;
out:
    close(folder);
    return status;
}

smelt_status smelt__cache_prune(struct smelt__cache *cache, uint64_t max_bytes,
                                uint64_t older_than_seconds, smelt_cache_pruned *pruned) {
    smelt_cache_pruned counts = {0};
    struct smelt__saved_error message;
    int folder, lock = -1;
    smelt_status status = smelt__maintenance_open(cache, SMELT__OUTPUT_CUBIN, &folder);

    if (status != SMELT_OK || folder < 0)
        return status;
    close(folder);
    wait_for_evictor(cache, &lock);
    status = prune_kind(cache, SMELT__OUTPUT_CUBIN, max_bytes, older_than_seconds, &counts);
    smelt__error_save(&message);
    status =
        join(status, &message,
             prune_kind(cache, SMELT__OUTPUT_EMULATED, max_bytes, older_than_seconds, &counts));
    smelt__cache_lock_release(lock);
    if (pruned) {
        counts.size = pruned->size;
        *pruned = counts;
    }
    return status;
}
