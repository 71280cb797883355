/* See spec.h. */
#include "codegen/spec/spec.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "codegen/family.h"

void smelt__spec_init(struct smelt__spec *spec, const struct smelt__family *family) {
    assert(family->key_count <= SMELT__MAX_KEYS);
    memset(spec, 0, sizeof *spec);
    spec->family = family;
    for (int i = 0; i < family->key_count; i++)
        spec->values[i] = family->keys[i].required ? SMELT__AUTO : family->keys[i].default_value;
}

int smelt__spec_key(const struct smelt__family *family, const char *name) {
    for (int i = 0; i < family->key_count; i++)
        if (strcmp(family->keys[i].name, name) == 0)
            return i;
    return -1;
}

int64_t smelt__spec_get(const struct smelt__spec *spec, const char *name) {
    int index = smelt__spec_key(spec->family, name);
    assert(index >= 0);
    return spec->values[index];
}

void smelt__spec_set(struct smelt__spec *spec, const char *name, int64_t value) {
    int index = smelt__spec_key(spec->family, name);
    assert(index >= 0);
    spec->values[index] = value;
}

/* ---- names ------------------------------------------------------------------------------------
 */

enum { LONGEST_NAME = 40, FARTHEST_NAME = 3 };

/* Levenshtein's distance, one row of its table at a time. */
static int edit_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    int row[LONGEST_NAME + 1];
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
    size_t length = strnlen(given, LONGEST_NAME + 1);
    if (length > LONGEST_NAME)
        return NULL;
    const char *nearest = NULL;
    int nearest_distance = FARTHEST_NAME + 1;
    for (; *names; names++) {
        size_t name_length = strlen(*names);
        if (name_length > LONGEST_NAME)
            continue;
        int distance = edit_distance(given, length, *names, name_length);
        if (distance < nearest_distance && (size_t)distance * 2 < name_length) {
            nearest = *names;
            nearest_distance = distance;
        }
    }
    return nearest;
}

/* Appends at *used as far as there is room. */
__attribute__((format(printf, 4, 5))) static void put(char *text, size_t size, size_t *used,
                                                      const char *format, ...) {
    if (*used >= size)
        return;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text + *used, size - *used, format, arguments);
    va_end(arguments);
    if (length > 0)
        *used += (size_t)length;
}

static void unknown_key(const struct smelt__family *family, const char *name, int knobs_only,
                        struct smelt__message *message) {
    const char *names[SMELT__MAX_KEYS + 1] = {0};
    char list[512] = "";
    size_t used = 0;
    int count = 0;
    for (int i = 0; i < family->key_count; i++) {
        if (knobs_only && !family->keys[i].knob)
            continue;
        put(list, sizeof list, &used, "%s%s", count ? ", " : "", family->keys[i].name);
        names[count++] = family->keys[i].name;
    }
    const char *nearest = smelt__nearest_name(name, names);
    smelt__message_set(message, "%s: unknown %s '%s'%s%s%s; known: %s", family->name,
                       knobs_only ? "knob" : "key", name, nearest ? ", did you mean " : "",
                       nearest ? nearest : "", nearest ? "?" : "", list);
}

static void bad_value(const struct smelt__family *family, const struct smelt__key *key,
                      const char *value, struct smelt__message *message) {
    const char *nearest = key->choices ? smelt__nearest_name(value, key->choices) : NULL;
    smelt__message_set(message, "%s: %s=%s is not legal%s%s%s; legal: %s", family->name, key->name,
                       value, nearest ? ", did you mean " : "", nearest ? nearest : "",
                       nearest ? "?" : "", key->legal);
}

/* ---- parsing ----------------------------------------------------------------------------------
 */

/* Decimal digits alone: no sign, blank, prefix or overflow. */
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

/* `256/512/...`, which may be cut up. Range and order are the check's. */
static int parse_list(const struct smelt__key *key, char *text, struct smelt__spec *spec,
                      struct smelt__message *message) {
    const char *family = spec->family->name;
    int count = 0;
    for (char *entry = text; entry; count++) {
        char *slash = strchr(entry, '/');
        int64_t number;
        if (slash)
            *slash = '\0';
        if (count == SMELT__MAX_LIST) {
            smelt__message_set(message, "%s: %s has too many entries; legal: at most %d", family,
                               key->name, SMELT__MAX_LIST);
            return -1;
        }
        if (parse_number(entry, &number) || number > INT_MAX) {
            smelt__message_set(message, "%s: %s: entry %d, '%s', is no number; legal: %s", family,
                               key->name, count + 1, entry, key->legal);
            return -1;
        }
        spec->list[count] = (int)number;
        entry = slash ? slash + 1 : NULL;
    }
    spec->values[key - spec->family->keys] = count;
    return 0;
}

