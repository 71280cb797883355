/*
 * The disk cache of cubins. An atomic rename makes it correct, locks only save work, and any
 * failure degrades to compiling in memory: no call here can fail a launch. Protocol:
 * ARCHITECTURE.md.
 *
 * A cache is thread-safe. Two layers: a read-only one, looked at first, and the writable one.
 */
#ifndef SMELT_RUNTIME_CACHE_H
#define SMELT_RUNTIME_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/compiled.h"
#include "runtime/cubin.h"
#include "runtime/log.h"
#include "smelt/cache.h"
#include "smelt/context.h"

struct smelt__cache; /* opaque */

/* Everything resolved: no environment is read here. Strings are copied. */
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

/* What identifies a kernel: its source, options, architecture, what it is compiled to. Fields are
 * compared on a hit. */
struct smelt__cache_key {
    unsigned char name[16];   /* XXH3-128 over the length-prefixed fields: the file's name */
    unsigned char digest[32]; /* a second, independent 256-bit digest of the same fields */
    uint64_t input_bytes;     /* total length of the fields */
    char arch[16];
    enum smelt__output output; /* what the compiler is asked for */
};

/* Never NULL unless out of memory; a folder that cannot be used is noted, warned of once, and
 * bypassed. */
struct smelt__cache *smelt__cache_open(const struct smelt__cache_settings *settings,
                                       const struct smelt__log *log);
void smelt__cache_close(struct smelt__cache *cache);

/* The writable layer's folder ("" when none), and why it is bypassed ("" when it is not). */
const char *smelt__cache_folder(const struct smelt__cache *cache);
const char *smelt__cache_problem(const struct smelt__cache *cache);

/* options: NULL-terminated, in order. */
void smelt__cache_key_make(struct smelt__cache_key *key, const char *source, size_t source_bytes,
                           const char *const *options, const char *arch, enum smelt__output output);
/* 32 hex digits and a NUL. */
void smelt__cache_key_hex(const struct smelt__cache_key *key, char hex[33]);

/*
 * Looks into the read-only layer (any compiler's newest entry, the exact one preferred), then the
 * writable one: this compiler's entry, or, when `compiler` is NULL (no NVRTC was found), any
 * compiler's newest. 1: hit, *compiled filled; 0: miss. Damaged entries are misses, counted as
 * errors, and will be renamed over by the next store.
 *
 * The cache counts each request once, however many lookups it makes. This function and
 * smelt__cache_lock count a hit; the caller calls smelt__cache_missed, which counts a miss, once it
 * knows that the cache will not serve the request.
 */
int smelt__cache_lookup(struct smelt__cache *cache, const struct smelt__cache_key *key,
                        const struct smelt__compiler_id *compiler,
                        struct smelt__compiled *compiled);
void smelt__cache_missed(struct smelt__cache *cache, const struct smelt__cache_key *key);

/* Writes an entry: temporary, fsync, rename. 0; -1: `why` says why it is not kept, which is logged
 * and never fatal. Evicts afterwards when over the cap. */
enum { SMELT__CACHE_WHY = 512 };
int smelt__cache_store(struct smelt__cache *cache, const struct smelt__cache_key *key,
                       const struct smelt__compiler_id *compiler,
                       const struct smelt__compiled *compiled, char why[SMELT__CACHE_WHY]);

/* Removes one entry (the driver refused it). */
void smelt__cache_forget(struct smelt__cache *cache, const struct smelt__cache_key *key,
                         const struct smelt__compiler_id *compiler);

/*
 * The right to compile this key. Polls without blocking until it is had, or the entry appears
 * (looked up at each poll: 1 is returned and *compiled filled, no lock is held), or the deadline
 * passes, or locks do not work here (0: go on and compile; *lock may hold none). Release with
 * smelt__cache_unlock in any case.
 */
struct smelt__cache_lock {
    int fd; /* -1: none held */
};
int smelt__cache_lock(struct smelt__cache *cache, const struct smelt__cache_key *key,
                      const struct smelt__compiler_id *compiler, struct smelt__cache_lock *lock,
                      struct smelt__compiled *compiled);
/* The same without waiting: -1 when another process has it and the entry is not there. */
int smelt__cache_try_lock(struct smelt__cache *cache, const struct smelt__cache_key *key,
                          const struct smelt__compiler_id *compiler, struct smelt__cache_lock *lock,
                          struct smelt__compiled *compiled);
void smelt__cache_unlock(struct smelt__cache *cache, struct smelt__cache_lock *lock);

/* The public maintenance calls, on a cache (same contracts as in smelt/cache.h). */
/* Strings are the cache's, but for readonly_problem, which is the caller's buffer. */
enum { SMELT__CACHE_PROBLEM = 512 };
smelt_status smelt__cache_stat(struct smelt__cache *cache,
                               char readonly_problem[SMELT__CACHE_PROBLEM],
                               smelt_cache_stats *stats);
smelt_status smelt__cache_walk(struct smelt__cache *cache, smelt_cache_entry_function each,
                               void *user);
smelt_status smelt__cache_verify(struct smelt__cache *cache, uint64_t *sound, uint64_t *removed);
smelt_status smelt__cache_clear(struct smelt__cache *cache, uint64_t *removed);
smelt_status smelt__cache_prune(struct smelt__cache *cache, uint64_t max_bytes,
                                uint64_t older_than_seconds, smelt_cache_pruned *pruned);

/* The tuning files that travel with a cache are its callers': `tuning` is such a file's text. */
smelt_status smelt__cache_export(struct smelt__cache *cache, const char *path, const char *tuning,
                                 size_t tuning_bytes, smelt_cache_transfer *result);
/* *tuning: malloc'ed, NULL when none came along. */
smelt_status smelt__cache_import(struct smelt__cache *cache, const char *path, char **tuning,
                                 size_t *tuning_bytes, smelt_cache_transfer *result);
/* 1: the read-only layer is one file, and *text is that of the tuning file in it, malloc'ed and
 * followed by a NUL, or NULL when there is none that can be used. 0: it is a folder, or there is
 * none. */
int smelt__cache_archive_tuning(struct smelt__cache *cache, char **text, size_t *bytes);

/* Counters since open; read with relaxed atomics. */
struct smelt__cache_counts {
    uint64_t hits, misses, errors;
};
struct smelt__cache_counts smelt__cache_counts(const struct smelt__cache *cache);

#endif
