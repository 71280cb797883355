/*
 * Manifests: {"specs": ["SPEC", {"preset": "NAME", "tp": N, "passes": "forward"}, ...], "archs":
 * ["ARCH", ...]}.
 *
 * jansson reports the line of malformed JSON but keeps no positions of well-formed values; a second
 * walk over the text finds the line of a value that is wrong.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

/* Enough for thousands of specs; bounds the cost of an endless file. */
enum { MAX_BYTES = 1 << 20 };

/* The file's path, and its text for finding lines. */
struct manifest {
    const struct tool_options *options;
    const char *path;
    const char *text;
    struct tool_list *specs, *archs; /* destination */
};

/* ---- finding a line -------------------------------------------------------------------------- */

static const char *skip_blanks(const char *at) {
    return at + strspn(at, " \t\r\n");
}

/* The text after a string literal at `at`. The text is known to be JSON. */
static const char *skip_string(const char *at) {
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return *at ? at + 1 : at;
}

/* The text after any value. */
static const char *skip_value(const char *at) {
    int depth = 0;
    do {
        if (*at == '"') {
            at = skip_string(at);
            continue;
        }
        if (*at == '{' || *at == '[')
            depth++;
        if (*at == '}' || *at == ']')
            depth--;
        at++;
    } while (*at && (depth > 0 || !strchr(",]}", *at)));
    return at;
}

/* The value of a key of the object at `at`, or the object itself without that key. Keys of a
 * manifest contain no escapes. */
static const char *find_key(const char *at, const char *key) {
    const char *object = at;
    size_t length = strlen(key);
    at = skip_blanks(at + 1);
    while (*at == '"') {
        const char *name = at + 1;
        const char *end = skip_string(at);
        const char *value = skip_blanks(skip_blanks(end) + 1);
        if ((size_t)(end - 1 - name) == length && !strncmp(name, key, length))
            return value;
        at = skip_blanks(skip_value(value));
        if (*at == ',')
            at = skip_blanks(at + 1);
    }
    return object;
}

/* Element number `index` of the array at `at`. */
static const char *find_element(const char *at, size_t index) {
    at = skip_blanks(at + 1);
    for (; index && *at && *at != ']'; index--) {
        at = skip_blanks(skip_value(at));
        if (*at == ',')
            at = skip_blanks(at + 1);
    }
    return at;
}

static int line_of(const char *text, const char *at) {
    int line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

/* The line of element `index` of the array `key`; index -1: of the array; key NULL: of the
 * manifest's first value. */
static int find_line(const struct manifest *manifest, const char *key, long index) {
    const char *at = skip_blanks(manifest->text);
    if (key && *at == '{')
        at = find_key(at, key);
    if (key && *at == '[' && index >= 0)
        at = find_element(at, (size_t)index);
    return line_of(manifest->text, at);
}

/* ---- meaning --------------------------------------------------------------------------------- */

static int refuse(const struct manifest *manifest, const char *key, long index,
                  const char *message) {
    return tool_fail(manifest->options, TOOL_USAGE, "%s:%d: %s", manifest->path,
                     find_line(manifest, key, index), message);
}

/* The same with the value: "WHAT, not VALUE". */
static int refuse_value(const struct manifest *manifest, const char *key, long index,
                        const char *what, json_t *value) {
    enum { MOST = 60 };
    char message[256];
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    snprintf(message, sizeof message, "%s, not %.*s%s", what, MOST, text ? text : "this",
             text && strlen(text) > MOST ? "..." : "");
    free(text);
    return refuse(manifest, key, index, message);
}

/* The same, where NULL means that the value is missing. */
static int refuse_missing(const struct manifest *manifest, const char *key, long index,
                          const char *what, json_t *value) {
    char message[256];
    if (value)
        return refuse_value(manifest, key, index, what, value);
    snprintf(message, sizeof message, "%s, but is missing", what);
    return refuse(manifest, key, index, message);
}

/* Refuses a key of `object` that is not one of `known`. */
static int check_keys(const struct manifest *manifest, json_t *object, const char *const *known,
                      size_t count, const char *array, long index) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        size_t i = 0;
        char message[256];
        while (i < count && strcmp(key, known[i]) != 0)
            i++;
        if (i < count)
            continue;
        const char *nearest = tool_nearest(key, known, count);
        snprintf(message, sizeof message, "no key \"%s\" here%s%s%s", key,
                 nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
        return refuse(manifest, array ? array : key, index, message);
    }
    return TOOL_OK;
}

