/* smelt list: presets, families and architectures, GPUs, or what is cached or tuned. */
#include <string.h>

#include "../tool.h"

/* ---- presets, families, architectures ------------------------------------------------------- */

/* The names are the library's own, so only a lack of memory can fail. */
static void expect(smelt_status status) {
    if (status)
        tool_die_of_memory();
}

/* A family's key `index`; 0: there is none. */
static int get_key(const char *family, int index, smelt_family_key *key) {
    *key = (smelt_family_key)SMELT_FAMILY_KEY_INIT;
    return smelt_family_get_key(family, index, key) == SMELT_OK;
}

static json_t *preset_json(const char *preset) {
    struct tool_list specs = {0};
    json_t *array = tool_json(json_array());
    expect(smelt_preset_expand(preset, 1, 0, tool_list_collect, &specs));
    for (size_t i = 0; i < specs.count; i++)
        json_array_append_new(array, tool_json_text(specs.items[i]));
    tool_list_free(&specs);
    return tool_pack("{s:s, s:o}", "name", preset, "specs", array);
}

static json_t *family_json(const char *family) {
    smelt_family_key key;
    smelt_family_info info = SMELT_FAMILY_INFO_INIT;
    json_t *keys = tool_json(json_array());
    expect(smelt_family_get_info(family, &info));
    for (int i = 0; get_key(family, i, &key); i++)
        json_array_append_new(keys, tool_pack("{s:s, s:s, s:s, s:b, s:b, s:s, s:s, s:s}", "name",
                                              key.name, "legal", key.legal, "meaning", key.meaning,
                                              "required", key.required, "knob", key.knob, "kernel",
                                              key.kernel, "variants", key.variants, "only_with",
                                              key.only_with));
    return tool_pack("{s:s, s:s, s:s, s:s, s:o}", "name", family, "kind",
                     info.is_operator ? "operator" : "kernel", "summary", info.summary, "example",
                     info.example, "keys", keys);
}

static void print_choices_json(const struct tool_list *presets, const struct tool_list *families,
                               const struct tool_list *archs) {
    json_t *preset_array = tool_json(json_array());
    json_t *family_array = tool_json(json_array());
    json_t *arch_array = tool_json(json_array());
    for (size_t i = 0; i < presets->count; i++)
        json_array_append_new(preset_array, preset_json(presets->items[i]));
    for (size_t i = 0; i < families->count; i++)
        json_array_append_new(family_array, family_json(families->items[i]));
    for (size_t i = 0; i < archs->count; i++)
        json_array_append_new(arch_array, tool_json_text(archs->items[i]));
    tool_print_json(tool_pack("{s:o, s:o, s:o}", "presets", preset_array, "families", family_array,
                              "archs", arch_array));
}

static void print_preset(struct tool_table *table, const char *preset) {
    struct tool_list specs = {0};
    expect(smelt_preset_expand(preset, 1, 0, tool_list_collect, &specs));
    for (size_t i = 0; i < specs.count; i++)
        tool_table_add_cells(table, "%s\t%s", i ? "" : preset, specs.items[i]);
    tool_list_free(&specs);
}

static void print_family(const char *family, int apart) {
    static const char *const headers[] = {"key", "", "legal", "of", "meaning"};
    struct tool_table table;
    smelt_family_key key;
    smelt_family_info info = SMELT_FAMILY_INFO_INIT;
    expect(smelt_family_get_info(family, &info));
    printf("%s%s %s: %s\n", apart ? "\n" : "", info.is_operator ? "operator" : "kernel", family,
           info.summary);
    if (*info.example)
        printf("  example: %s\n", info.example);
    if (!get_key(family, 0, &key)) {
        printf("  it has no keys: its spec is its name\n");
        return;
    }
    tool_table_begin(&table, "lllll", headers);
    for (int i = 0; get_key(family, i, &key); i++)
        tool_table_add_cells(
            &table, "%s%s%s\t%s\t%s\t%s%s%s\t%s", key.kernel, *key.kernel ? "." : "", key.name,
            key.required ? "required" : (key.knob ? "knob" : ""), key.legal, key.variants,
            *key.variants && *key.only_with ? ", " : "", key.only_with, key.meaning);
    tool_table_end(&table);
}

static void print_choices(const struct tool_list *presets, const struct tool_list *families,
                          const struct tool_list *archs) {
    static const char *const headers[] = {"preset", "operators (--tp divides the heads)"};
    struct tool_table table;
    if (presets->count > 0) {
        tool_table_begin(&table, "ll", headers);
        for (size_t i = 0; i < presets->count; i++)
            print_preset(&table, presets->items[i]);
        tool_table_end(&table);
    }
    for (size_t i = 0; i < families->count; i++)
        print_family(families->items[i], i > 0 || presets->count > 0);
    if (archs->count > 0) {
        printf("\narchitectures:");
        for (size_t i = 0; i < archs->count; i++)
            printf(" %s", archs->items[i]);
        printf("; `smelt list gpus` has the GPUs\n");
    }
}

