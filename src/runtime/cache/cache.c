/* Opening and closing a cache, and whether its folder can be used. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cache/internal.h"

/* The absolute path, so that a change of the working directory does not move the cache, without
 * trailing slashes, which would make the system follow a symbolic link at its end. The path as
 * given if the working directory has been removed. NULL when out of memory. */
static char *absolute_path(const char *path) {
    char *here = NULL, *joined = NULL;

    if (path && path[0] != '\0' && path[0] != '/')
        here = getcwd(NULL, 0);
    if (!here)
        joined = strdup(path ? path : "");
    else if (asprintf(&joined, "%s/%s", here, path) < 0)
        joined = NULL;
    free(here);
    if (joined)
        for (size_t end = strlen(joined); end > 1 && joined[end - 1] == '/'; end--)
            joined[end - 1] = '\0';
    return joined;
}

/* Creates and checks the writable layer; a fault is stored in cache->problem. */
static void check_folder(struct smelt__cache *cache) {
    char why[sizeof cache->problem];
    int folder;

    if (cache->folder[0] == '\0') {
        snprintf(cache->problem, sizeof cache->problem,
                 "there is no cache folder: neither SMELT_CACHE_DIR, XDG_CACHE_HOME nor HOME is "
                 "set");
        return;
    }
    if (cache->folder[0] != '/') {
        snprintf(cache->problem, sizeof cache->problem,
                 "%.400s: the working directory cannot be determined: name an absolute path",
                 cache->folder);
        return;
    }
    folder = cache->disabled ? smelt__folder_open(cache->folder, false, why, sizeof why)
                             : smelt__folder_make(cache->folder, why, sizeof why);
    if (folder >= 0)
        close(folder);
    else if (errno != ENOENT)
        memcpy(cache->problem, why, sizeof cache->problem);
    else if (!cache->disabled)
        snprintf(cache->problem, sizeof cache->problem, "%.400s: %s", cache->folder,
                 strerror(ENOENT));
}

struct smelt__cache *smelt__cache_open(const struct smelt__cache_settings *settings,
                                       const struct smelt__log *log) {
    struct smelt__cache *cache = calloc(1, sizeof *cache);

    if (!cache)
        return NULL;
    cache->folder = absolute_path(settings->folder);
    cache->readonly = absolute_path(settings->readonly_folder);
    if (!cache->folder || !cache->readonly ||
        (*cache->folder ? asprintf(&cache->emulated, "%s/emulated", cache->folder) < 0
                        : !(cache->emulated = strdup("")))) {
        smelt__cache_close(cache);
        return NULL;
    }
    smelt__counters_begin(cache);
    if (log)
        cache->log = *log;
    cache->cap_bytes = settings->cap_bytes;
    cache->lock_mode = settings->lock;
    cache->lock_timeout_ms = settings->lock_timeout_ms;
    cache->disabled = settings->disable != 0;
    cache->disabled_emulated = settings->disable_emulated != 0;
    cache->recompile = settings->recompile != 0;
    check_folder(cache);
    if (cache->problem[0] != '\0' && !cache->disabled)
        smelt__cache_warn_once(cache, SMELT__WARNED_FOLDER,
                               "cache: going on without a writable cache: %s", cache->problem);
    return cache;
}

void smelt__cache_close(struct smelt__cache *cache) {
    if (!cache)
        return;
    if (cache->folder)
        smelt__counters_record(cache);
    free(cache->folder);
    free(cache->emulated);
    free(cache->readonly);
    free(cache);
}

const char *smelt__cache_folder(const struct smelt__cache *cache) {
    return cache ? cache->folder : "";
}

const char *smelt__cache_root(const struct smelt__cache *cache, enum smelt__output output) {
    return output == SMELT__OUTPUT_EMULATED ? cache->emulated : cache->folder;
}

const char *smelt__cache_problem(const struct smelt__cache *cache) {
    return cache ? cache->problem : "out of memory";
}

bool smelt__cache_serves(const struct smelt__cache *cache, enum smelt__output output) {
    return cache && !cache->disabled &&
           !(cache->disabled_emulated && output == SMELT__OUTPUT_EMULATED);
}

bool smelt__cache_is_writable(const struct smelt__cache *cache) {
    return cache && !cache->disabled && cache->problem[0] == '\0';
}