static int parse_value(const struct smelt__family *family, const struct smelt__key *key,
                       const char *text, int64_t *value, struct smelt__message *message) {
    if (key->choices) {
        for (int i = 0; key->choices[i]; i++) {
            if (strcmp(key->choices[i], text) == 0) {
                *value = i;
                return 0;
            }
        }
    } else if (!parse_number(text, value) && *value >= key->minimum && *value <= key->maximum) {
        return 0;
    }
    if (key->knob && strcmp(text, "auto") == 0) {
        *value = SMELT__AUTO;
        return 0;
    }
    bad_value(family, key, text, message);
    return -1;
}

/* One `key=value`, NUL-terminated; `seen` has a bit per key given so far. */
static int parse_item(char *item, int knobs_only, struct smelt__spec *spec, uint32_t *seen,
                      struct smelt__message *message) {
    const struct smelt__family *family = spec->family;
    char *equals = strchr(item, '=');
    if (!equals) {
        if (*item)
            smelt__message_set(message, "%s: '%s' has no '=': write key=value", family->name, item);
        else
            smelt__message_set(message,
                               "%s: an empty item: write key=value,key=value without a comma too "
                               "many",
                               family->name);
        return -1;
    }
    *equals = '\0';
    int index = smelt__spec_key(family, item);
    if (index >= 0 && knobs_only && !family->keys[index].knob) {
        smelt__message_set(message, "%s: %s says what is computed and is no knob", family->name,
                           item);
        return -1;
    }
    if (index < 0) {
        unknown_key(family, item, knobs_only, message);
        return -1;
    }
    const struct smelt__key *key = &family->keys[index];
    if (*seen & UINT32_C(1) << index) {
        smelt__message_set(message, "%s: %s is given twice", family->name, key->name);
        return -1;
    }
    *seen |= UINT32_C(1) << index;
    if (!equals[1]) {
        smelt__message_set(message, "%s: %s has no value; legal: %s", family->name, key->name,
                           key->legal);
        return -1;
    }
    if (!key->list)
        return parse_value(family, key, equals + 1, &spec->values[index], message);
    if (strcmp(equals + 1, "auto") != 0)
        return parse_list(key, equals + 1, spec, message);
    spec->values[index] = SMELT__AUTO;
    return 0;
}

/* Copies text into a buffer that parsing may cut up; refuses what is too long or not printable, so
 * that messages can quote any piece of it. */
static int copy_text(const char *text, char copy[SMELT__SPEC_TEXT],
                     struct smelt__message *message) {
    size_t length = strnlen(text, SMELT__SPEC_TEXT);
    if (length == SMELT__SPEC_TEXT) {
        smelt__message_set(message, "spec '%.40s...' is too long: at most %d characters", text,
                           SMELT__SPEC_TEXT - 1);
        return -1;
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte <= ' ' || byte >= 0x7f) {
            smelt__message_set(message,
                               "spec has byte 0x%02x at position %zu: no blanks, letters, digits "
                               "and _ : = , alone",
                               byte, i + 1);
            return -1;
        }
    }
    memcpy(copy, text, length + 1);
    return 0;
}

int smelt__spec_parse_keys(const char *text, int knobs_only, struct smelt__spec *spec,
                           struct smelt__message *message) {
    char copy[SMELT__SPEC_TEXT];
    if (copy_text(text, copy, message))
        return -1;
    if (!*copy)
        return 0;
    uint32_t seen = 0;
    for (char *item = copy; item;) {
        char *comma = strchr(item, ',');
        if (comma)
            *comma = '\0';
        if (parse_item(item, knobs_only, spec, &seen, message))
            return -1;
        item = comma ? comma + 1 : NULL;
    }
    return 0;
}

int smelt__spec_parse(const char *text, struct smelt__spec *spec, struct smelt__message *message) {
    char copy[SMELT__SPEC_TEXT];
    if (copy_text(text, copy, message))
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
    smelt__spec_init(spec, family);
    if (smelt__spec_parse_keys(colon + 1, 0, spec, message))
        return -1;
    return smelt__spec_check(spec, message);
}

/* ---- checking and printing --------------------------------------------------------------------
 */

