/* See spec.h: parses text. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "codegen/spec/internal.h"
#include "codegen/spec/keys.h"
#include "codegen/spec/knobs.h"
#include "codegen/spec/names.h"

static void unknown_key(const struct smelt__schema *schema, const char *name, int knobs_only,
                        struct smelt__message *message) {
    enum { MOST = SMELT__MAX_KEYS * 4 };
    const char *names[MOST + 1] = {0};
    char prefix[64];
    int count = 0;
    for (int i = 0; i < schema->key_count; i++)
        if (!knobs_only || schema->keys[i].knob)
            names[count++] = schema->keys[i].name;
    for (int i = 0; count < MOST && smelt__schema_knob(schema, i); i++)
        names[count++] = smelt__schema_knob(schema, i)->name;
    snprintf(prefix, sizeof prefix, "%s: ", schema->name);
    smelt__name_unknown(prefix, knobs_only ? "knob" : "key", name, names, message);
}

/* Sets the message for "bwd.stages" without a member bwd or without that knob. */
static void unknown_member_knob(const struct smelt__schema *schema, char *name,
                                struct smelt__message *message) {
    const char *prefixes[SMELT__MAX_KEYS + 1] = {0};
    char about[96];
    char *dot = strchr(name, '.');
    *dot = '\0';
    for (int i = 0; i < schema->member_count && i < SMELT__MAX_KEYS; i++) {
        prefixes[i] = schema->members[i].prefix;
        if (strcmp(prefixes[i], name) == 0) {
            unknown_key(schema->members[i].schema, dot + 1, 1, message);
            return;
        }
    }
    snprintf(about, sizeof about, "%s: %.20s.%.20s: ", schema->name, name, dot + 1);
    if (schema->member_count)
        smelt__name_unknown(about, "kernel", name, prefixes, message);
    else
        smelt__message_set(message, "%sa kernel's knobs have no prefix", about);
}

/* Only decimal digits: no sign, blank, prefix or overflow. */
static int parse_number(const char *text, int64_t *value) {
    int64_t number = 0;
    if (!*text)
        return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        int digit = *text - '0';
        if (number > (INT64_MAX - digit) / 10)
            return -1;
        number = number * 10 + digit;
    }
    *value = number;
    return 0;
}

/* Parses `256/512/...`, modifying it. smelt__spec_check checks range and order. */
static int parse_list(const struct smelt__key *key, char *text, struct smelt__spec *spec,
                      struct smelt__message *message) {
    const char *name = spec->schema->name;
    int count = 0;
    for (char *entry = text; entry; count++) {
        char *slash = strchr(entry, '/');
        int64_t number;
        if (slash)
            *slash = '\0';
        if (count == SMELT__MAX_LIST)
            return smelt__message_set(message, "%s: %s has too many entries; legal: at most %d",
                                      name, key->name, SMELT__MAX_LIST);
        if (parse_number(entry, &number) || number > INT_MAX)
            return smelt__message_set(message, "%s: %s: entry %d, '%s', is not a number; legal: %s",
                                      name, key->name, count + 1, entry, key->legal);
        spec->list[count] = (int)number;
        entry = slash ? slash + 1 : NULL;
    }
    spec->values[key - spec->schema->keys] = count;
    return 0;
}

/* Parses a value of the key; 0 if it is none. */
static int read_value(const struct smelt__key *key, const char *text, int64_t *value) {
    if (key->choices) {
        for (int i = 0; key->choices[i]; i++) {
            if (strcmp(key->choices[i], text) == 0) {
                *value = i;
                return 1;
            }
        }
    } else if (!parse_number(text, value) && smelt__key_takes(key, *value)) {
        return 1;
    }
    *value = SMELT__AUTO;
    return key->knob && strcmp(text, "auto") == 0;
}

static int parse_value(const char *name, const struct smelt__key *key, const char *text,
                       int64_t *value, struct smelt__message *message) {
    if (read_value(key, text, value))
        return 0;
    return smelt__spec_bad_value(name, key, text, message);
}

static int refuse_empty(const char *name, const char *key, const char *legal,
                        struct smelt__message *message) {
    return smelt__message_set(message, "%s: %s has no value; legal: %s", name, key, legal);
}

/* Parses a value that some member accepts; smelt__spec_check checks the others. */
static int parse_knob_value(const struct smelt__spec *spec, const struct smelt__knob *knob,
                            const char *name, const char *text, int64_t *value,
                            struct smelt__message *message) {
    const struct smelt__key *first = NULL;
    for (int i = 0; i < spec->schema->member_count; i++) {
        const int index = smelt__knob_for(spec, knob, i);
        if (index < 0)
            continue;
        const struct smelt__key *const key = &spec->schema->members[i].schema->keys[index];
        if (read_value(key, text, value))
            return 0;
        first = first ? first : key;
    }
    if (!*text)
        return refuse_empty(spec->schema->name, name, first->legal, message);
    return smelt__spec_bad_value(spec->schema->name, first, text, message);
}

/* A knob in an operator's text, and its value. */
struct named_knob {
    struct smelt__knob knob;
    const char *name, *text;
};

