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

int tool_check_arch(const struct tool_options *options, const char *where, const char *arch) {
    struct tool_list known = {0};
    char legal[512] = "";
    smelt_status status = smelt_list_archs(tool_list_collect, &known);
    int result = status ? tool_fail_status(options, status) : TOOL_USAGE;
    for (size_t i = 0; i < known.count && !status; i++) {
        size_t used = strlen(legal);
        snprintf(legal + used, sizeof legal - used, "%s%s", i ? ", " : "", known.items[i]);
        if (!strcmp(known.items[i], arch))
            result = TOOL_OK;
    }
    if (result == TOOL_USAGE) {
        const char *nearest = tool_nearest(arch, (const char *const *)known.items, known.count);
        tool_fail(options, TOOL_USAGE, "%sno architecture '%s'; legal: %s%s%s%s", where, arch,
                  legal, nearest ? " (did you mean " : "", nearest ? nearest : "",
                  nearest ? "?)" : "");
    }
    tool_list_free(&known);
    return result;
}
