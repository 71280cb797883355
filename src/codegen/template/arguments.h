/*
 * The directives for parts with parameters: the part declares them, `//@takes n kind`, and its
 * users give each a value, `//@use part.cuh n = EXPR, kind = EXPR`, in any order.
 */
#pragma once

#include <stddef.h>

#include "codegen/text.h"

enum { SMELT__PARAMETERS = 8 };

/* Names point into the template's text and are not NUL-terminated. */
struct smelt__parameters {
    int count;
    struct smelt__parameter {
        const char *name;
        size_t length;
    } items[SMELT__PARAMETERS];
};

struct smelt__arguments {
    int count;
    struct smelt__argument {
        const char *name, *expression;
        size_t length, expression_length;
    } items[SMELT__PARAMETERS];
};

/* Parse the text after //@takes, and the text after the name of //@use; expressions are checked. 0,
 * or -1 with a message. */
int smelt__parameters_read(const char *text, size_t length, struct smelt__parameters *parameters,
                           struct smelt__message *message);
int smelt__arguments_read(const char *text, size_t length, struct smelt__arguments *arguments,
                          struct smelt__message *message);

/* Index of the parameter of that name, or -1. */
int smelt__parameter_find(const struct smelt__parameters *parameters, const char *name,
                          size_t length);

/* Whether the arguments give each parameter one value and no other. 0, or -1 with a message; `part`
 * is the used template's name. */
int smelt__arguments_match(const struct smelt__arguments *arguments,
                           const struct smelt__parameters *parameters, const char *part,
                           struct smelt__message *message);
