/* See registry.h and family.h. */
#include "codegen/registry.h"

#include <string.h>

#include "codegen/spec/names.h"

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
    for (int i = 0; i < FAMILY_COUNT; i++) {
        names[i] = families[i]->schema.name;
        if (strcmp(names[i], name) == 0)
            return families[i];
    }
    smelt__name_unknown("", "family", name, names, message);
    return NULL;
}

int smelt__spec_parse(const char *text, struct smelt__spec *spec, struct smelt__message *message) {
    char copy[SMELT__SPEC_TEXT];
    if (smelt__spec_copy_text(text, copy, message))
        return -1;
    char *colon = strchr(copy, ':');
    if (!colon) {
        smelt__message_set(message, "'%s' has no ':': write family:key=value,...", copy);
        return -1;
    }
    *colon = '\0';
    const struct smelt__family *family = smelt__family_find(copy, message);
    if (!family)
        return -1;
    smelt__spec_init(spec, &family->schema);
    if (smelt__spec_parse_keys(colon + 1, 0, spec, message))
        return -1;
    return smelt__spec_check_all(spec, message);
}
