/*
 * The disk cache of cubins. Its correctness rests on atomic renames; locks only save work. Every
 * failure falls back to compiling in memory: no call here can fail a launch. Protocol:
 * ARCHITECTURE.md.
 *
 * A cache is thread-safe. It has two layers: lookups try the read-only one first, then the writable
 * one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/compiled.h"
#include "runtime/cubin.h"
#include "runtime/log.h"
#include "smelt/cache.h"
#include "smelt/context.h"

struct smelt__cache; /* opaque */

/* All settings are resolved; the cache reads no environment variables. Strings are copied. */
struct smelt__cache_settings {
    const char *folder;          /* "" : no writable layer (no HOME) */
    const char *readonly_folder; /* "" : none */
    uint64_t cap_bytes;
    smelt_cache_lock lock;
    int lock_timeout_ms;
    int disable;
    int disable_emulated; /* neither reads nor stores the emulator's kernels */
    int recompile;
};

/* Identifies a kernel by its source, options, architecture and kind of output. A hit compares all
 * fields. */
struct smelt__cache_key {
    unsigned char name[16];   /* XXH3-128 over the length-prefixed fields: the file's name */
    unsigned char digest[32]; /* a second, independent 256-bit digest of the same fields */
    uint64_t input_bytes;     /* total length of the fields */
    char arch[16];
    enum smelt__output output; /* the kind of output asked for */
};

/* NULL only when out of memory. A folder that cannot be used is bypassed, with one warning. */
struct smelt__cache *smelt__cache_open(const struct smelt__cache_settings *settings,
                                       const struct smelt__log *log);
void smelt__cache_close(struct smelt__cache *cache);

/* The writable layer's folder ("": none), and why it is bypassed ("": it is not). */
const char *smelt__cache_folder(const struct smelt__cache *cache);
const char *smelt__cache_problem(const struct smelt__cache *cache);

/* input: the source, or a text that determines it. options: NULL-terminated, in order. */
void smelt__cache_key_make(struct smelt__cache_key *key, const char *input, size_t input_bytes,
                           const char *const *options, const char *arch, enum smelt__output output);
/* 32 hex digits and a NUL. */
void smelt__cache_key_hex(const struct smelt__cache_key *key, char hex[33]);

/*
 * Looks in the read-only layer (this compiler's entry, else the newest of any compiler), then in
 * the writable one (this compiler's entry; with `compiler` NULL, when no NVRTC was found, the
 * newest of any compiler). 1: hit, *compiled filled; 0: miss. Damaged entries are misses, count as
 * errors, and are replaced by the next store.
 *
 * The cache counts each request once, however many lookups it makes. This function and
 * smelt__cache_lock count a hit; the caller counts a miss, by smelt__cache_missed, once it knows
 * that the cache will not serve the request.
 */
int smelt__cache_lookup(struct smelt__cache *cache, const struct smelt__cache_key *key,
                        const struct smelt__compiler_id *compiler,
                        struct smelt__compiled *compiled);
void smelt__cache_missed(struct smelt__cache *cache, const struct smelt__cache_key *key);

/* Writes an entry (temporary file, fsync, rename), then evicts if the cache is above its cap. 0;
 * -1: `why` is the reason, which is logged and never fatal. */
enum { SMELT__CACHE_WHY = 512 };
int smelt__cache_store(struct smelt__cache *cache, const struct smelt__cache_key *key,
                       const struct smelt__compiler_id *compiler,
                       const struct smelt__compiled *compiled, char why[SMELT__CACHE_WHY]);

/* Removes one entry, which the driver refused. */
void smelt__cache_forget(struct smelt__cache *cache, const struct smelt__cache_key *key,
                         const struct smelt__compiler_id *compiler);

/*
 * Acquires the lock that grants compiling this key. With `wait` it polls until the lock is acquired,
 * the entry appears, the deadline passes, or locking fails. 1: the entry appeared, *compiled is
 * filled and no lock is held; 0: compile it, with or without the lock; -1, without `wait`: another
 * process holds the lock and there is no entry yet. Release with smelt__cache_unlock in any case.
 */
struct smelt__cache_lock {
    int fd; /* -1: none held */
};
int smelt__cache_lock(struct smelt__cache *cache, const struct smelt__cache_key *key,
                      const struct smelt__compiler_id *compiler, bool wait,
                      struct smelt__cache_lock *lock, struct smelt__compiled *compiled);
void smelt__cache_unlock(struct smelt__cache *cache, struct smelt__cache_lock *lock);

/* The public maintenance calls, on a cache (contracts: smelt/cache.h). */
/* Strings belong to the cache, except readonly_problem, the caller's buffer. */
enum { SMELT__CACHE_PROBLEM = 512 };
smelt_status smelt__cache_stat(struct smelt__cache *cache,
                               char readonly_problem[SMELT__CACHE_PROBLEM],
                               smelt_cache_stats *stats);
smelt_status smelt__cache_walk(struct smelt__cache *cache, const char *path,
                               smelt_cache_entry_function each, void *user);
smelt_status smelt__cache_verify(struct smelt__cache *cache, uint64_t *sound, uint64_t *removed);
smelt_status smelt__cache_clear(struct smelt__cache *cache, uint64_t *removed);
smelt_status smelt__cache_prune(struct smelt__cache *cache, uint64_t max_bytes,
                                uint64_t older_than_seconds, smelt_cache_pruned *pruned);

/* `tuning` is the text of a tuning file to store in the export; the cache does not interpret it. */
smelt_status smelt__cache_export(struct smelt__cache *cache, const char *path, const char *tuning,
                                 size_t tuning_bytes, smelt_cache_transfer *result);
/* *tuning: malloc'ed; NULL when the import has none. */
smelt_status smelt__cache_import(struct smelt__cache *cache, const char *path, char **tuning,
                                 size_t *tuning_bytes, smelt_cache_transfer *result);
/* 1: the read-only layer is an archive; *text is its tuning file's text, malloc'ed and
 * NUL-terminated, or NULL when it has none that can be used. 0: it is a folder, or there is none.
 */
int smelt__cache_archive_tuning(struct smelt__cache *cache, char **text, size_t *bytes);

/* Counters since open; read with relaxed atomics. */
struct smelt__cache_counts {
    uint64_t hits, misses, errors;
};
struct smelt__cache_counts smelt__cache_counts(const struct smelt__cache *cache);
