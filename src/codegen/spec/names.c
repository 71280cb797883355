/* See names.h. */
#include "codegen/spec/names.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 40, MAX_DISTANCE = 3 };

/* Levenshtein distance, one row of the table at a time. */
static int edit_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    int row[MAX_NAME + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b_length];
}

const char *smelt__nearest_name(const char *given, const char *const *names) {
    size_t length = strnlen(given, MAX_NAME + 1);
    if (length > MAX_NAME)
        return NULL;
    const char *nearest = NULL;
    int nearest_distance = MAX_DISTANCE + 1;
    for (; *names; names++) {
        size_t name_length = strlen(*names);
        if (name_length > MAX_NAME)
            continue;
        int distance = edit_distance(given, length, *names, name_length);
        if (distance < nearest_distance && (size_t)distance * 2 < name_length) {
            nearest = *names;
            nearest_distance = distance;
        }
    }
    return nearest;
}

void smelt__name_unknown(const char *prefix, const char *what, const char *given,
                         const char *const *names, struct smelt__message *message) {
    static const char more[] = ", ...";
    char list[640] = "";
    size_t used = 0;
    for (int i = 0; names[i]; i++) {
        const int fits = used + strlen(names[i]) + 2 * sizeof more <= sizeof list;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i && fits ? ", " : "",
                                 fits ? names[i] : more);
        if (!fits)
            break;
    }
    const char *nearest = smelt__nearest_name(given, names);
    smelt__message_set(message, "%sunknown %s '%.60s'%s%s%s; known: %s", prefix, what, given,
                       nearest ? ", did you mean " : "", nearest ? nearest : "", nearest ? "?" : "",
                       names[0] ? list : "none");
}
