/* smelt cache: inspecting and maintaining the disk cache. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../tool.h"

/* If a part of the cache cannot be read, the actions process the rest, print its counts (with --json only if nothing
 * failed) and then the failure. */

/* ---- stat ------------------------------------------------------------------------------------ */

static void print_counters(const smelt_cache_stats *stats) {
    uint64_t hits = stats->hits + stats->readonly_hits;
    uint64_t lookups = hits + stats->misses;
    printf("hits         %" PRIu64, hits);
    if (lookups)
        printf(" of %" PRIu64 " lookups, %.1f %%", lookups, 100.0 * (double)hits / (double)lookups);
    if (stats->readonly_hits)
        printf("; %" PRIu64 " in the read-only layer", stats->readonly_hits);
    printf("\nsaved        %.1f s of compilation\n", stats->saved_seconds);
    printf("stored       %" PRIu64 "\n", stats->stores);
    if (stats->errors)
        printf("errors       %" PRIu64 "\n", stats->errors);
}

static int stat_cache(smelt_context *context, const struct tool_options *options) {
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    smelt_status status = smelt_cache_get_stats(context, &stats);
    if (status && (options->json || status != SMELT_ERROR_CACHE))
        return tool_fail_status(options, status);
    if (options->json) {
        tool_print_json(tool_pack(
            "{s:s, s:s, s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, "
            "s:I}",
            "folder", stats.folder, "readonly_folder", stats.readonly, "readonly_problem",
            stats.readonly_problem, "readonly_entries", (json_int_t)stats.readonly_entries,
            "readonly_bytes", (json_int_t)stats.readonly_bytes, "problem", stats.problem, "entries",
            (json_int_t)stats.entries, "bytes", (json_int_t)stats.bytes, "cap_bytes",
            (json_int_t)stats.cap_bytes, "temporaries", (json_int_t)stats.temporaries, "hits",
            (json_int_t)stats.hits, "readonly_hits", (json_int_t)stats.readonly_hits, "misses",
            (json_int_t)stats.misses, "stores", (json_int_t)stats.stores, "errors",
            (json_int_t)stats.errors, "saved_seconds", stats.saved_seconds, "emulated_entries",
            (json_int_t)stats.emulated_entries, "emulated_bytes",
            (json_int_t)stats.emulated_bytes));
        return TOOL_OK;
    }
    printf("folder       %s\n", *stats.folder ? stats.folder : "none");
    if (*stats.readonly_problem)
        printf("read-only    not used: %s\n", stats.readonly_problem);
    else if (*stats.readonly)
        printf("read-only    %s, %" PRIu64 " entries (%s)\n", stats.readonly,
               stats.readonly_entries, tool_size(stats.readonly_bytes).text);
    if (*stats.problem)
        printf("problem      %s\n", stats.problem);
    printf("entries      %" PRIu64 "\n", stats.entries);
    printf("size         %s of at most %s\n", tool_size(stats.bytes).text,
           tool_size(stats.cap_bytes).text);
    if (stats.emulated_entries)
        printf("emulated     %" PRIu64 " entries besides (%s)\n", stats.emulated_entries,
               tool_size(stats.emulated_bytes).text);
    if (stats.temporaries)
        printf("unfinished   %" PRIu64 " (removed after an hour)\n", stats.temporaries);
    print_counters(&stats);
    return status ? tool_fail_status(options, status) : TOOL_OK;
}

/* ---- verify ---------------------------------------------------------------------------------- */

/* The entries of one layer. */
struct verified {
    uint64_t sound, foreign; /* foreign: another version's, undamaged */
    json_t *damaged;
};

static int verify_entry(void *user, const char *file, const smelt_kernel_info *info) {
    struct verified *verified = user;
    if (info->state != SMELT_KERNEL_FAILED)
        verified->sound++;
    else if (info->status == SMELT_ERROR_UNSUPPORTED)
        verified->foreign++;
    else
        json_array_append_new(verified->damaged,
                              tool_pack("{s:s, s:s}", "file", file, "error", info->error));
    return 0;
}

static void say_damage(const struct tool_options *options, const char *word, json_t *damaged) {
    size_t index;
    json_t *entry;
    json_array_foreach(damaged, index, entry)
        tool_say(options, "%s %s", word, json_string_value(json_object_get(entry, "error")));
}