static int check_list(const struct smelt__spec *spec, const struct smelt__key *key, int64_t count,
                      struct smelt__message *message) {
    const char *family = spec->family->name;
    if (count == SMELT__AUTO)
        return 0;
    assert(count >= 0 && count <= SMELT__MAX_LIST);
    for (int i = 0; i < (int)count; i++) {
        const int entry = spec->list[i], before = i > 0 ? spec->list[i - 1] : 0;
        if (entry < key->minimum || entry > key->maximum) {
            smelt__message_set(message, "%s: %s: entry %d, %d, is out of range; legal: %s", family,
                               key->name, i + 1, entry, key->legal);
            return -1;
        }
        if (i > 0 && entry <= before) {
            smelt__message_set(message, "%s: %s: entry %d, %d, %s entry %d, %d; legal: %s", family,
                               key->name, i + 1, entry,
                               entry == before ? "is the same as" : "is below", i, before,
                               key->legal);
            return -1;
        }
    }
    return 0;
}

static int check_key(const struct smelt__family *family, const struct smelt__key *key,
                     int64_t value, struct smelt__message *message) {
    if (value == SMELT__AUTO) {
        if (!key->required)
            return 0;
        smelt__message_set(message, "%s: %s is missing; legal: %s", family->name, key->name,
                           key->legal);
        return -1;
    }
    int64_t minimum = key->minimum, maximum = key->maximum;
    if (key->choices) {
        minimum = 0;
        for (maximum = -1; key->choices[maximum + 1];)
            maximum++;
    }
    if (value >= minimum && value <= maximum)
        return 0;
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, value);
    bad_value(family, key, number, message);
    return -1;
}

/* The canonical text's keys of `mask`, as far as there is room; its whole length. */
static size_t print_keys(const struct smelt__spec *spec, uint32_t mask, char *text, size_t size) {
    const struct smelt__family *family = spec->family;
    size_t used = 0;
    put(text, size, &used, "%s", family->name);
    char separator = ':';
    for (int i = 0; i < family->key_count; i++) {
        const struct smelt__key *key = &family->keys[i];
        int64_t value = spec->values[i];
        if ((value == SMELT__AUTO && !key->list) ||
            (!key->required && value == key->default_value) || !(mask >> i & 1))
            continue;
        put(text, size, &used, "%c%s=", separator, key->name);
        if (value == SMELT__AUTO)
            put(text, size, &used, "auto");
        else if (key->list)
            for (int k = 0; k < (int)value; k++)
                put(text, size, &used, "%s%d", k ? "/" : "", spec->list[k]);
        else if (key->choices)
            put(text, size, &used, "%s", key->choices[value]);
        else
            put(text, size, &used, "%" PRId64, value);
        separator = ',';
    }
    return used;
}

int smelt__spec_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const struct smelt__family *family = spec->family;
    char text[SMELT__SPEC_TEXT];
    for (int i = 0; i < family->key_count; i++)
        if (family->keys[i].list ? check_list(spec, &family->keys[i], spec->values[i], message)
                                 : check_key(family, &family->keys[i], spec->values[i], message))
            return -1;
    if (print_keys(spec, UINT32_MAX, text, sizeof text) >= sizeof text) {
        smelt__message_set(message, "%s: the spec's text is too long: at most %d characters",
                           family->name, SMELT__SPEC_TEXT - 1);
        return -1;
    }
    return family->check ? family->check(spec, message) : 0;
}

static void print_whole(const struct smelt__spec *spec, uint32_t mask,
                        char text[SMELT__SPEC_TEXT]) {
    size_t length = print_keys(spec, mask, text, SMELT__SPEC_TEXT);
    assert(length < SMELT__SPEC_TEXT);
    (void)length;
}

void smelt__spec_print(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]) {
    print_whole(spec, UINT32_MAX, text);
}

void smelt__spec_print_asked(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]) {
    print_whole(spec, ~spec->tuned, text);
}

/* ---- tuning -----------------------------------------------------------------------------------
 */

void smelt__spec_strip_knobs(const struct smelt__spec *spec, struct smelt__spec *stripped) {
    *stripped = *spec;
    stripped->tuned = 0;
    for (int i = 0; i < spec->family->key_count; i++)
        if (spec->family->keys[i].knob)
            stripped->values[i] = spec->family->keys[i].default_value;
}

int smelt__spec_tune(struct smelt__spec *spec, const char *knobs, struct smelt__message *message) {
    struct smelt__spec entry;
    smelt__spec_init(&entry, spec->family);
    if (smelt__spec_parse_keys(knobs, 1, &entry, message))
        return -1;
    for (int i = 0; i < spec->family->key_count; i++) {
        if (!spec->family->keys[i].knob || entry.values[i] == SMELT__AUTO ||
            spec->values[i] != SMELT__AUTO)
            continue;
        spec->values[i] = entry.values[i];
        spec->tuned |= UINT32_C(1) << i;
    }
    return 0;
}
