/*
 * A template split into lines (engine.h), each with its kind and, for lines that open a block, the
 * line that closes it. Splitting checks everything that needs no values.
 */
#pragma once

#include <stddef.h>

#include "codegen/template/arguments.h"
#include "codegen/text.h"

enum smelt__line_kind {
    SMELT__ORDINARY,
    SMELT__USE,
    SMELT__TAKES,
    SMELT__FOR,
    SMELT__IF,
    SMELT__ELSE,
    SMELT__END
};

struct smelt__line {
    enum smelt__line_kind kind;
    int number;       /* 1 is the first */
    int next;         /* of for, if, else: index of the line that ends this branch */
    const char *text; /* the whole line, or a directive's argument, without blanks around it */
    size_t length;
    size_t name_length;                            /* of for: the variable, at the start of text */
    size_t first, first_length, last, last_length; /* of for: positions of the bounds in text */
};

struct smelt__lines {
    struct smelt__line *items;
    int count;
    struct smelt__parameters parameters; /* of takes */
};

/* Splits a template into checked lines; the caller frees `items`, also after a failure. 0, or -1
 * with the message and the line in *number. */
int smelt__lines_read(const char *text, struct smelt__lines *lines, int *number,
                      struct smelt__message *message);

/* A `$` in an ordinary line. */
struct smelt__substitution {
    const char *text; /* the name or the expression */
    size_t length;
    size_t used; /* bytes of the line, `$` and braces included; 0: malformed */
};

/* Parses the `$` at the start of `text`. */
struct smelt__substitution smelt__substitution_read(const char *text, size_t length);
