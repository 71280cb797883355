/* The public calls that look after a context's cache: see smelt/cache.h. */
#include <stdlib.h>
#include <string.h>

#include "runtime/cache/cache.h"
#include "runtime/context.h"
#include "smelt/cache.h"

static smelt_status need(const smelt_context *context) {
    return context ? SMELT_OK : smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "context is NULL");
}

smelt_status smelt_cache_get_stats(smelt_context *context, smelt_cache_stats *stats) {
    if (need(context))
        return SMELT_ERROR_INVALID_ARGUMENT;
    if (!stats || stats->size < sizeof *stats)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "stats is NULL or its size is not set (%zu expected)", sizeof *stats);
    return smelt__cache_stat(context->cache, stats);
}

smelt_status smelt_cache_walk(smelt_context *context, smelt_cache_entry_function each, void *user) {
    if (need(context))
        return SMELT_ERROR_INVALID_ARGUMENT;
    if (!each)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "the function to call is NULL");
    return smelt__cache_walk(context->cache, each, user);
}

smelt_status smelt_cache_verify(smelt_context *context, uint64_t *sound, uint64_t *removed) {
    smelt_status status = need(context);
    return status ? status : smelt__cache_verify(context->cache, sound, removed);
}

smelt_status smelt_cache_clear(smelt_context *context, uint64_t *removed) {
    smelt_status status = need(context);
    return status ? status : smelt__cache_clear(context->cache, removed);
}

smelt_status smelt_cache_prune(smelt_context *context, uint64_t max_bytes,
                               uint64_t older_than_seconds, smelt_cache_pruned *pruned) {
    if (need(context))
        return SMELT_ERROR_INVALID_ARGUMENT;
    if (pruned && pruned->size < sizeof *pruned)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "pruned->size is %zu, expected %zu",
                           pruned->size, sizeof *pruned);
    if (pruned)
        *pruned = (smelt_cache_pruned){.size = pruned->size};
    return smelt__cache_prune(context->cache, max_bytes, older_than_seconds, pruned);
}

/* Clears *result for a call; one that the caller does not want is `spare`. NULL: it is too small.
 */
static smelt_cache_transfer *begin_transfer(smelt_cache_transfer *result,
                                            smelt_cache_transfer *spare) {
    *spare = (smelt_cache_transfer){.size = sizeof *spare};
    if (!result)
        return spare;
    if (result->size < sizeof *result) {
        smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "result->size is %zu, expected %zu", result->size,
                    sizeof *result);
        return NULL;
    }
    *result = (smelt_cache_transfer){.size = result->size};
    return result;
}

static smelt_status need_path(const smelt_context *context, const char *path) {
    smelt_status status = need(context);
    if (!status && (!path || !*path))
        status = smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "path is %s", path ? "empty" : "NULL");
    return status;
}

/* Tuning entries as lines, in an order that does not depend on where they were read. */
struct tuning_lines {
    char **lines;
    size_t count, room;
};

static int add_tuning_line(void *user, const smelt_tuning_entry *entry) {
    struct tuning_lines *all = user;
    struct smelt__tuning_line line = {.microseconds = entry->microseconds};
    struct smelt__text text = {0};

    if (all->count == all->room) {
        size_t room = all->room ? 2 * all->room : 64;
        char **grown = realloc(all->lines, room * sizeof *grown);
        if (!grown)
            return -1;
        all->lines = grown;
        all->room = room;
    }
    memcpy(line.spec, entry->spec, sizeof line.spec);
    memcpy(line.device, entry->device, sizeof line.device);
    memcpy(line.knobs, entry->knobs, sizeof line.knobs);
    smelt__tuning_line_print(&line, &text);
    all->lines[all->count] = smelt__text_release(&text);
    return all->lines[all->count++] ? 0 : -1;
}

static int compare_lines(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Every entry the context knows, of both layers, as a tuning file's text. */
static smelt_status print_tuning(smelt_context *context, struct smelt__text *text,
                                 uint64_t *count) {
    struct tuning_lines all = {0};
    smelt_status status = smelt__tuning_walk(context->tuning, add_tuning_line, &all);

    if (all.count)
        qsort(all.lines, all.count, sizeof *all.lines, compare_lines);
    for (size_t i = 0; i < all.count; i++) {
        if (status == SMELT_OK)
            smelt__text_append_string(text, all.lines[i]);
        free(all.lines[i]);
    }
    free(all.lines);
    *count = all.count;
    if (status == SMELT_ERROR_CANCELLED || text->failed)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    if (status == SMELT_OK && text->length > SMELT__TUNING_MAX_BYTES)
        return smelt__fail(SMELT_ERROR_CACHE, "the tuning entries are more than %d bytes",
                           SMELT__TUNING_MAX_BYTES);
    return status;
}

smelt_status smelt_cache_export(smelt_context *context, const char *path,
                                smelt_cache_transfer *result) {
    smelt_cache_transfer spare;
    struct smelt__text tuning = {0};
    smelt_status status = need_path(context, path);
    if (status)
        return status;
    result = begin_transfer(result, &spare);
    if (!result)
        return SMELT_ERROR_INVALID_ARGUMENT;
    status = print_tuning(context, &tuning, &result->tuning);
    if (!status)
        status = smelt__cache_export(context->cache, path, tuning.data, tuning.length, result);
    smelt__text_free(&tuning);
    return status;
}

smelt_status smelt_cache_import(smelt_context *context, const char *path,
                                smelt_cache_transfer *result) {
    smelt_cache_transfer spare;
    char *tuning = NULL;
    size_t tuning_bytes = 0, taken = 0;
    smelt_status status = need_path(context, path);
    if (status)
        return status;
    result = begin_transfer(result, &spare);
    if (!result)
        return SMELT_ERROR_INVALID_ARGUMENT;
    status = smelt__cache_import(context->cache, path, &tuning, &tuning_bytes, result);
    if (!status && tuning && *smelt__tuning_file(context->tuning))
        status = smelt__tuning_merge(context->tuning, tuning, tuning_bytes, &taken);
    result->tuning = taken;
    free(tuning);
    return status;
}
