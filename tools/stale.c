/* Cached kernels that this version of smelt does not use: of another source, or another NVRTC's. */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

struct entry {
    char *spec, *arch;
    char key[33];
    int other_compiler, current;
};

struct entries {
    struct tool_stale *stale;
    int nvrtc_major, nvrtc_minor; /* 0: any */
    struct entry *items;
    size_t count, capacity;
};

static int take_entry(void *user, const char *file, const smelt_kernel_info *info) {
    struct entries *entries = user;
    (void)file;
    entries->stale->entries++;
    if (info->state == SMELT_KERNEL_FAILED) {
        entries->stale->other_source += info->status == SMELT_ERROR_UNSUPPORTED;
        return 0;
    }
    if (entries->count == entries->capacity) {
        entries->capacity = entries->capacity ? 2 * entries->capacity : 64;
        entries->items = tool_allocate(entries->items, entries->capacity, sizeof *entries->items);
    }
    struct entry *entry = &entries->items[entries->count++];
    *entry = (struct entry){.spec = tool_copy(info->spec), .arch = tool_copy(info->arch)};
    snprintf(entry->key, sizeof entry->key, "%s", info->key);
    entry->other_compiler =
        entries->nvrtc_major && info->nvrtc_major &&
        (info->nvrtc_major != entries->nvrtc_major || info->nvrtc_minor != entries->nvrtc_minor);
    return 0;
}

static int add_device(void *list, const smelt_tuning_entry *entry) {
    tool_list_add(list, entry->device);
    return 0;
}

/* Marks the architecture's entries that a context with this device's tuning entries looks up. Neither
 * reads the cache nor compiles: of each kernel only its key is made. */
static smelt_status mark_current(struct entries *entries, const char *arch, const char *device) {
    smelt_context_options settings = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_context *context = NULL;
    smelt_kernel_request *requests = tool_allocate(NULL, entries->count + 1, sizeof *requests);
    smelt_kernel_info *infos = tool_kernel_infos(entries->count + 1);
    size_t count = 0;
    settings.kind = SMELT_CONTEXT_COMPILE_ONLY;
    settings.arch = arch;
    settings.tuning_device = device;
    settings.offline = settings.cache_recompile = 1;
    const smelt_status status = smelt_context_create(&context, &settings);
    for (size_t i = 0; i < entries->count; i++)
        if (!strcmp(entries->items[i].arch, arch))
            requests[count++] = tool_kernel_request(entries->items[i].spec, arch);
    const smelt_status missing =
        status ? status : smelt_kernels_prepare(context, requests, count, 0, NULL, NULL, infos);
    (void)missing; /* nothing is found: the infos have the keys */
    for (size_t i = 0, at = 0; i < entries->count && !status; i++)
        if (!strcmp(entries->items[i].arch, arch))
            entries->items[i].current |= !strcmp(infos[at++].key, entries->items[i].key);
    smelt_context_destroy(&context);
    free(requests);
    free(infos);
    return status == SMELT_ERROR_INVALID_SPEC ? SMELT_OK : status; /* unknown here: stale */
}

smelt_status tool_find_stale(smelt_context *context, const char *path, int nvrtc_major,
                             int nvrtc_minor, struct tool_stale *stale) {
    struct entries entries = {stale, nvrtc_major, nvrtc_minor, NULL, 0, 0};
    struct tool_list devices = {0}, archs = {0};
    *stale = (struct tool_stale){0};
    smelt_status status = smelt_cache_walk(context, path, take_entry, &entries);
    tool_list_add(&devices, "");
    if (!status)
        status = smelt_tuning_walk(context, add_device, &devices);
    for (size_t i = 0; i < entries.count; i++)
        tool_list_add(&archs, entries.items[i].arch);
    for (size_t i = 0; i < devices.count * archs.count && !status; i++)
        status = mark_current(&entries, archs.items[i / devices.count],
                              devices.items[i % devices.count]);
    for (size_t i = 0; i < entries.count; i++) {
        stale->other_source += !entries.items[i].current;
        stale->other_nvrtc += entries.items[i].current && entries.items[i].other_compiler;
        free(entries.items[i].spec);
        free(entries.items[i].arch);
    }
    free(entries.items);
    tool_list_free(&devices);
    tool_list_free(&archs);
    return status;
}
