/* See arguments.h. */
#include "codegen/template/arguments.h"

#include <string.h>

#include "codegen/template/expression.h"

enum { SHOWN = 60 }; /* bytes of a name in a message */

static int shown(size_t length) {
    return (int)(length < SHOWN ? length : SHOWN);
}

static size_t blanks(const char *text, size_t length) {
    size_t count = 0;
    while (count < length && (text[count] == ' ' || text[count] == '\t'))
        count++;
    return count;
}

int smelt__parameter_find(const struct smelt__parameters *parameters, const char *name,
                          size_t length) {
    for (int i = 0; i < parameters->count; i++)
        if (parameters->items[i].length == length &&
            memcmp(parameters->items[i].name, name, length) == 0)
            return i;
    return -1;
}

int smelt__parameters_read(const char *text, size_t length, struct smelt__parameters *parameters,
                           struct smelt__message *message) {
    const char *end = text + length;
    parameters->count = 0;
    for (text += blanks(text, length); text < end; text += blanks(text, (size_t)(end - text))) {
        size_t name = smelt__name_length(text, (size_t)(end - text));
        if (!name)
            return smelt__message_set(message, "//@takes names parameters: unexpected '%c'", *text);
        if (smelt__parameter_find(parameters, text, name) >= 0)
            return smelt__message_set(message, "//@takes names '%.*s' twice", shown(name), text);
        if (parameters->count == SMELT__PARAMETERS)
            return smelt__message_set(message, "//@takes names more than %d parameters",
                                      SMELT__PARAMETERS);
        parameters->items[parameters->count++] = (struct smelt__parameter){text, name};
        text += name;
    }
    return 0;
}

/* Reads one `NAME = EXPR`. */
static int read_argument(const char *text, size_t length, struct smelt__argument *argument,
                         struct smelt__message *message) {
    size_t at = blanks(text, length);
    argument->name = text + at;
    argument->length = smelt__name_length(text + at, length - at);
    at += argument->length;
    at += blanks(text + at, length - at);
    if (!argument->length || at == length || text[at] != '=')
        return smelt__message_set(message, "write //@use PART NAME = EXPR, NAME = EXPR");
    argument->expression = text + at + 1;
    argument->expression_length = length - at - 1;
    return smelt__expression_check(argument->expression, argument->expression_length, message);
}

int smelt__arguments_read(const char *text, size_t length, struct smelt__arguments *arguments,
                          struct smelt__message *message) {
    const char *end = text + length;
    arguments->count = 0;
    if (blanks(text, length) == length)
        return 0;
    for (;;) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        size_t piece = (size_t)((comma ? comma : end) - text);
        if (arguments->count == SMELT__PARAMETERS)
            return smelt__message_set(message, "//@use gives more than %d arguments",
                                      SMELT__PARAMETERS);
        if (read_argument(text, piece, &arguments->items[arguments->count], message))
            return -1;
        arguments->count++;
        if (!comma)
            return 0;
        text = comma + 1;
    }
}

/* The number of arguments of that name. */
static int times_given(const struct smelt__arguments *arguments, const char *name, size_t length) {
    int times = 0;
    for (int i = 0; i < arguments->count; i++)
        times += arguments->items[i].length == length &&
                 memcmp(arguments->items[i].name, name, length) == 0;
    return times;
}

int smelt__arguments_match(const struct smelt__arguments *arguments,
                           const struct smelt__parameters *parameters, const char *part,
                           struct smelt__message *message) {
    for (int i = 0; i < arguments->count; i++) {
        const struct smelt__argument *argument = &arguments->items[i];
        if (smelt__parameter_find(parameters, argument->name, argument->length) < 0)
            return smelt__message_set(message, "%s takes no '%.*s'", part, shown(argument->length),
                                      argument->name);
    }
    for (int i = 0; i < parameters->count; i++) {
        const struct smelt__parameter *parameter = &parameters->items[i];
        int times = times_given(arguments, parameter->name, parameter->length);
        if (times != 1)
            return smelt__message_set(message, "%s takes '%.*s', which is given %s", part,
                                      shown(parameter->length), parameter->name,
                                      times ? "twice" : "no value");
    }
    return 0;
}