/* An exported file or a folder, from which nothing is removed. */
static int verify_path(smelt_context *context, const struct tool_options *options,
                       const char *path) {
    struct verified verified = {.damaged = tool_json(json_array())};
    const smelt_status status = smelt_cache_walk(context, path, verify_entry, &verified);
    const size_t damaged = json_array_size(verified.damaged);
    const int found = verified.sound > 0 || verified.foreign > 0 || damaged > 0;
    if (!status || (found && !options->json)) {
        say_damage(options, "damaged:", verified.damaged);
        if (options->json)
            tool_print_json(tool_pack("{s:s, s:I, s:I, s:O}", "path", path, "sound",
                                      (json_int_t)verified.sound, "foreign",
                                      (json_int_t)verified.foreign, "damaged", verified.damaged));
        else
            printf("%s: %" PRIu64 " sound, %zu damaged, %" PRIu64 " of another version\n", path,
                   verified.sound, damaged, verified.foreign);
    }
    json_decref(verified.damaged);
    return status ? tool_fail_status(options, status) : damaged ? TOOL_FAILED : TOOL_OK;
}

static void print_verified(const struct tool_options *options, uint64_t sound, uint64_t removed,
                           const struct verified *cache, const struct verified *layer,
                           const char *readonly) {
    say_damage(options, "removed", cache->damaged);
    say_damage(options, "in the read-only layer:", layer->damaged);
    if (options->json) {
        tool_print_json(tool_pack("{s:I, s:I, s:O, s:I, s:O}", "sound", (json_int_t)sound,
                                  "removed", (json_int_t)removed, "damaged", cache->damaged,
                                  "readonly_sound", (json_int_t)layer->sound, "readonly_damaged",
                                  layer->damaged));
        return;
    }
    printf("%" PRIu64 " sound, %" PRIu64 " damaged and removed\n", sound, removed);
    if (*readonly)
        printf("%s: %" PRIu64 " sound, %zu damaged, %" PRIu64 " of another version\n", readonly,
               layer->sound, json_array_size(layer->damaged), layer->foreign);
}

static int verify_cache(smelt_context *context, const struct tool_options *options) {
    struct verified cache = {.damaged = tool_json(json_array())};
    struct verified layer = {.damaged = tool_json(json_array())};
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    uint64_t sound = 0, removed = 0;
    if (options->arguments.count > 1)
        return verify_path(context, options, options->arguments.items[1]);
    smelt_status of_layer = SMELT_OK, status = smelt_cache_get_stats(context, &stats);
    if (!status || status == SMELT_ERROR_CACHE)
        status = smelt_cache_walk(context, NULL, verify_entry, &cache);
    if ((!status || status == SMELT_ERROR_CACHE) && *stats.readonly)
        of_layer = smelt_cache_walk(context, stats.readonly, verify_entry, &layer);
    if (!status || status == SMELT_ERROR_CACHE)
        status = smelt_cache_verify(context, &sound, &removed);
    if (!status)
        status = of_layer; /* with its message: a call that succeeds sets none */
    const size_t damaged = removed + json_array_size(layer.damaged);
    if (!status || (status == SMELT_ERROR_CACHE && !options->json))
        print_verified(options, sound, removed, &cache, &layer, stats.readonly);
    json_decref(cache.damaged);
    json_decref(layer.damaged);
    return status ? tool_fail_status(options, status) : damaged ? TOOL_FAILED : TOOL_OK;
}

/* ---- prune ----------------------------------------------------------------------------------- */

/* Reads a number above 0 with an optional unit; `scales` has a factor for each. 0 or -1. */
static int read_scaled(const char *text, const char *units, const uint64_t *scales, int plain,
                       uint64_t *value) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (errno || *text < '0' || *text > '9' || number == 0 || (unit && end[1]) ||
        (!unit && (*end || !plain)))
        return -1;
    uint64_t scale = unit ? scales[unit - units] : 1;
    if (number > UINT64_MAX / scale)
        return -1;
    *value = number * scale;
    return 0;
}

