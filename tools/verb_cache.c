/* smelt cache: counting, verifying and clearing the disk cache. */
#include <inttypes.h>
#include <string.h>

#include "tool.h"

/* ---- stat ------------------------------------------------------------------------------------ */

static int stat_cache(smelt_context *context, const struct tool_options *options) {
    static smelt_cache_stats stats;
    smelt_context_counters counters = {.size = sizeof counters};
    stats.size = sizeof stats;
    smelt_status status = smelt_cache_stat(context, &stats);
    if (!status)
        status = smelt_context_get_counters(context, &counters);
    if (status)
        return tool_fail_status(options, status);
    if (options->json) {
        tool_print_json(json_pack(
            "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "folder", stats.folder,
            "readonly_folder", stats.readonly, "problem", stats.problem, "entries",
            (json_int_t)stats.entries, "bytes", (json_int_t)stats.bytes, "cap_bytes",
            (json_int_t)stats.cap_bytes, "temporaries", (json_int_t)stats.temporaries, "hits",
            (json_int_t)counters.cache_hits, "misses", (json_int_t)counters.cache_misses, "errors",
            (json_int_t)counters.cache_errors));
        return TOOL_OK;
    }
    printf("folder       %s\n", *stats.folder ? stats.folder : "none");
    if (*stats.readonly)
        printf("read-only    %s\n", stats.readonly);
    if (*stats.problem)
        printf("problem      %s\n", stats.problem);
    printf("entries      %" PRIu64 "\n", stats.entries);
    printf("size         %s of at most %s\n", tool_size(stats.bytes).text,
           tool_size(stats.cap_bytes).text);
    if (stats.temporaries)
        printf("unfinished   %" PRIu64 " (swept after an hour)\n", stats.temporaries);
    return TOOL_OK;
}

/* ---- verify ---------------------------------------------------------------------------------- */

static int note_damage(void *array, const char *file, const smelt_kernel_info *info) {
    if (info->state == SMELT_KERNEL_FAILED)
        json_array_append_new(
            array, tool_json(json_pack("{s:s, s:s}", "file", file, "error", info->error)));
    return 0;
}

static int verify_cache(smelt_context *context, const struct tool_options *options) {
    uint64_t sound = 0, removed = 0;
    json_t *damaged = tool_json(json_array());
    size_t index;
    json_t *entry;
    smelt_status status = smelt_cache_walk(context, note_damage, damaged);
    if (!status)
        status = smelt_cache_verify(context, &sound, &removed);
    if (status) {
        json_decref(damaged);
        return tool_fail_status(options, status);
    }
    json_array_foreach(damaged, index, entry)
        tool_say(options, "removed %s: %s", json_string_value(json_object_get(entry, "file")),
                 json_string_value(json_object_get(entry, "error")));
    if (options->json) {
        tool_print_json(json_pack("{s:I, s:I, s:o}", "sound", (json_int_t)sound, "removed",
                                  (json_int_t)removed, "damaged", damaged));
    } else {
        printf("%" PRIu64 " sound, %" PRIu64 " damaged and removed\n", sound, removed);
        json_decref(damaged);
    }
    return removed ? TOOL_FAILED : TOOL_OK;
}

/* ---- clear ----------------------------------------------------------------------------------- */

static int clear_cache(smelt_context *context, const struct tool_options *options) {
    uint64_t removed = 0;
    smelt_status status = smelt_cache_clear(context, &removed);
    if (status)
        return tool_fail_status(options, status);
    if (options->json)
        tool_print_json(json_pack("{s:I}", "removed", (json_int_t)removed));
    else
        printf("%" PRIu64 " removed\n", removed);
    return TOOL_OK;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static const struct action {
    const char *name;
    int (*run)(smelt_context *context, const struct tool_options *options);
} actions[] = {{"stat", stat_cache}, {"verify", verify_cache}, {"clear", clear_cache}};

enum { ACTIONS = sizeof actions / sizeof actions[0] };

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
    return tool_fail(options, TOOL_USAGE, "no '%s'; legal: stat, verify, clear", name);
}

/* Whether there is a folder to verify or clear. */
static int need_folder(smelt_context *context, const struct tool_options *options) {
    static smelt_cache_stats stats;
    stats.size = sizeof stats;
    smelt_status status = smelt_cache_stat(context, &stats);
    if (status)
        return tool_fail_status(options, status);
    if (*stats.problem)
        return tool_fail(options, TOOL_FAILED, "the cache cannot be used: %s", stats.problem);
    return TOOL_OK;
}

int tool_run_cache(const struct tool_options *options) {
    smelt_context *context = NULL;
    if (options->arguments.count != 1)
        return tool_fail(options, TOOL_USAGE, "name one of stat, verify, clear");
    const struct action *action = find_action(options->arguments.items[0]);
    if (!action)
        return refuse_action(options, options->arguments.items[0]);
    int status = tool_open_compiler(options, "sm_80", &context);
    if (status == TOOL_OK && action->run != stat_cache)
        status = need_folder(context, options);
    if (status == TOOL_OK)
        status = action->run(context, options);
    smelt_context_destroy(&context);
    return status;
}