static int has(const struct tool_list *list, const char *name) {
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->items[i], name))
            return 1;
    return 0;
}

/* Keeps the presets and families that the arguments name. */
static int keep_named(struct tool_list *presets, struct tool_list *families,
                      const struct tool_options *options) {
    struct tool_list named[2] = {0}, *const of[2] = {presets, families};
    int status = TOOL_OK;
    for (int64_t i = 0; i < options->arguments.count && status == TOOL_OK; i++) {
        const char *const name = options->arguments.items[i];
        const int family = has(families, name);
        if (family || has(presets, name)) {
            tool_list_add(&named[family], name);
            continue;
        }
        const char *nearest = NULL;
        for (int k = 0; k < 2 && !nearest; k++)
            nearest = tool_nearest(name, (const char *const *)of[k]->items, of[k]->count);
        status = tool_fail(options, TOOL_USAGE,
                           "no preset, operator or kernel '%s'%s%s; `smelt list` lists them", name,
                           nearest ? ", did you mean " : "", nearest ? nearest : "");
    }
    for (int k = 0; k < 2; k++) {
        tool_list_free(of[k]);
        *of[k] = named[k];
    }
    return status;
}

static int list_choices(const struct tool_options *options) {
    struct tool_list presets = {0}, families = {0}, archs = {0};
    int result = TOOL_OK;
    smelt_status status = smelt_list(SMELT_LIST_PRESETS, tool_list_collect, &presets);
    if (!status)
        status = smelt_list(SMELT_LIST_FAMILIES, tool_list_collect, &families);
    if (!status && options->arguments.count == 0)
        status = smelt_list(SMELT_LIST_ARCHS, tool_list_collect, &archs);
    if (status)
        result = tool_fail_status(options, status);
    else if (options->arguments.count > 0)
        result = keep_named(&presets, &families, options);
    if (result != TOOL_OK)
        ;
    else if (options->json)
        print_choices_json(&presets, &families, &archs);
    else
        print_choices(&presets, &families, &archs);
    tool_list_free(&presets);
    tool_list_free(&families);
    tool_list_free(&archs);
    return result;
}

/* ---- GPUs ----------------------------------------------------------------------------------- */

/* Lines of smelt_list, "h100 sm_90a", to JSON. */
static int add_gpu_json(void *array, const char *line) {
    const char *arch = strchr(line, ' ') + 1;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(arch - 1 - line), line);
    json_array_append_new(array, tool_pack("{s:s, s:s}", "name", name, "arch", arch));
    return 0;
}

/* A row for each architecture, whose GPUs are neighbours. */
static void print_gpus(json_t *gpus) {
    static const char *const headers[] = {"architecture", "GPUs (--arch takes either)"};
    struct tool_table table;
    char line[256] = "";
    tool_table_begin(&table, "ll", headers);
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        json_t *gpu = json_array_get(gpus, i), *next = json_array_get(gpus, i + 1);
        const char *arch = json_string_value(json_object_get(gpu, "arch"));
        const size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, "%s%s", used ? ", " : "",
                 json_string_value(json_object_get(gpu, "name")));
        if (next && !strcmp(json_string_value(json_object_get(next, "arch")), arch))
            continue;
        tool_table_add_cells(&table, "%s\t%s", arch, line);
        line[0] = '\0';
    }
    tool_table_end(&table);
}

static int list_gpus(const struct tool_options *options) {
    json_t *gpus = tool_json(json_array());
    const smelt_status status = smelt_list(SMELT_LIST_GPUS, add_gpu_json, gpus);
    if (!status && options->json)
        tool_print_json(tool_pack("{s:O}", "gpus", gpus));
    else if (!status)
        print_gpus(gpus);
    json_decref(gpus);
    return status ? tool_fail_status(options, status) : TOOL_OK;
}

/* ---- cached kernels ------------------------------------------------------------------------- */

static int add_entry_json(void *array, const char *file, const smelt_kernel_info *info) {
    int sound = info->state != SMELT_KERNEL_FAILED;
    json_t *entry = sound ? tool_kernel_json(info) : tool_json(json_object());
    json_object_set_new(entry, "file", tool_json_text(file));
    json_object_set_new(entry, "sound", json_boolean(sound));
    if (!sound)
        json_object_set_new(entry, "error", tool_json_text(info->error));
    json_array_append_new(array, entry);
    return 0;
}

static int add_entry_row(void *user, const char *file, const smelt_kernel_info *info) {
    struct tool_table *table = user;
    if (info->state == SMELT_KERNEL_FAILED) {
        tool_table_add(table, TOOL_BAD, "%s: %s", file, info->error);
        tool_table_add_cells(table, "-\t-\t-\t-\t-");
        return 0;
    }
    tool_table_add_cells(table, "%s\t%s\t%d\t%s\t%.3f\t%s", info->spec, info->arch, info->registers,
                         tool_size(info->cubin_bytes).text, info->compile_seconds, info->key);
    return 0;
}