static int read_limits(const struct tool_options *options, uint64_t *bytes, uint64_t *seconds) {
    static const uint64_t sizes[] = {1 << 10, 1 << 20, 1 << 30};
    static const uint64_t ages[] = {1, 60, 3600, 86400, 604800};
    if (options->max_size && read_scaled(options->max_size, "KMG", sizes, 1, bytes))
        return tool_fail(options, TOOL_USAGE,
                         "--max-size %s is not legal; legal: a number of bytes above 0, optionally "
                         "with K, M or G",
                         options->max_size);
    if (options->older_than && read_scaled(options->older_than, "smhdw", ages, 0, seconds))
        return tool_fail(
            options, TOOL_USAGE,
            "--older-than %s is not legal; legal: a number above 0 with a unit s, m, h, d or w",
            options->older_than);
    return TOOL_OK;
}

static int prune_cache(smelt_context *context, const struct tool_options *options) {
    smelt_cache_pruned pruned = SMELT_CACHE_PRUNED_INIT;
    uint64_t bytes = 0, seconds = 0;
    int exit_status = read_limits(options, &bytes, &seconds);
    if (exit_status != TOOL_OK)
        return exit_status;
    smelt_status status = smelt_cache_prune(context, bytes, seconds, &pruned);
    if (status && options->json)
        return tool_fail_status(options, status);
    if (options->json)
        tool_print_json(tool_pack(
            "{s:I, s:I, s:I, s:I, s:I}", "removed", (json_int_t)pruned.removed, "removed_bytes",
            (json_int_t)pruned.removed_bytes, "temporaries", (json_int_t)pruned.temporaries, "kept",
            (json_int_t)pruned.kept, "kept_bytes", (json_int_t)pruned.kept_bytes));
    else
        printf("%" PRIu64 " removed (%s), %" PRIu64 " kept (%s)\n", pruned.removed,
               tool_size(pruned.removed_bytes).text, pruned.kept,
               tool_size(pruned.kept_bytes).text);
    return status ? tool_fail_status(options, status) : TOOL_OK;
}

/* ---- export, import -------------------------------------------------------------------------- */

static void say_passed_over(const struct tool_options *options,
                            const smelt_cache_transfer *transfer) {
    if (transfer->foreign)
        tool_say(options, "%" PRIu64 " entries of another version of smelt were skipped",
                 transfer->foreign);
    if (transfer->damaged)
        tool_say(options, "%" PRIu64 " damaged entries were skipped", transfer->damaged);
}

static json_t *transfer_json(const char *file, const smelt_cache_transfer *transfer) {
    return tool_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "file", file, "entries",
                     (json_int_t)transfer->entries, "bytes", (json_int_t)transfer->bytes, "foreign",
                     (json_int_t)transfer->foreign, "damaged", (json_int_t)transfer->damaged,
                     "tuning", (json_int_t)transfer->tuning);
}

static int export_cache(smelt_context *context, const struct tool_options *options) {
    const char *file = options->arguments.items[1];
    smelt_cache_transfer transfer = SMELT_CACHE_TRANSFER_INIT;
    smelt_status status = smelt_cache_export(context, file, &transfer);
    if (status)
        return tool_fail_status(options, status);
    say_passed_over(options, &transfer);
    if (options->json)
        tool_print_json(transfer_json(file, &transfer));
    else
        printf("%" PRIu64 " exported to %s (%s)\n", transfer.entries, file,
               tool_size(transfer.bytes).text);
    if (!transfer.entries)
        tool_say(options, "there was nothing to export");
    return transfer.entries && !transfer.damaged ? TOOL_OK : TOOL_FAILED;
}

static int import_cache(smelt_context *context, const struct tool_options *options) {
    const char *file = options->arguments.items[1];
    smelt_cache_transfer transfer = SMELT_CACHE_TRANSFER_INIT;
    smelt_status status = smelt_cache_import(context, file, &transfer);
    const int found = transfer.entries || transfer.present || transfer.foreign ||
                      transfer.damaged || transfer.tuning;
    if (status && (options->json || !found))
        return tool_fail_status(options, status);
    say_passed_over(options, &transfer);
    if (!options->allow_empty && !found)
        return tool_fail(options, TOOL_FAILED,
                         "%s holds no kernel: name a cache's folder, or a file that `smelt cache "
                         "export` wrote (--allow-empty: it may be empty)",
                         file);
    if (options->json) {
        json_t *document = transfer_json(file, &transfer);
        json_object_set_new(document, "present",
                            tool_json(json_integer((json_int_t)transfer.present)));
        tool_print_json(document);
    } else {
        printf("%" PRIu64 " imported (%s), %" PRIu64 " already present\n", transfer.entries,
               tool_size(transfer.bytes).text, transfer.present);
    }
    return status ? tool_fail_status(options, status) : transfer.damaged ? TOOL_FAILED : TOOL_OK;
}

