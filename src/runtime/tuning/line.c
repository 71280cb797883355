/* A line of the tuning file: see tuning/file.h. */
#include <stdio.h>
#include <string.h>

#include "codegen/family.h"
#include "runtime/tuning/file.h"

static int is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static size_t word_length(const char *at, const char *end) {
    size_t length = 0;
    while (at + length < end && !is_blank(at[length]))
        length++;
    return length;
}

/* Removes the last word, and the blanks before it, from a text that ends at *end. */
static const char *take_last_word(const char *begin, const char **end, size_t *length) {
    const char *at = *end;
    while (at > begin && !is_blank(at[-1]))
        at--;
    *length = (size_t)(*end - at);
    const char *word = at;
    while (at > begin && is_blank(at[-1]))
        at--;
    *end = at;
    return word;
}

static int copy(char to[SMELT__TUNING_TEXT], const char *from, size_t length, const char *what,
                struct smelt__message *message) {
    if (length == 0)
        return smelt__message_set(
            message, "its %s is missing; a line is: spec  device  knobs  microseconds", what);
    if (length >= SMELT__TUNING_TEXT)
        return smelt__message_set(message, "its %s is longer than %d characters", what,
                                  SMELT__TUNING_TEXT - 1);
    memcpy(to, from, length);
    to[length] = '\0';
    return 0;
}

/* Two decimals are printed, so less than half of the last one would become 0. */
#define MIN_MICROSECONDS 0.005

/* Digits, optionally a point and more digits, in any locale. */
static int read_microseconds(const char *text, double *value, struct smelt__message *message) {
    double number = 0, unit = 1;
    int digits = 0;
    for (const char *at = text; *at; at++) {
        if (*at == '.' && unit == 1.0 && digits) {
            unit = 0.1;
        } else if (*at >= '0' && *at <= '9' && digits < 15) {
            number = unit < 1 ? number + unit * (*at - '0') : number * 10 + (*at - '0');
            unit = unit < 1 ? unit / 10 : unit;
            digits++;
        } else {
            digits = 0;
            break;
        }
    }
    if (!digits || number < MIN_MICROSECONDS)
        return smelt__message_set(
            message,
            "its last word, microseconds, is '%.40s'; legal: a number of at least "
            "0.01",
            text);
    *value = number;
    return 0;
}

static int check_spec(const char *text, struct smelt__spec *spec, struct smelt__message *message) {
    struct smelt__spec stripped;
    char canonical[SMELT__SPEC_TEXT];
    if (smelt__spec_parse(text, spec, message))
        return -1;
    if (smelt__operator_of(spec->schema))
        return smelt__message_set(message, "%s is an operator; kernels are tuned",
                                  spec->schema->name);
    smelt__spec_strip_knobs(spec, &stripped);
    smelt__spec_print(&stripped, canonical);
    if (strcmp(canonical, text) == 0)
        return 0;
    return smelt__message_set(message, "its spec is not in canonical form without knobs, %s",
                              canonical);
}

static int check_bytes(const char *text, size_t length, struct smelt__message *message) {
    if (length > SMELT__TUNING_MAX_LINE)
        return smelt__message_set(message, "it is longer than %d bytes", SMELT__TUNING_MAX_LINE);
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if ((byte < ' ' && !is_blank(text[i])) || byte == 0x7f)
            return smelt__message_set(message, "it has byte 0x%02x at position %zu", byte, i + 1);
    }
    return 0;
}

int smelt__tuning_line_parse(const char *text, size_t length, struct smelt__tuning_line *line,
                             struct smelt__message *message) {
    const char *at = text, *end = text + length;
    struct smelt__spec spec;
    char number[SMELT__TUNING_TEXT];
    size_t word;

    memset(line, 0, sizeof *line);
    while (at < end && is_blank(*at))
        at++;
    if (at == end || *at == '#')
        return 0;
    if (check_bytes(text, length, message))
        return -1;
    while (is_blank(end[-1]))
        end--;
    word = word_length(at, end);
    if (copy(line->spec, at, word, "spec", message))
        return -1;
    for (at += word; at < end && is_blank(*at);)
        at++;
    const char *last = take_last_word(at, &end, &word);
    if (copy(number, last, word, "time", message))
        return -1;
    last = take_last_word(at, &end, &word);
    if (copy(line->knobs, last, word, "list of knobs", message) ||
        copy(line->device, at, (size_t)(end - at), "device", message))
        return -1;
    if (read_microseconds(number, &line->microseconds, message) ||
        check_spec(line->spec, &spec, message) || smelt__spec_tune(&spec, line->knobs, message))
        return -1;
    return 1;
}

void smelt__tuning_line_print(const struct smelt__tuning_line *line, struct smelt__text *text) {
    /* %f would write a comma in some locales. */
    const long long hundredths = (long long)(line->microseconds * 100 + 0.5);
    smelt__text_print(text, "%s  %s  %s  %lld.%02lld\n", line->spec, line->device, line->knobs,
                      hundredths / 100, hundredths % 100);
}
