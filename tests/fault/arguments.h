/* What the tests of arguments share: calls of every operator on the fakes. */
#pragma once

#include "ops/call.h"

union arguments {
    size_t size;
    int64_t words[SMELT__MOST_ARGS_BYTES / sizeof(int64_t)];
};

/* One configured operator's pass. */
struct subject {
    char spec[128];
    enum smelt_pass pass;
    const struct smelt__args_table *table;
    size_t rows, tokens; /* offsets in the args struct; 0: it has none */
};

/* A legal call with queries and rows. Its tensors have given strides, lie far apart, and have several elements in each
 * dimension, unless another extent is 0. */
struct layout {
    const struct subject *subject;
    const smelt_operator *made;
    union arguments args;
    int64_t extents[SMELT__MOST_SYMBOLS];
};

/* 1: launched, or there is nothing to launch; 0: refused before the first launch. */
int arguments_call(const struct subject *subject, const smelt_operator *made,
                   const union arguments *args);

/* refusals.c: tests that each illegal argument is refused with an error that names it. refusals_end tests that every
 * operator's own refusals were tried. */
void refusals_try(const struct layout *legal, void *workspace);
void refusals_end(void);
