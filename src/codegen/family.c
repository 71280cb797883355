/* The registry: one line a family. */
#include "codegen/family.h"

#include <stdio.h>
#include <string.h>

static const struct smelt__family *const families[] = {
    &smelt__sparse_attn,
    &smelt__sparse_attn_fwd,
    &smelt__sparse_attn_partition,
};
enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

const struct smelt__family *smelt__family_at(int index) {
    return index >= 0 && index < FAMILY_COUNT ? families[index] : NULL;
}

const struct smelt__family *smelt__family_find(const char *name, struct smelt__message *message) {
    const char *names[FAMILY_COUNT + 1] = {0};
    char list[512] = "";
    size_t used = 0;
    for (int i = 0; i < FAMILY_COUNT; i++) {
        names[i] = families[i]->name;
        if (strcmp(names[i], name) == 0)
            return families[i];
        if (used < sizeof list)
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = smelt__nearest_name(name, names);
    smelt__message_set(message, "unknown family '%.60s'%s%s%s; known: %s", name,
                       nearest ? ", did you mean " : "", nearest ? nearest : "", nearest ? "?" : "",
                       list);
    return NULL;
}