static int add_preset(const struct manifest *manifest, json_t *object, long index) {
    static const char *const known[] = {"preset", "tp", "passes"};
    json_t *preset = json_object_get(object, "preset");
    json_t *tp = json_object_get(object, "tp");
    json_t *passes = json_object_get(object, "passes");
    int status = check_keys(manifest, object, known, 3, "specs", index);
    if (status)
        return status;
    if (!json_is_string(preset))
        return refuse_missing(manifest, "specs", index, "\"preset\" must be a name", preset);
    if (tp &&
        (!json_is_integer(tp) || json_integer_value(tp) < 1 || json_integer_value(tp) > INT32_MAX))
        return refuse_value(manifest, "specs", index, "\"tp\" must be a whole number, 1 or more",
                            tp);
    const unsigned set = json_is_string(passes) ? tool_passes(json_string_value(passes)) : 0;
    if (passes && !set)
        return refuse_value(manifest, "specs", index,
                            "\"passes\" must be \"forward\", \"backward\" or \"both\"", passes);
    if (smelt_preset_expand(json_string_value(preset), tp ? (int)json_integer_value(tp) : 1, set,
                            tool_list_collect, manifest->specs))
        return refuse(manifest, "specs", index, smelt_last_error());
    return TOOL_OK;
}

static int add_spec(const struct manifest *manifest, json_t *value, long index) {
    char *canonical = NULL;
    if (json_is_object(value))
        return add_preset(manifest, value, index);
    if (!json_is_string(value))
        return refuse_value(
            manifest, "specs", index,
            "a spec is a string, or an object {\"preset\": NAME, \"tp\": N, \"passes\": SET}",
            value);
    if (smelt_spec_canonical(json_string_value(value), &canonical))
        return refuse(manifest, "specs", index, smelt_last_error());
    tool_list_add(manifest->specs, canonical);
    smelt_free(canonical);
    return TOOL_OK;
}

static int add_arch(const struct manifest *manifest, json_t *value, long index) {
    char where[4200];
    if (!json_is_string(value))
        return refuse_value(manifest, "archs", index, "an architecture is a string, \"sm_90a\"",
                            value);
    snprintf(where, sizeof where, "%s:%d: ", manifest->path, find_line(manifest, "archs", index));
    return tool_add_arch(manifest->archs, manifest->options, where, json_string_value(value));
}

static int add_all(const struct manifest *manifest, json_t *root) {
    static const char *const known[] = {"specs", "archs"};
    int archs_named = manifest->options->archs.count > 0;
    size_t index;
    json_t *value;
    if (!json_is_object(root))
        return refuse_value(manifest, NULL, -1, "a manifest is an object {\"specs\": [...], ...}",
                            root);
    json_t *specs = json_object_get(root, "specs");
    json_t *archs = json_object_get(root, "archs");
    int status = check_keys(manifest, root, known, 2, NULL, -1);
    if (status)
        return status;
    if (!json_is_array(specs))
        return refuse_missing(manifest, "specs", -1, "\"specs\" must be an array", specs);
    if (archs && !json_is_array(archs))
        return refuse_value(manifest, "archs", -1, "\"archs\" must be an array", archs);
    json_array_foreach(specs, index, value) {
        if ((status = add_spec(manifest, value, (long)index)) != TOOL_OK)
            return status;
    }
    if (archs_named)
        return TOOL_OK;          /* --archs on the command line replace the manifest's */
    struct tool_list seen = {0}; /* each name is looked at once, however often it is listed */
    json_array_foreach(archs, index, value) {
        const size_t before = seen.count;
        if (json_is_string(value))
            tool_list_add(&seen, json_string_value(value));
        if (seen.count > before || !json_is_string(value))
            status = add_arch(manifest, value, (long)index);
        if (status)
            break;
    }
    tool_list_free(&seen);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Reads the file, at most MAX_BYTES + 1 bytes, and appends a NUL; NULL with errno set when it
 * cannot be read. */
static char *read_file(const char *path, size_t *length) {
    size_t capacity = 1 << 12;
    char *text = NULL;
    FILE *file = fopen(path, "re");
    *length = 0;
    if (!file)
        return NULL;
    do {
        if (!text || *length + 1 == capacity)
            text = tool_allocate(text, capacity *= 2, 1);
        *length += fread(text + *length, 1, capacity - *length - 1, file);
    } while (!feof(file) && !ferror(file) && *length <= MAX_BYTES);
    text[*length] = '\0';
    if (ferror(file)) {
        int saved = errno;
        free(text);
        text = NULL;
        errno = saved;
    }
    fclose(file);
    return text;
}

int tool_manifest_parse(struct tool_list *specs, struct tool_list *archs,
                        const struct tool_options *options, const char *path, const char *text,
                        size_t length) {
    struct manifest manifest = {options, path, text, specs, archs};
    json_error_t error;
    if (length > MAX_BYTES)
        return tool_fail(options, TOOL_USAGE, "%s: longer than the %d KiB a manifest may have",
                         path, MAX_BYTES >> 10);
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    int status =
        root ? add_all(&manifest, root)
             : tool_fail(options, TOOL_USAGE, "%s:%d: not JSON: %s", path, error.line, error.text);
    json_decref(root);
    return status;
}

int tool_manifest_read(struct tool_list *specs, struct tool_list *archs,
                       const struct tool_options *options) {
    size_t length;
    char *text = read_file(options->manifest, &length);
    if (!text)
        return tool_fail(options, TOOL_USAGE, "%s: %s", options->manifest, strerror(errno));
    int status = tool_manifest_parse(specs, archs, options, options->manifest, text, length);
    free(text);
    return status;
}
