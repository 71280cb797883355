/*
 * Growing text and one-line messages: the code generator's string types. A `struct smelt__text`
 * belongs to one thread.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

/* A failure's message, set once, where the failure occurs, and passed on. */
struct smelt__message {
    char text[1024];
    int out_of_memory; /* 1: memory ran out; the request may be valid */
};

/* Returns -1, for `return smelt__message_set(message, "...", ...)`. */
__attribute__((format(printf, 2, 3))) int smelt__message_set(struct smelt__message *message,
                                                             const char *format, ...);

/* "out of memory"; -1. */
int smelt__message_set_out_of_memory(struct smelt__message *message);

/* A growing string; zero-initialised it is empty. When memory runs out it stays unchanged and
 * `failed` is set: check once, at the end. */
struct smelt__text {
    char *data; /* NUL-terminated once anything was appended, else NULL */
    size_t length;
    size_t capacity;
    int failed;
};

void smelt__text_append(struct smelt__text *text, const char *bytes, size_t length);
void smelt__text_append_string(struct smelt__text *text, const char *string);
__attribute__((format(printf, 2, 3))) void smelt__text_print(struct smelt__text *text,
                                                             const char *format, ...);
/* A JSON string literal, quotes included. */
void smelt__text_append_json(struct smelt__text *text, const char *string);
/* Hands the string to the caller (free()), or NULL when memory ran out. The text is empty then. */
char *smelt__text_release(struct smelt__text *text);
void smelt__text_free(struct smelt__text *text);
