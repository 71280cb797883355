/* Problem options as text: one table for parsing a command line and for printing the command. */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/problem.h"

enum kind { INTEGER, FLAG, LISTS, QUERY_LIST, SEED, SCALE };

struct option {
    const char *name;
    enum kind kind;
    size_t offset;
    int64_t minimum, maximum;
};

#define FIELD(field) offsetof(struct smelt__problem_options, field)

static const struct option options_table[] = {
    {"seed", SEED, FIELD(seed), 0, 0},
    {"batches", INTEGER, FIELD(batches), 1, 65536},
    {"queries", INTEGER, FIELD(tokens), 1, INT32_MAX},
    {"rows", INTEGER, FIELD(rows), 1, INT32_MAX},
    {"width", INTEGER, FIELD(width), 1, 1 << 24},
    {"valid", INTEGER, FIELD(valid), 1, 1 << 24},
    {"documents", INTEGER, FIELD(documents), 1, 1 << 20},
    {"lists", LISTS, FIELD(lists), 0, 0},
    {"query-list", QUERY_LIST, FIELD(query_list), 0, 0},
    {"scale", SCALE, FIELD(scale), 0, 0},
    {"spiky", FLAG, FIELD(spiky), 0, 0},
    {"topk-length", FLAG, FIELD(topk_length), 0, 0},
    {"strided", FLAG, FIELD(strided), 0, 0},
    {"max-logits", FLAG, FIELD(max_logits), 0, 0},
    {"far", FLAG, FIELD(far), 0, 0},
};

enum { OPTIONS = sizeof options_table / sizeof options_table[0] };

static const char *const lists_names[] = {"random",      "causal", "window",
                                          "adversarial", "packed", "log"};
static const char *const query_list_names[] = {"none", "partial", "clamped", "whole", "empty"};

const char *smelt__lists_name(enum smelt__lists lists) {
    return lists_names[lists];
}

static const struct option *find(const char *name) {
    for (int i = 0; i < OPTIONS; i++)
        if (strcmp(options_table[i].name, name) == 0)
            return &options_table[i];
    return NULL;
}

int smelt__problem_option_takes_value(const char *name) {
    const struct option *option = find(name);
    return option ? option->kind != FLAG : -1;
}

__attribute__((format(printf, 3, 4))) static int fail(char *message, size_t size,
                                                      const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, size, format, arguments);
    va_end(arguments);
    return -1;
}

static int choice(const char *value, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(value, names[i]) == 0)
            return i;
    return -1;
}

static int set_integer(const struct option *option, void *field, const char *value, char *message,
                       size_t size) {
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || end == value || *end || number < option->minimum || number > option->maximum)
        return fail(message, size, "--%s: '%s' is not a number from %lld to %lld", option->name,
                    value, (long long)option->minimum, (long long)option->maximum);
    *(int64_t *)field = number;
    return 1;
}

static int set_seed(void *field, const char *value, char *message, size_t size) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 0);
    if (errno || end == value || *end || strchr(value, '-'))
        return fail(message, size, "--seed: '%s' is not a number from 0 to 2^64 - 1", value);
    *(uint64_t *)field = number;
    return 1;
}

static int set_scale(void *field, const char *value, char *message, size_t size) {
    char *end;
    float number = strtof(value, &end);
    if (end == value || *end || !(number > 0.0F && number <= 1e30F))
        return fail(message, size, "--scale: '%s' is not a number above 0", value);
    *(float *)field = number;
    return 1;
}

int smelt__problem_option_set(struct smelt__problem_options *options, const char *name,
                              const char *value, char *message, size_t message_size) {
    const struct option *option = find(name);
    if (!option)
        return 0;
    char *field = (char *)options + option->offset;
    if (option->kind == FLAG) {
        *(int *)(void *)field = 1;
        return 1;
    }
    if (!value)
        return fail(message, message_size, "--%s needs a value", name);
    int chosen;
    switch (option->kind) {
    case SEED:
        return set_seed(field, value, message, message_size);
    case SCALE:
        return set_scale(field, value, message, message_size);
    case LISTS:
        chosen = choice(value, lists_names, SMELT__LISTS_KINDS);
        if (chosen < 0)
            return fail(message, message_size,
                        "--lists: '%s' is none of random, causal, window, adversarial, packed, log",
                        value);
        options->lists = (enum smelt__lists)chosen;
        return 1;
    case QUERY_LIST:
        chosen = choice(value, query_list_names, 5);
        if (chosen < 0)
            return fail(message, message_size,
                        "--query-list: '%s' is none of none, partial, clamped, whole, empty",
                        value);
        options->query_list = (enum smelt__query_list)chosen;
        return 1;
    default:
        return set_integer(option, field, value, message, message_size);
    }
}

static int same_field(const struct option *option, const void *a, const void *b) {
    switch (option->kind) {
    case SEED:
    case INTEGER:
        return *(const int64_t *)a == *(const int64_t *)b;
    case SCALE:
        return *(const float *)a == *(const float *)b;
    default: /* a flag, or an enumeration of an int's size */
        return *(const int *)a == *(const int *)b;
    }
}

int smelt__problem_same(const struct smelt__problem_options *a,
                        const struct smelt__problem_options *b) {
    for (int i = 0; i < OPTIONS; i++) {
        const size_t offset = options_table[i].offset;
        if (!same_field(&options_table[i], (const char *)a + offset, (const char *)b + offset))
            return 0;
    }
    return 1;
}

static int print_option(const struct option *option, const struct smelt__problem_options *options,
                        char *text, size_t size) {
    const char *field = (const char *)options + option->offset;
    switch (option->kind) {
    case SEED:
        return snprintf(text, size, " --seed %llu", (unsigned long long)options->seed);
    case SCALE:
        return options->scale > 0 ? snprintf(text, size, " --scale %.9g", (double)options->scale)
                                  : 0;
    case LISTS:
        return snprintf(text, size, " --lists %s", lists_names[options->lists]);
    case QUERY_LIST:
        return options->query_list
                   ? snprintf(text, size, " --query-list %s", query_list_names[options->query_list])
                   : 0;
    case FLAG:
        return *(const int *)(const void *)field ? snprintf(text, size, " --%s", option->name) : 0;
    default: {
        int64_t value = *(const int64_t *)(const void *)field;
        return value ? snprintf(text, size, " --%s %lld", option->name, (long long)value) : 0;
    }
    }
}

void smelt__problem_command(const char *verb, const char *spec,
                            const struct smelt__problem_options *options, char *text, size_t size) {
    size_t length = 0;
    int written = snprintf(text, size, "smelt %s %s", verb, spec);
    for (int i = 0; i < OPTIONS; i++) {
        length += written > 0 ? (size_t)written : 0;
        if (length >= size)
            return;
        written = print_option(&options_table[i], options, text + length, size - length);
    }
}
