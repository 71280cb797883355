/*
 * The command's JSON documents. Texts from outside (paths, messages, device names) may not be
 * UTF-8, which JSON requires: each byte outside a well-formed sequence becomes U+FFFD. tool_pack
 * builds all documents, so that such a byte never loses one.
 */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

json_t *tool_json(json_t *value) {
    if (!value)
        tool_die_of_memory();
    return value;
}

json_t *tool_json_real(double value) {
    return tool_json(isfinite(value) ? json_real(value) : json_null());
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Length of the well-formed UTF-8 sequence at `at`; 0: none. The terminating NUL is not a
 * continuation byte, so reads stop there. */
static size_t sequence_length(const unsigned char *at) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = at[0] < 0x80             ? 1
                          : (at[0] & 0xe0) == 0xc0 ? 2
                          : (at[0] & 0xf0) == 0xe0 ? 3
                          : (at[0] & 0xf8) == 0xf0 ? 4
                                                   : 0;
    if (length <= 1)
        return length;
    uint32_t point = at[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (at[i] & 0x3f);
    }
    const int is_surrogate = point >= 0xd800 && point <= 0xdfff;
    return point < least[length] || point > 0x10ffff || is_surrogate ? 0 : length;
}

json_t *tool_json_text(const char *text) {
    static const char replacement[] = "\xef\xbf\xbd";
    char *clean = tool_allocate(NULL, strlen(text) + 1, sizeof replacement - 1);
    size_t at = 0;
    while (*text) {
        const size_t length = sequence_length((const unsigned char *)text);
        const size_t copied = length ? length : sizeof replacement - 1;
        memcpy(clean + at, length ? text : replacement, copied);
        at += copied;
        text += length ? length : 1;
    }
    json_t *value = tool_json(json_stringn(clean, at));
    free(clean);
    return value;
}

/* ---- documents ------------------------------------------------------------------------------- */

/* The rest of tool_pack's format, and its arguments. */
struct packing {
    const char *at;
    va_list arguments;
};

/* The next significant character. */
static char next(struct packing *packing) {
    packing->at += strspn(packing->at, " ,:");
    return *packing->at ? *packing->at++ : '\0';
}

static json_t *pack_value(struct packing *packing);

static json_t *pack_object(struct packing *packing) {
    json_t *object = tool_json(json_object());
    while (next(packing) == 's') {
        const char *key = va_arg(packing->arguments, const char *);
        if (json_object_set_new(object, key, pack_value(packing)))
            tool_die_of_memory();
    }
    return object;
}

static json_t *pack_value(struct packing *packing) {
    const char kind = next(packing);
    switch (kind) {
    case '{':
        return pack_object(packing);
    case 's':
        return tool_json_text(va_arg(packing->arguments, const char *));
    case 'i':
        return tool_json(json_integer(va_arg(packing->arguments, int)));
    case 'I':
        return tool_json(json_integer(va_arg(packing->arguments, json_int_t)));
    case 'f':
        return tool_json_real(va_arg(packing->arguments, double));
    case 'b':
        return tool_json(json_boolean(va_arg(packing->arguments, int)));
    case 'o':
        return tool_json(va_arg(packing->arguments, json_t *));
    case 'O':
        return tool_json(json_incref(va_arg(packing->arguments, json_t *)));
    default:
        fprintf(stderr, "smelt: a format of JSON has '%c'\n", kind);
        abort();
    }
}

json_t *tool_pack(const char *format, ...) {
    struct packing packing = {.at = format};
    va_start(packing.arguments, format);
    json_t *value = pack_value(&packing);
    va_end(packing.arguments);
    return value;
}

void tool_print_json(json_t *document) {
    /* Errors of standard output are reported at the end, by main. */
    (void)json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(document);
}
