/* Storing an entry, and removing one that the driver refused. A failure is logged and returned as
 * -1; the kernel can be used all the same. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cache/internal.h"

/* Opens the layer for writing, creating it if needed. */
static int open_for_store(const char *root, char *why, size_t why_bytes) {
    int folder = smelt__folder_make(root, why, why_bytes);

    if (folder < 0 && why[0] == '\0')
        snprintf(why, why_bytes, "%s: %s", root, strerror(errno));
    return folder;
}

int smelt__cache_store_entry(struct smelt__cache *cache, const struct smelt__cache_entry *entry,
                             char *why, size_t why_bytes) {
    const char *root = smelt__cache_root(cache, entry->key.output);
    uint64_t bytes = entry->compiled.cubin_bytes;
    char name[SMELT__FILE_NAME_BYTES];
    struct timespec now;
    int folder, subfolder, result = -1;

    if (bytes == 0 || bytes > SMELT__CUBIN_MAX_BYTES) {
        snprintf(why, why_bytes, "its size, %llu bytes, is 0 or above 64 MiB",
                 (unsigned long long)bytes);
        return -1;
    }
    if (smelt__output_of(entry->compiled.cubin, entry->compiled.cubin_bytes) != entry->key.output) {
        snprintf(why, why_bytes, "the compiler's output is %s, expected was %s",
                 smelt__output_name(
                     smelt__output_of(entry->compiled.cubin, entry->compiled.cubin_bytes)),
                 smelt__output_name(entry->key.output));
        return -1;
    }
    folder = open_for_store(root, why, why_bytes);
    if (folder < 0)
        return -1;
    smelt__cache_file_name(&entry->key, &entry->compiler, name);
    subfolder = smelt__subfolder_open(folder, name, false, true);
    if (subfolder >= 0)
        result = smelt__file_write(subfolder, name, entry, &now);
    if (result != 0) {
        snprintf(why, why_bytes, "writing into %.400s: %s", root, strerror(errno));
    } else {
        smelt__cache_count(cache, entry->key.output, SMELT__COUNT_STORES, 1);
        smelt__log_write(&cache->log, SMELT_LOG_DEBUG, "cache: stored %s", name);
        smelt__cache_evict(cache, folder, bytes + SMELT__ENTRY_HEADER_BYTES, name, &now);
    }
    if (subfolder >= 0)
        close(subfolder);
    close(folder);
    return result;
}

int smelt__cache_store(struct smelt__cache *cache, const struct smelt__cache_key *key,
                       const struct smelt__compiler_id *compiler,
                       const struct smelt__compiled *compiled, char why[SMELT__CACHE_WHY]) {
    struct smelt__cache_entry entry;
    int result;

    snprintf(why, SMELT__CACHE_WHY, "%s",
             cache && !cache->disabled
                 ? "kernels made with SMELT_EMU_SOURCE, SMELT_EMU_CFLAGS or SMELT_EMU_KEEP are "
                   "not stored"
                 : "the cache is disabled");
    if (!smelt__cache_serves(cache, key->output))
        return -1;
    snprintf(why, SMELT__CACHE_WHY, "%s", cache->problem);
    if (cache->problem[0] != '\0') /* logged when the cache was opened */
        return -1;
    entry = (struct smelt__cache_entry){.key = *key, .compiler = *compiler, .compiled = *compiled};
    result = smelt__cache_store_entry(cache, &entry, why, SMELT__CACHE_WHY);
    if (result != 0) {
        smelt__cache_count(cache, key->output, SMELT__COUNT_ERRORS, 1);
        smelt__cache_warn_once(cache, SMELT__WARNED_STORE, "cache: a kernel is not stored: %s",
                               why);
    }
    smelt__counters_record(cache);
    return result;
}

void smelt__cache_forget(struct smelt__cache *cache, const struct smelt__cache_key *key,
                         const struct smelt__compiler_id *compiler) {
    char why[512], name[SMELT__FILE_NAME_BYTES], newest[SMELT__FILE_NAME_BYTES];
    int folder, subfolder = -1;

    if (!cache || cache->disabled)
        return;
    if (cache->readonly[0] != '\0')
        smelt__cache_refuse(cache, key);
    if (!smelt__cache_is_writable(cache))
        return;
    folder = smelt__folder_open(smelt__cache_root(cache, key->output), false, why, sizeof why);
    smelt__cache_file_name(key, compiler, name);
    if (folder >= 0)
        subfolder = smelt__subfolder_open(folder, name, false, false);
    /* Without a compiler, the refused entry was the newest compiler's. */
    if (subfolder >= 0 && !compiler && smelt__subfolder_list(subfolder, name, &newest, 1) == 1)
        memcpy(name, newest, sizeof name);
    if (subfolder >= 0 && unlinkat(subfolder, name, 0) == 0)
        smelt__log_write(&cache->log, SMELT_LOG_INFO, "cache: removed %s, which the driver refused",
                         name);
    if (subfolder >= 0)
        close(subfolder);
    if (folder >= 0)
        close(folder);
}
