/*
 * Integer expressions of template directives: C's operators and precedence on `int`, with names.
 */
#pragma once

#include <stddef.h>

#include "codegen/text.h"

/* The values of names: `lookup` returns a constant's or a parameter's value; *found 0 if there is
 * none. */
struct smelt__scope {
    int (*lookup)(const void *user, const char *name, int *found);
    const void *user;
};

/* Length of the name at the start of `text`; 0: none. */
size_t smelt__name_length(const char *text, size_t length);

/* Whether the text is an expression. 0, or -1 with a message. */
int smelt__expression_check(const char *text, size_t length, struct smelt__message *message);

/* Evaluates the expression; fails on unknown names, division by zero and overflow, except in
 * operands that && and || skip. 0, or -1 with a message. */
int smelt__expression_evaluate(const char *text, size_t length, const struct smelt__scope *scope,
                               int *value, struct smelt__message *message);
