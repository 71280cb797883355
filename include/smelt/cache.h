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

typedef struct smelt_cache_stats {
    size_t size;
    char folder[4096];   /* the writable layer; "" when there is none */
    char readonly[4096]; /* the read-only layer; "" when there is none */
    char problem[512];   /* why the writable layer is bypassed; "" when it works */
    uint64_t entries;    /* in the writable layer */
    uint64_t bytes;
    uint64_t cap_bytes;
    uint64_t temporaries; /* unfinished writes, swept after an hour */
} smelt_cache_stats;

/* Counts the writable layer. A cache that cannot be used is not an error: `problem` says why.
 * Errors: INVALID_ARGUMENT, CACHE (a folder that stopped being readable half-way). */
SMELT_API smelt_status smelt_cache_stat(smelt_context *context, smelt_cache_stats *stats);

/* Called once per entry: what its header says, valid during the call. state: CACHED for a sound
 * entry, FAILED (with `error`) for one that is not. A value other than 0 ends the walk. */
typedef int (*smelt_cache_entry_function)(void *user, const char *file,
                                          const smelt_kernel_info *info);

/* Walks the writable layer, reading every entry completely and checking it. */
SMELT_API smelt_status smelt_cache_walk(smelt_context *context, smelt_cache_entry_function each,
                                        void *user);

/* Walks, removes entries that are not sound, and counts both kinds. NULL counts are legal. */
SMELT_API smelt_status smelt_cache_verify(smelt_context *context, uint64_t *sound,
                                          uint64_t *removed);

/* Removes every entry and temporary of the writable layer (never the lock file or anything that is
 * not ours). *removed may be NULL. */
SMELT_API smelt_status smelt_cache_clear(smelt_context *context, uint64_t *removed);

#ifdef __cplusplus
}
#endif

#endif
