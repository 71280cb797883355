/* See text.h. */
#include "codegen/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int smelt__message_set(struct smelt__message *message, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof message->text, format, arguments);
    va_end(arguments);
    message->out_of_memory = 0;
    return -1;
}

int smelt__message_set_out_of_memory(struct smelt__message *message) {
    smelt__message_set(message, "out of memory");
    message->out_of_memory = 1;
    return -1;
}

/* Ensures capacity for `more` bytes and the NUL. 0, or -1 with `failed` set. */
static int reserve(struct smelt__text *text, size_t more) {
    if (text->failed)
        return -1;
    if (more >= SIZE_MAX / 2 - text->length) {
        text->failed = 1;
        return -1;
    }
    size_t needed = text->length + more + 1;
    if (needed <= text->capacity)
        return 0;
    size_t capacity = text->capacity ? text->capacity : 256;
    while (capacity < needed)
        capacity *= 2;
    char *data = realloc(text->data, capacity);
    if (!data) {
        text->failed = 1;
        return -1;
    }
    text->data = data;
    text->capacity = capacity;
    return 0;
}

void smelt__text_append(struct smelt__text *text, const char *bytes, size_t length) {
    if (reserve(text, length))
        return;
    if (length)
        memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void smelt__text_append_string(struct smelt__text *text, const char *string) {
    smelt__text_append(text, string, strlen(string));
}

/* Prints into what is reserved. The length of the whole text; it is incomplete if that is larger. */
static size_t print_reserved(struct smelt__text *text, const char *format, va_list arguments) {
    const size_t reserved = text->capacity - text->length;
    const int length = vsnprintf(text->data + text->length, reserved, format, arguments);
    if (length < 0)
        text->failed = 1;
    else if ((size_t)length < reserved)
        text->length += (size_t)length;
    return length < 0 ? 0 : (size_t)length;
}

void smelt__text_print(struct smelt__text *text, const char *format, ...) {
    enum { USUAL = 128 };
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    if (!reserve(text, USUAL)) {
        const size_t begin = text->length, length = print_reserved(text, format, arguments);
        if (text->length == begin && length && !reserve(text, length))
            print_reserved(text, format, again);
        if (text->failed)
            text->data[begin] = '\0';
    }
    va_end(again);
    va_end(arguments);
}

void smelt__text_append_json(struct smelt__text *text, const char *string) {
    smelt__text_append(text, "\"", 1);
    for (const char *c = string; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\')
            smelt__text_print(text, "\\%c", byte);
        else if (byte == '\n')
            smelt__text_append(text, "\\n", 2);
        else if (byte == '\t')
            smelt__text_append(text, "\\t", 2);
        else if (byte < 0x20 || byte == 0x7f)
            smelt__text_print(text, "\\u%04x", byte);
        else
            smelt__text_append(text, c, 1);
    }
    smelt__text_append(text, "\"", 1);
}

char *smelt__text_release(struct smelt__text *text) {
    /* An empty text is released as "", not NULL. */
    char *data = NULL;
    if (!reserve(text, 0)) {
        text->data[text->length] = '\0';
        data = text->data;
        text->data = NULL;
    }
    smelt__text_free(text);
    return data;
}

void smelt__text_free(struct smelt__text *text) {
    free(text->data);
    memset(text, 0, sizeof *text);
}
