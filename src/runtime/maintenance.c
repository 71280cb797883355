/* Public calls for the maintenance of a context's cache: see smelt/cache.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi.h"
#include "runtime/cache/cache.h"
#include "runtime/context.h"
#include "smelt/cache.h"

static smelt_status need(const smelt_context *context) {
    return context ? SMELT_OK : smelt__fail_null("context");
}

smelt_status smelt_cache_get_stats(const smelt_context *context, smelt_cache_stats *stats) {
    const struct smelt__struct *about =
        SMELT__STRUCT(smelt_cache_stats, "stats", "SMELT_CACHE_STATS_INIT", emulated_bytes);
    char readonly_problem[SMELT__CACHE_PROBLEM];
    smelt_cache_stats found;

    if (need(context) || smelt__struct_check(about, stats))
        return SMELT_ERROR_INVALID_ARGUMENT;
    smelt_status status = smelt__cache_stat(context->cache, readonly_problem, &found);
    found.readonly_problem = smelt__strings_note(context->strings, readonly_problem);
    smelt__struct_write(about, &found, stats);
    return status;
}

smelt_status smelt_cache_walk(const smelt_context *context, const char *path,
                              smelt_cache_entry_function each, void *user) {
    return need(context) ? SMELT_ERROR_INVALID_ARGUMENT
                         : smelt__cache_walk(context->cache, path, each, user);
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
    const struct smelt__struct *about =
        SMELT__STRUCT(smelt_cache_pruned, "pruned", "SMELT_CACHE_PRUNED_INIT", kept_bytes);
    smelt_cache_pruned counts = {0};

    if (need(context) || (pruned && smelt__struct_check(about, pruned)))
        return SMELT_ERROR_INVALID_ARGUMENT;
    smelt_status status =
        smelt__cache_prune(context->cache, max_bytes, older_than_seconds, &counts);
    if (pruned)
        smelt__struct_write(about, &counts, pruned);
    return status;
}

static const struct smelt__struct *about_transfer(void) {
    static const struct smelt__struct about =
        SMELT__STRUCT_VALUE(smelt_cache_transfer, "result", "SMELT_CACHE_TRANSFER_INIT", tuning);
    return &about;
}

static smelt_status need_result(const smelt_cache_transfer *result) {
    return result ? smelt__struct_check(about_transfer(), result) : SMELT_OK;
}

static void give_result(const smelt_cache_transfer *counts, smelt_cache_transfer *result) {
    if (result)
        smelt__struct_write(about_transfer(), counts, result);
}

static smelt_status need_path(const smelt_context *context, const char *path) {
    smelt_status status = need(context);
    if (!status && (!path || !*path))
        status = smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "path is %s", path ? "empty" : "NULL");
    return status;
}

/* Tuning entries as the text of a file. */
struct tuning_lines {
    struct smelt__text *text;
    uint64_t count;
};

static int add_tuning_line(void *user, const smelt_tuning_entry *entry) {
    struct tuning_lines *all = user;
    struct smelt__tuning_line line = {.microseconds = entry->microseconds};
    snprintf(line.spec, sizeof line.spec, "%s", entry->spec);
    snprintf(line.device, sizeof line.device, "%s", entry->device);
    snprintf(line.knobs, sizeof line.knobs, "%s", entry->knobs);
    smelt__tuning_line_print(&line, all->text);
    all->count++;
    return 0;
}

/* All entries of both layers. */
static smelt_status print_tuning(const smelt_context *context, struct smelt__text *text,
                                 uint64_t *count) {
    struct tuning_lines all = {text, 0};
    smelt_status status = smelt__tuning_walk(context->tuning, add_tuning_line, &all);
    *count = all.count;
    if (status == SMELT_OK && text->failed)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    if (status == SMELT_OK && text->length > SMELT__TUNING_MAX_BYTES)
        return smelt__fail(SMELT_ERROR_CACHE, "the tuning entries are more than %d bytes",
                           SMELT__TUNING_MAX_BYTES);
    return status;
}

smelt_status smelt_cache_export(const smelt_context *context, const char *path,
                                smelt_cache_transfer *result) {
    smelt_cache_transfer counts = {0};
    struct smelt__text tuning = {0};
    smelt_status status = need_path(context, path);
    if (!status)
        status = need_result(result);
    if (status)
        return status;
    status = print_tuning(context, &tuning, &counts.tuning);
    if (!status)
        status = smelt__cache_export(context->cache, path, tuning.data, tuning.length, &counts);
    smelt__text_free(&tuning);
    give_result(&counts, result);
    return status;
}

smelt_status smelt_cache_import(smelt_context *context, const char *path,
                                smelt_cache_transfer *result) {
    smelt_cache_transfer counts = {0};
    char *tuning = NULL;
    size_t tuning_bytes = 0, taken = 0;
    smelt_status status = need_path(context, path);
    if (!status)
        status = need_result(result);
    if (status)
        return status;
    status = smelt__cache_import(context->cache, path, &tuning, &tuning_bytes, &counts);
    if (!status && tuning && *smelt__tuning_file(context->tuning))
        status = smelt__tuning_merge(context->tuning, tuning, tuning_bytes, &taken);
    counts.tuning = taken;
    free(tuning);
    give_result(&counts, result);
    return status;
}
