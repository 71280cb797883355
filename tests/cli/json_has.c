/*
 * json_has FIELD...: reads standard input, which must be exactly one JSON document, and checks that
 * every FIELD is in it. A field is a path and a type: "kernels.0.spec:string", "ok:boolean",
 * "seconds:number"; array elements have numbers; "path=TEXT" requires that string or number, "path:none"
 * that nothing is there.
 *
 * json_has --keys prints the names of members that smelt(1) must document: all except names of a
 * plan's numbers, outputs, rules and errors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

static json_t *step(json_t *value, const char *name) {
    if (json_is_array(value))
        return json_array_get(value, (size_t)strtoul(name, NULL, 10));
    return json_object_get(value, name);
}

static json_t *follow(json_t *value, char *path) {
    char *rest = NULL;
    for (char *name = strtok_r(path, ".", &rest); name && value; name = strtok_r(NULL, ".", &rest))
        value = step(value, name);
    return value;
}

static int is_of_type(const json_t *value, const char *type) {
    static const struct {
        const char *name;
        json_type type;
    } types[] = {{"object", JSON_OBJECT}, {"array", JSON_ARRAY},     {"string", JSON_STRING},
                 {"real", JSON_REAL},     {"integer", JSON_INTEGER}, {"null", JSON_NULL}};
    if (!strcmp(type, "boolean"))
        return json_is_boolean(value);
    if (!strcmp(type, "number"))
        return json_is_number(value);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (!strcmp(types[i].name, type))
            return json_typeof(value) == types[i].type;
    fprintf(stderr, "no type '%s'\n", type);
    return 0;
}

static int is_text(const json_t *value, const char *text) {
    char number[32];
    if (json_is_string(value))
        return !strcmp(json_string_value(value), text);
    if (json_is_boolean(value))
        return !strcmp(json_is_true(value) ? "true" : "false", text);
    snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return json_is_integer(value) && !strcmp(number, text);
}

static int check(json_t *document, const char *field) {
    char path[256];
    size_t length = strcspn(field, ":=");
    if (!field[length] || length >= sizeof path) {
        fprintf(stderr, "'%s' names no type\n", field);
        return 0;
    }
    memcpy(path, field, length);
    path[length] = '\0';
    json_t *value = follow(document, path);
    const char *wanted = field + length + 1;
    if (!value && field[length] == ':' && strcmp(wanted, "none") == 0)
        return 1;
    if (value && (field[length] == ':' ? is_of_type(value, wanted) : is_text(value, wanted)))
        return 1;
    fprintf(stderr, "%s: %s\n", field, value ? "something else is there" : "not there");
    return 0;
}

static void print_keys(json_t *value) {
    static const char *const open[] = {"plan",      "outputs",       "rules",
                                       "tolerance", "max_abs_error", "relative_error"};
    const char *key;
    json_t *member;
    size_t i;
    json_array_foreach(value, i, member) print_keys(member);
    json_object_foreach(value, key, member) {
        puts(key);
        for (i = 0; i < sizeof open / sizeof open[0] && strcmp(open[i], key) != 0; i++)
            ;
        if (i == sizeof open / sizeof open[0])
            print_keys(member);
    }
}

int main(int argc, char **argv) {
    json_error_t error;
    int sound = 1;
    json_t *document = json_loadf(stdin, JSON_REJECT_DUPLICATES, &error);
    if (!document) {
        fprintf(stderr, "not one JSON document: line %d: %s\n", error.line, error.text);
        return 1;
    }
    if (argc == 2 && !strcmp(argv[1], "--keys"))
        print_keys(document);
    for (int i = 1; i < argc && strcmp(argv[i], "--keys"); i++)
        sound &= check(document, argv[i]);
    json_decref(document);
    return !sound;
}
