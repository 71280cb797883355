/* Lists of names, the nearest name, and names of architectures. */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

/* ---- lists ----------------------------------------------------------------------------------- */

void tool_list_add(struct tool_list *list, const char *text) {
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->items[i], text))
            return;
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 16;
        list->items = tool_allocate(list->items, list->capacity, sizeof list->items[0]);
    }
    list->items[list->count++] = tool_copy(text);
}

void tool_list_free(struct tool_list *list) {
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct tool_list){0};
}

int tool_list_collect(void *list, const char *text) {
    tool_list_add(list, text);
    return 0;
}

unsigned tool_passes(const char *name) {
    static const char *const sets[] = {NULL, "forward", "backward", "both"}; /* by their bits */
    for (unsigned set = 1; set < sizeof sets / sizeof sets[0]; set++)
        if (!strcmp(sets[set], name))
            return set;
    return 0;
}

/* ---- the nearest ----------------------------------------------------------------------------- */

enum { MAX_NAME = 64 };

static size_t smallest(size_t a, size_t b, size_t c) {
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Levenshtein distance of two names no longer than MAX_NAME, one row of the table at a time. */
static size_t edit_distance(const char *left, const char *right) {
    size_t row[MAX_NAME + 1];
    size_t columns = strlen(right);
    for (size_t j = 0; j <= columns; j++)
        row[j] = j;
    for (size_t i = 1; left[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t above = row[j];
            row[j] = smallest(above + 1, row[j - 1] + 1,
                              diagonal + (left[i - 1] != right[j - 1] ? 1 : 0));
            diagonal = above;
        }
    }
    return row[columns];
}

const char *tool_nearest(const char *given, const char *const *names, size_t count) {
    const char *nearest = NULL;
    size_t length = strlen(given);
    size_t least = 4; /* names more than three edits away are not suggested */
    if (length > MAX_NAME)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) > MAX_NAME)
            continue;
        size_t distance = edit_distance(given, names[i]);
        if (distance < least && 2 * distance < length + 1) {
            least = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

/* ---- architectures --------------------------------------------------------------------------- */

/* The GPUs whose kernels are for `arch`, and whether any of them uses it by this name. */
struct gpu_search {
    const char *arch;
    int used;
    char gpus[256]; /* of arch with an `a`, ", " between them */
};

static int note_gpu(void *user, const char *line) {
    struct gpu_search *search = user;
    const char *arch = strchr(line, ' ') + 1;
    const size_t length = strlen(search->arch), listed = strlen(search->gpus);
    search->used |= !strcmp(arch, search->arch);
    if (!strncmp(arch, search->arch, length) && !strcmp(arch + length, "a"))
        snprintf(search->gpus + listed, sizeof search->gpus - listed, "%s%.*s", listed ? ", " : "",
                 (int)(arch - 1 - line), line);
    return 0;
}

/* Kernels for an architecture without its `a` would be cached, but no GPU looks them up. */
static int check_is_used(const struct tool_options *options, const char *where, const char *arch) {
    struct gpu_search search = {.arch = arch};
    const smelt_status status = smelt_list(SMELT_LIST_GPUS, note_gpu, &search);
    if (status)
        return tool_fail_status(options, status);
    if (search.used || !*search.gpus || options->emulate)
        return TOOL_OK;
    static const char text[] = "%sno GPU uses kernels for %s: %s use those for %sa";
    if (options->strict)
        return tool_fail(options, TOOL_USAGE, text, where, arch, search.gpus, arch);
    tool_say(options, text, where, arch, search.gpus, arch);
    return TOOL_OK;
}

int tool_add_arch(struct tool_list *archs, const struct tool_options *options, const char *where,
                  const char *name) {
    smelt_context_options settings = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_context *context = NULL;
    if (strchr(name, ','))
        return tool_fail(
            options, TOOL_USAGE,
            "%s'%s' is no architecture or GPU: give several one by one, as in --arch h100 "
            "--arch a100",
            where, name);
    settings.kind = SMELT_CONTEXT_COMPILE_ONLY;
    settings.arch = name;
    settings.cache_disable = settings.tuning_disable = 1;
    const smelt_status status = smelt_context_create(&context, &settings);
    if (status == SMELT_ERROR_INVALID_SPEC)
        return tool_fail(options, TOOL_USAGE, "%s%s", where, smelt_last_error());
    if (status)
        return tool_fail_status(options, status);
    const int result = check_is_used(options, where, smelt_context_arch(context));
    if (result == TOOL_OK)
        tool_list_add(archs, smelt_context_arch(context));
    smelt_context_destroy(&context);
    return result;
}