/* ---- clear ----------------------------------------------------------------------------------- */

static int clear_cache(smelt_context *context, const struct tool_options *options) {
    uint64_t removed = 0;
    smelt_status status = smelt_cache_clear(context, &removed);
    if (status && options->json)
        return tool_fail_status(options, status);
    if (options->json)
        tool_print_json(tool_pack("{s:I}", "removed", (json_int_t)removed));
    else
        printf("%" PRIu64 " removed\n", removed);
    return status ? tool_fail_status(options, status) : TOOL_OK;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static const struct action {
    const char *name;
    int files, optional; /* how many paths it takes; 1: or none */
    int (*run)(smelt_context *context, const struct tool_options *options);
} actions[] = {{"stat", 0, 0, stat_cache},     {"verify", 1, 1, verify_cache},
               {"prune", 0, 0, prune_cache},   {"clear", 0, 0, clear_cache},
               {"export", 1, 0, export_cache}, {"import", 1, 0, import_cache}};

enum { ACTIONS = sizeof actions / sizeof actions[0] };
static const char action_names[] = "stat, verify, prune, clear, export, import";

static const struct action *find_action(const char *name) {
    for (size_t i = 0; i < ACTIONS; i++)
        if (!strcmp(actions[i].name, name))
            return &actions[i];
    return NULL;
}

static int refuse_action(const struct tool_options *options, const char *name) {
    const char *names[ACTIONS];
    for (size_t i = 0; i < ACTIONS; i++)
        names[i] = actions[i].name;
    const char *nearest = tool_nearest(name, names, ACTIONS);
    if (nearest)
        return tool_fail(options, TOOL_USAGE, "no '%s'; did you mean %s?", name, nearest);
    return tool_fail(options, TOOL_USAGE, "no '%s'; legal: %s", name, action_names);
}

/* Refuses arguments and options of other actions. */
static int check_arguments(const struct tool_options *options, const struct action *action) {
    const char *stray = options->max_size     ? "--max-size"
                        : options->older_than ? "--older-than"
                                              : NULL;
    if (stray && action->run != prune_cache)
        return tool_fail(options, TOOL_USAGE, "%s belongs to prune, not to %s", stray,
                         action->name);
    if (options->allow_empty && action->run != import_cache)
        return tool_fail(options, TOOL_USAGE, "--allow-empty belongs to import, not to %s",
                         action->name);
    const int64_t files = options->arguments.count - 1;
    if (action->files && files != 1 && !(action->optional && files == 0))
        return tool_fail(options, TOOL_USAGE, "%s takes one file: smelt cache %s FILE",
                         action->name, action->name);
    if (!action->files && files)
        return tool_fail(options, TOOL_USAGE, "%s takes no argument, not '%s'", action->name,
                         options->arguments.items[1]);
    return TOOL_OK;
}

/* Requires a usable cache folder. Subfolders that cannot be read are left for the action to report. */
static int need_folder(smelt_context *context, const struct tool_options *options) {
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    smelt_status status = smelt_cache_get_stats(context, &stats);
    if (status && status != SMELT_ERROR_CACHE)
        return tool_fail_status(options, status);
    if (*stats.problem)
        return tool_fail(options, TOOL_FAILED, "the cache cannot be used: %s", stats.problem);
    return TOOL_OK;
}

int tool_run_cache(const struct tool_options *options) {
    smelt_context *context = NULL;
    if (options->arguments.count < 1)
        return tool_fail(options, TOOL_USAGE, "name one of %s", action_names);
    const struct action *action = find_action(options->arguments.items[0]);
    if (!action)
        return refuse_action(options, options->arguments.items[0]);
    int status = check_arguments(options, action);
    if (status == TOOL_OK)
        status = tool_open_compiler(options, "sm_80", &context);
    if (status == TOOL_OK && action->run != stat_cache &&
        !(action->run == verify_cache && options->arguments.count > 1))
        status = need_folder(context, options);
    if (status == TOOL_OK)
        status = action->run(context, options);
    smelt_context_destroy(&context);
    return status;
}