/* What was given so far: a bit per key; the knobs, parsed after the keys, since the key `passes`
 * determines their members; and which of them were given as auto. */
struct seen {
    uint32_t keys;
    struct named_knob knobs[SMELT__SPEC_TEXT / 3]; /* at least "k=," each */
    int knob_count;
    struct smelt__knob autos[SMELT__MAX_KNOBS];
    int auto_count;
};

static int refuse_twice(const struct smelt__schema *schema, const char *name,
                        struct smelt__message *message) {
    return smelt__message_set(message, "%s: %s is given twice", schema->name, name);
}

static int parse_knob(struct named_knob *named, struct smelt__spec *spec, struct seen *seen,
                      struct smelt__message *message) {
    struct smelt__knob *const knob = &named->knob;
    int64_t value;
    for (int i = 0; i < seen->auto_count; i++)
        if (seen->autos[i].for_all == knob->for_all && seen->autos[i].member == knob->member &&
            seen->autos[i].key == knob->key)
            return refuse_twice(spec->schema, named->name, message);
    if (smelt__knob_at(spec, knob))
        return refuse_twice(spec->schema, named->name, message);
    if (parse_knob_value(spec, knob, named->name, named->text, &value, message))
        return -1;
    if (value == SMELT__AUTO) {
        if (seen->auto_count < SMELT__MAX_KNOBS)
            seen->autos[seen->auto_count++] = *knob;
        return 0;
    }
    knob->value = (int)value;
    if (smelt__knob_insert(spec, knob) == 0)
        return 0;
    return smelt__spec_refuse(spec, message, "more than %d knobs", SMELT__MAX_KNOBS);
}

static int parse_key(int index, char *text, struct smelt__spec *spec, struct seen *seen,
                     struct smelt__message *message) {
    const struct smelt__key *key = &spec->schema->keys[index];
    if (seen->keys & UINT32_C(1) << index)
        return refuse_twice(spec->schema, key->name, message);
    seen->keys |= UINT32_C(1) << index;
    if (!*text)
        return refuse_empty(spec->schema->name, key->name, key->legal, message);
    if (!key->list)
        return parse_value(spec->schema->name, key, text, &spec->values[index], message);
    if (strcmp(text, "auto") != 0)
        return parse_list(key, text, spec, message);
    spec->values[index] = SMELT__AUTO;
    return 0;
}

/* Parses one NUL-terminated `key=value`; an operator's knob is only recorded. */
static int parse_item(char *item, int knobs_only, struct smelt__spec *spec, struct seen *seen,
                      struct smelt__message *message) {
    const struct smelt__schema *schema = spec->schema;
    struct smelt__knob knob;
    char *equals = strchr(item, '=');
    if (!equals) {
        if (*item)
            smelt__message_set(message, "%s: '%s' has no '=': write key=value", schema->name, item);
        else
            smelt__message_set(message,
                               "%s: an empty item: write key=value,key=value without a comma too "
                               "many",
                               schema->name);
        return -1;
    }
    *equals = '\0';
    const int index = smelt__spec_key(schema, item);
    if (index >= 0 && knobs_only && !schema->keys[index].knob)
        return smelt__message_set(message, "%s: %s defines what is computed and is not a knob",
                                  schema->name, item);
    if (index >= 0)
        return parse_key(index, equals + 1, spec, seen, message);
    if (smelt__knob_find(schema, item, &knob) == 0) {
        seen->knobs[seen->knob_count++] = (struct named_knob){knob, item, equals + 1};
        return 0;
    }
    if (strchr(item, '.'))
        unknown_member_knob(schema, item, message);
    else
        unknown_key(schema, item, knobs_only, message);
    return -1;
}

int smelt__spec_copy_text(const char *text, char copy[SMELT__SPEC_TEXT],
                          struct smelt__message *message) {
    size_t length = strnlen(text, SMELT__SPEC_TEXT);
    if (length == SMELT__SPEC_TEXT)
        return smelt__message_set(message, "spec '%.40s...' is too long: at most %d characters",
                                  text, SMELT__SPEC_TEXT - 1);
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte <= ' ' || byte >= 0x7f)
            return smelt__message_set(message,
                                      "spec has byte 0x%02x at position %zu; legal: letters, "
                                      "digits and _ : = , . /, no blanks",
                                      byte, i + 1);
    }
    memcpy(copy, text, length + 1);
    return 0;
}

int smelt__spec_parse_keys(const char *text, int knobs_only, struct smelt__spec *spec,
                           struct smelt__message *message) {
    char copy[SMELT__SPEC_TEXT];
    if (smelt__spec_copy_text(text, copy, message))
        return -1;
    if (!*copy)
        return 0;
    struct seen seen = {0};
    for (char *item = copy; item;) {
        char *comma = strchr(item, ',');
        if (comma)
            *comma = '\0';
        if (parse_item(item, knobs_only, spec, &seen, message))
            return -1;
        item = comma ? comma + 1 : NULL;
    }
    for (int i = 0; i < seen.knob_count; i++)
        if (parse_knob(&seen.knobs[i], spec, &seen, message))
            return -1;
    return 0;
}