/* Of one layer; path NULL: the writable one. */
static smelt_status print_layer(smelt_context *context, const char *path, const char *name) {
    static const char *const headers[] = {
        "kernel", "arch", "registers", "cubin", "compiled (wall s)", "key"};
    struct tool_table table;
    tool_table_begin(&table, "llrrrl", headers);
    const smelt_status status = smelt_cache_walk(context, path, add_entry_row, &table);
    const size_t rows = table.count / table.columns - 1;
    tool_table_end(&table);
    printf("\n%zu cached in %s%s\n", rows, name, path ? ", read-only" : "");
    return status;
}

static int print_cached(smelt_context *context, const smelt_cache_stats *stats,
                        const struct tool_options *options) {
    const char *readonly = *stats->readonly && !*stats->readonly_problem ? stats->readonly : NULL;
    smelt_status status;
    if (options->json) {
        json_t *entries = tool_json(json_array()), *layer = tool_json(json_array());
        status = smelt_cache_walk(context, NULL, add_entry_json, entries);
        if (!status && readonly)
            status = smelt_cache_walk(context, readonly, add_entry_json, layer);
        json_t *document =
            tool_pack("{s:s, s:o, s:s, s:o}", "folder", stats->folder, "entries", entries,
                      "readonly_folder", stats->readonly, "readonly_entries", layer);
        if (!status)
            tool_print_json(document);
        else
            json_decref(document);
    } else {
        status = print_layer(context, NULL, stats->folder);
        if (!status && readonly)
            status = print_layer(context, readonly, readonly);
    }
    return status ? tool_fail_status(options, status) : TOOL_OK;
}

static int list_cached(const struct tool_options *options) {
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    smelt_context *context = NULL;
    int result = tool_open_compiler(options, "sm_80", &context);
    if (result)
        return result;
    smelt_status status = smelt_cache_get_stats(context, &stats);
    if (status && status != SMELT_ERROR_CACHE) /* the walk reports folders that cannot be read */
        result = tool_fail_status(options, status);
    else if (stats.problem[0])
        result = tool_fail(options, TOOL_FAILED, "the cache cannot be used: %s", stats.problem);
    else
        result = print_cached(context, &stats, options);
    smelt_context_destroy(&context);
    return result;
}

/* ---- tuning entries ------------------------------------------------------------------------- */

static int add_tuned_json(void *array, const smelt_tuning_entry *entry) {
    json_array_append_new(array, tool_pack("{s:s, s:s, s:s, s:f}", "spec", entry->spec, "device",
                                           entry->device, "knobs", entry->knobs, "us",
                                           entry->microseconds));
    return 0;
}

static int add_tuned_row(void *user, const smelt_tuning_entry *entry) {
    struct tool_table *table = user;
    tool_table_add_cells(table, "%s\t%s\t%s\t%.1f", entry->spec, entry->device, entry->knobs,
                         entry->microseconds);
    return 0;
}

static smelt_status print_tuned_json(smelt_context *context, const char *file) {
    json_t *entries = tool_json(json_array());
    smelt_status status = smelt_tuning_walk(context, add_tuned_json, entries);
    if (status == SMELT_OK)
        tool_print_json(tool_pack("{s:s, s:O}", "file", file, "entries", entries));
    json_decref(entries);
    return status;
}

static smelt_status print_tuned_table(smelt_context *context, const char *file) {
    static const char *const headers[] = {"kernel", "device", "knobs", "us"};
    struct tool_table table;
    tool_table_begin(&table, "lllr", headers);
    smelt_status status = smelt_tuning_walk(context, add_tuned_row, &table);
    size_t rows = table.count / table.columns - 1;
    tool_table_end(&table);
    if (status == SMELT_OK)
        printf("\n%zu tuned; %s%s\n", rows, *file ? "the tuning file is " : "no tuning file", file);
    return status;
}

static int list_tuned(const struct tool_options *options) {
    smelt_context *context = NULL;
    int result = tool_open_compiler(options, "sm_80", &context);
    if (result)
        return result;
    smelt_context_info info = SMELT_CONTEXT_INFO_INIT;
    smelt_status status = smelt_context_get_info(context, &info);
    if (!status)
        status = options->json ? print_tuned_json(context, info.tuning_path)
                               : print_tuned_table(context, info.tuning_path);
    if (status)
        result = tool_fail_status(options, status);
    smelt_context_destroy(&context);
    return result;
}

int tool_run_list(const struct tool_options *options) {
    const int64_t count = options->arguments.count;
    const int gpus = count == 1 && !strcmp(options->arguments.items[0], "gpus");
    if (options->cache + options->tuned + (count > 0) > 1)
        return tool_fail(options, TOOL_USAGE, "--cache, --tuned, gpus or names, not several");
    return gpus             ? list_gpus(options)
           : options->cache ? list_cached(options)
           : options->tuned ? list_tuned(options)
                            : list_choices(options);
}
