/*
 * smelt: looking after the disk cache. The protocol is described in ARCHITECTURE.md; a program that
 * only runs kernels needs none of this.
 */
#ifndef SMELT_CACHE_H
#define SMELT_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "smelt/context.h"
#include "smelt/kernels.h"
#include "smelt/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The strings live as long as the context. */
typedef struct smelt_cache_stats {
    size_t size;
    const char *folder;           /* the writable layer; "" when there is none */
    const char *problem;          /* why it is bypassed; "" when it works */
    const char *readonly;         /* the read-only layer, a folder or an exported file; "": none */
    const char *readonly_problem; /* why it is bypassed; "" when it works or there is none */
    uint64_t entries;             /* in the writable layer */
    uint64_t bytes;
    uint64_t cap_bytes;
    uint64_t temporaries; /* unfinished writes, swept after an hour */
    uint64_t readonly_entries;
    uint64_t readonly_bytes;
    /* What all processes did with this cache since it was made or cleared. A little may be missing:
     * the last second of a process that was killed, and records that several nodes appended to a
     * network file system at one moment. A program's own, exact counts: smelt_context_counters. */
    uint64_t hits;          /* kernels found in the writable layer */
    uint64_t readonly_hits; /* kernels found in the read-only layer */
    uint64_t misses;        /* lookups that found none */
    uint64_t stores;        /* kernels stored */
    uint64_t errors;        /* entries or folders that could not be used */
    double saved_seconds;   /* of compilation, that the hits spared */
    /* Kernels for the emulator, which have a folder of their own in the writable layer. The fields
     * above do not count them, walks and exports leave them out, and they have a cap of their own,
     * of the same size. */
    uint64_t emulated_entries;
    uint64_t emulated_bytes;
} smelt_cache_stats;

#define SMELT_CACHE_STATS_INIT SMELT_INIT(smelt_cache_stats)

/* Counts the layers, into *stats, whose `size` the caller has set. A cache that cannot be used is
 * not an error: `problem` says why. Errors: INVALID_ARGUMENT, CACHE (a folder that stopped being
 * readable half-way), OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_cache_get_stats(const smelt_context *context,
                                             smelt_cache_stats *stats);

/* Called once per entry: what its header says, valid during the call. state: CACHED for a sound
 * entry, FAILED (with `error`) for one that is not: status UNSUPPORTED for an entry of another
 * version of smelt, CACHE for the rest. A value other than 0 ends the walk, which then returns
 * CANCELLED, as enumerations of kernels.h and tuning.h do. */
typedef int (*smelt_cache_entry_function)(void *user, const char *file,
                                          const smelt_kernel_info *info);

/* Walks the writable layer, reading every entry completely and checking it. Errors:
 * INVALID_ARGUMENT, CACHE (a folder that cannot be used or read), CANCELLED, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_cache_walk(const smelt_context *context,
                                        smelt_cache_entry_function each, void *user);

/* Checks every entry, removes those that are not sound, and counts both kinds. Like prune and clear
 * it includes emulated kernels. NULL counts are legal. Errors: INVALID_ARGUMENT, CACHE,
 * OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_cache_verify(smelt_context *context, uint64_t *sound,
                                          uint64_t *removed);

typedef struct smelt_cache_pruned {
    size_t size;
    uint64_t removed, removed_bytes; /* entries */
    uint64_t temporaries;            /* unfinished writes older than an hour, removed too */
    uint64_t kept, kept_bytes;       /* entries */
} smelt_cache_pruned;

#define SMELT_CACHE_PRUNED_INIT SMELT_INIT(smelt_cache_pruned)

/*
 * Removes the least recently used entries of the writable layer: those not used for
 * `older_than_seconds` (0: age does not matter; ages are known to ten minutes, since a hit renews
 * an entry's time no more often), then the oldest until at most `max_bytes` are left (0: the cap).
 * An entry that is used meanwhile stays. Other processes may go on storing and looking up. *pruned
 * may be NULL; its `size` is set by the caller; on failure it says how far the call came, as the
 * results of export and import do. Errors: INVALID_ARGUMENT, CACHE (a folder that cannot be used,
 * read or written), OUT_OF_MEMORY.
 */
SMELT_API smelt_status smelt_cache_prune(smelt_context *context, uint64_t max_bytes,
                                         uint64_t older_than_seconds, smelt_cache_pruned *pruned);

typedef struct smelt_cache_transfer {
    size_t size;
    uint64_t entries; /* exported or imported */
    uint64_t bytes;   /* of the exported file, or of the imported entries */
    uint64_t present; /* import: kernels that were in the cache already */
    uint64_t foreign; /* entries of another version of smelt, passed over */
    uint64_t damaged; /* entries that are not sound, passed over; the log says which */
    uint64_t tuning;  /* tuning entries exported, or added to the own file */
} smelt_cache_transfer;

#define SMELT_CACHE_TRANSFER_INIT SMELT_INIT(smelt_cache_transfer)

/*
 * Writes every sound entry of both layers, and the context's tuning entries, into one file at
 * `path` (relative to the working directory), which takes the place of a file that is there when it
 * is complete; anything else there, a link too, is refused. It is a tar file: another machine
 * imports it, names it as its read-only layer (cache_readonly_dir), or unpacks it into a folder and
 * names that: so kernels come into a container image. The same entries give the same bytes. *result
 * may be NULL; its `size` is set by the caller. Errors: INVALID_ARGUMENT, CACHE, OUT_OF_MEMORY.
 */
SMELT_API smelt_status smelt_cache_export(const smelt_context *context, const char *path,
                                          smelt_cache_transfer *result);

/*
 * Stores into the writable layer what an exported file, or a folder that is a layer, holds and the
 * cache does not; tuning entries for kernels and devices that the own tuning file does not know are
 * added to that (unless there is none: tuning_disable). Entries that are not sound are passed over
 * and counted. A file whose index is not sound is refused as a whole, one that everybody can write
 * to as well. *result may be NULL. Errors: INVALID_ARGUMENT, CACHE (naming the place in the file;
 * also a file larger than the cache's cap), OUT_OF_MEMORY.
 */
SMELT_API smelt_status smelt_cache_import(smelt_context *context, const char *path,
                                          smelt_cache_transfer *result);

/* Removes every entry and temporary of the writable layer and begins the counters anew (never the
 * lock file or anything that is not ours). *removed, which counts the entries, may be NULL. Errors:
 * INVALID_ARGUMENT, CACHE, OUT_OF_MEMORY. */
SMELT_API smelt_status smelt_cache_clear(smelt_context *context, uint64_t *removed);

#ifdef __cplusplus
}
#endif

#endif
