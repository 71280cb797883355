/* See knobs.h. */
#include "codegen/spec/knobs.h"

#include <stdio.h>
#include <string.h>

const struct smelt__key *smelt__knob_key(const struct smelt__schema *schema,
                                         const struct smelt__knob *knob) {
    return &schema->members[knob->member].schema->keys[knob->key];
}

/* The index of a member's knob, or -1. */
static int find_in(const struct smelt__member *member, const char *name) {
    const int key = smelt__spec_key(member->schema, name);
    return key >= 0 && member->schema->keys[key].knob ? key : -1;
}

int smelt__knob_find(const struct smelt__schema *schema, const char *name,
                     struct smelt__knob *knob) {
    const char *dot = strchr(name, '.');
    const size_t prefix = dot ? (size_t)(dot - name) : 0;
    for (int i = 0; i < schema->member_count; i++) {
        const struct smelt__member *member = &schema->members[i];
        if (dot && (strlen(member->prefix) != prefix || strncmp(member->prefix, name, prefix) != 0))
            continue;
        const int key = find_in(member, dot ? dot + 1 : name);
        if (key < 0)
            continue;
        *knob = (struct smelt__knob){
            .for_all = !dot, .member = (signed char)i, .key = (short)key, .value = 0};
        return 0;
    }
    return -1;
}

/* Knobs for all members come first, then by member and key. */
static int compare(const struct smelt__knob *a, const struct smelt__knob *b) {
    if (a->for_all != b->for_all)
        return b->for_all - a->for_all;
    return a->member != b->member ? a->member - b->member : a->key - b->key;
}

struct smelt__knob *smelt__knob_at(struct smelt__spec *spec, const struct smelt__knob *knob) {
    for (int i = 0; i < spec->knob_count; i++)
        if (compare(&spec->knobs[i], knob) == 0)
            return &spec->knobs[i];
    return NULL;
}

int smelt__knob_insert(struct smelt__spec *spec, const struct smelt__knob *knob) {
    int at = spec->knob_count;
    if (at == SMELT__MAX_KNOBS)
        return -1;
    for (; at > 0 && compare(&spec->knobs[at - 1], knob) > 0; at--)
        spec->knobs[at] = spec->knobs[at - 1];
    spec->knobs[at] = *knob;
    spec->knob_count++;
    return 0;
}

void smelt__knob_name(const struct smelt__schema *schema, const struct smelt__knob *knob,
                      char *text, size_t size) {
    const char *name = smelt__knob_key(schema, knob)->name;
    if (knob->for_all)
        snprintf(text, size, "%s", name);
    else
        snprintf(text, size, "%s.%s", schema->members[knob->member].prefix, name);
}

/* Whether the member belongs to a pass of the spec. */
static int is_asked_for(const struct smelt__spec *spec, const struct smelt__member *member) {
    const int64_t passes = smelt__spec_get(spec, "passes");
    return passes == SMELT__AUTO || !member->passes || (member->passes & ((unsigned)passes + 1));
}

int smelt__knob_for(const struct smelt__spec *spec, const struct smelt__knob *knob, int member) {
    const struct smelt__member *const members = spec->schema->members;
    if (!knob->for_all)
        return knob->member == member ? knob->key : -1;
    const char *const name = smelt__knob_key(spec->schema, knob)->name;
    if (!is_asked_for(spec, &members[member]))
        for (int i = 0; i < spec->schema->member_count; i++)
            if (is_asked_for(spec, &members[i]) && find_in(&members[i], name) >= 0)
                return -1;
    return find_in(&members[member], name);
}

/* Whether a member before this one has a knob of the name. */
static int is_repeated(const struct smelt__schema *schema, int member, const char *name) {
    for (int i = 0; i < member; i++)
        if (find_in(&schema->members[i], name) >= 0)
            return 1;
    return 0;
}

const struct smelt__key *smelt__schema_knob(const struct smelt__schema *schema, int index) {
    for (int i = 0; i < schema->member_count; i++)
        for (int k = 0; k < schema->members[i].schema->key_count; k++) {
            const struct smelt__key *key = &schema->members[i].schema->keys[k];
            if (key->knob && !is_repeated(schema, i, key->name) && index-- == 0)
                return key;
        }
    return NULL;
}

/* Whether members with a knob of the name have other legal values for it. */
static int is_differing(const struct smelt__schema *schema, const struct smelt__key *knob) {
    for (int i = 0; i < schema->member_count; i++) {
        const int key = find_in(&schema->members[i], knob->name);
        if (key >= 0 && strcmp(schema->members[i].schema->keys[key].legal, knob->legal) != 0)
            return 1;
    }
    return 0;
}

const struct smelt__key *smelt__schema_knob_row(const struct smelt__schema *schema, int index,
                                                const char **prefix) {
    for (int i = 0; i < schema->member_count; i++)
        for (int k = 0; k < schema->members[i].schema->key_count; k++) {
            const struct smelt__key *key = &schema->members[i].schema->keys[k];
            const int differs = key->knob && is_differing(schema, key);
            if (!key->knob || (!differs && is_repeated(schema, i, key->name)) || index-- > 0)
                continue;
            *prefix = differs ? schema->members[i].prefix : "";
            return key;
        }
    return NULL;
}
