/*
 * smelt: inspecting and maintaining the disk cache. A program that only runs kernels does not need
 * this. ARCHITECTURE.md describes the protocol.
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

/* What both layers of the cache hold. The strings live as long as the context. */
typedef struct smelt_cache_stats {
    size_t size;
    const char *folder;           /* the writable layer; "" when there is none */
    const char *problem;          /* why it is bypassed; "" when it works */
    const char *readonly;         /* the read-only layer, a folder or an exported file; "": none */
    const char *readonly_problem; /* why it is bypassed; "" when it works or there is none */
    uint64_t entries;             /* in the writable layer */
    uint64_t bytes;               /* of these entries */
    uint64_t cap_bytes;           /* the most that they may take */
    uint64_t temporaries;         /* unfinished writes, removed after an hour */
    uint64_t readonly_entries;    /* in the read-only layer */
    uint64_t readonly_bytes;      /* of these entries */
    /* Totals over all processes since the cache was created or cleared. A few counts may be
     * missing: the last second of a killed process, and records that several nodes append to a
     * network file system at the same time. smelt_context_get_info has a context's exact counts. */
    uint64_t hits;          /* kernels found in the writable layer */
    uint64_t readonly_hits; /* kernels found in the read-only layer */
    uint64_t misses;        /* lookups that found none */
    uint64_t stores;        /* kernels stored */
    uint64_t errors;        /* entries or folders that could not be used */
    double saved_seconds;   /* compilation time that hits saved */
    /* Kernels for the emulator, in their own folder of the writable layer with a cap of their own
     * of the same size. The fields above do not count them; walks and exports skip them. */
    uint64_t emulated_entries;
    uint64_t emulated_bytes; /* of these */
} smelt_cache_stats;

#define SMELT_CACHE_STATS_INIT SMELT_INIT(smelt_cache_stats)

/* Counts both layers into *stats, whose `size` the caller has set. A cache that cannot be used is
 * not an error: `problem` is the reason. Errors: INVALID_ARGUMENT, CACHE (a folder cannot be
 * read; *stats has the counts of all others), OUT_OF_MEMORY. */
SMELT_CALL smelt_status smelt_cache_get_stats(const smelt_context *context,
                                              smelt_cache_stats *stats);

/* Called once per entry with its header's content, valid during the call. state: CACHED for a valid
 * entry, else FAILED (with `error`) and status UNSUPPORTED for an entry of another version of smelt
 * or CACHE for a damaged one. A result other than 0 stops the walk, which then returns CANCELLED,
 * like the enumerations of kernels.h and tuning.h. */
typedef int (*smelt_cache_entry_function)(void *user, const char *file,
                                          const smelt_kernel_info *info);

/* Walks the writable layer or, unless `path` is NULL, a read-only layer: a folder, or an exported
 * file. Reads and checks every entry completely, and changes nothing. Errors: INVALID_ARGUMENT, CACHE
 * (what cannot be used or read; a damaged index of a file), CANCELLED, OUT_OF_MEMORY. */
SMELT_CALL smelt_status smelt_cache_walk(const smelt_context *context, const char *path,
                                         smelt_cache_entry_function each, void *user);

/* Checks every entry, removes damaged ones, and counts both kinds. Like prune and clear it includes
 * emulated kernels. NULL counts are legal. Errors: INVALID_ARGUMENT, CACHE (also if entries
 * or folders cannot be read or removed; all others are checked nevertheless), OUT_OF_MEMORY. */
SMELT_CALL smelt_status smelt_cache_verify(smelt_context *context, uint64_t *sound,
                                           uint64_t *removed);

/* What smelt_cache_prune removed and kept. */
typedef struct smelt_cache_pruned {
    size_t size;
    uint64_t removed, removed_bytes; /* entries */
    uint64_t temporaries;            /* unfinished writes older than an hour, removed too */
    uint64_t kept, kept_bytes;       /* entries */
} smelt_cache_pruned;

#define SMELT_CACHE_PRUNED_INIT SMELT_INIT(smelt_cache_pruned)

/*
 * Removes entries of the writable layer: those not used for `older_than_seconds` (0: any age; ages
 * are accurate to ten minutes, because hits renew an entry's time no more often), then the least
 * recently used until at most `max_bytes` are left (0: the cap). An entry used meanwhile stays.
 * Other processes may use the cache meanwhile. *pruned may be NULL; its `size` is set by the
 * caller; after a failure it holds the partial result, as the results of export and import do.
 * Errors: INVALID_ARGUMENT, CACHE (the cache or a folder of it cannot be used, read or written; its
 * other folders are pruned nevertheless), OUT_OF_MEMORY.
 */
SMELT_CALL smelt_status smelt_cache_prune(smelt_context *context, uint64_t max_bytes,
                                          uint64_t older_than_seconds, smelt_cache_pruned *pruned);

/* What smelt_cache_export wrote, or smelt_cache_import took over. */
typedef struct smelt_cache_transfer {
    size_t size;
    uint64_t entries; /* exported or imported */
    uint64_t bytes;   /* of the exported file, or of the imported entries */
    uint64_t present; /* import: kernels that were in the cache already */
    uint64_t foreign; /* entries of another version of smelt, skipped */
    uint64_t damaged; /* damaged entries, skipped and logged */
    uint64_t tuning;  /* tuning entries exported, or added to the tuning file */
} smelt_cache_transfer;

#define SMELT_CACHE_TRANSFER_INIT SMELT_INIT(smelt_cache_transfer)

/*
 * Writes every valid entry of both layers, and the context's tuning entries, into one file at
 * `path` (relative to the working directory). It replaces an existing regular file once it is
 * complete; anything else at the path, also a symbolic link, is refused. It is a tar file: another
 * machine imports it, names it as its read-only layer (cache_readonly_dir), or unpacks it and names
 * the folder, for example in a container image. Its member `contents` names the version of smelt and
 * the kernels in text. Equal entries give equal bytes. *result may be
 * NULL; its `size` is set by the caller. Errors: INVALID_ARGUMENT, CACHE, OUT_OF_MEMORY.
 */
SMELT_CALL smelt_status smelt_cache_export(const smelt_context *context, const char *path,
                                           smelt_cache_transfer *result);

/*
 * Adds the entries of an exported file or a layer's folder that the cache lacks to the writable
 * layer, and the tuning entries whose kernel and device the tuning file lacks to that file (not
 * with tuning_disable). Damaged entries are skipped and counted. A file with a damaged index, or
 * that everyone can write, is refused. *result may be NULL. Errors: INVALID_ARGUMENT, CACHE (with
 * the position in the file; also for a file larger than the cache's cap), OUT_OF_MEMORY.
 */
SMELT_CALL smelt_status smelt_cache_import(smelt_context *context, const char *path,
                                           smelt_cache_transfer *result);

/* Removes every entry and temporary file of the writable layer and resets the counters; the lock
 * file and other programs' files stay. *removed, the number of entries, may be NULL. Errors:
 * INVALID_ARGUMENT, CACHE (also if folders cannot be read or entries cannot be removed; all others
 * are removed nevertheless), OUT_OF_MEMORY. */
SMELT_CALL smelt_status smelt_cache_clear(smelt_context *context, uint64_t *removed);

#ifdef __cplusplus
}
#endif

#endif
