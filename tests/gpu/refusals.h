/* What an operator's launch must refuse, naming the argument: a table of changes of its arguments.
 */
#ifndef SMELT_TEST_GPU_REFUSALS_H
#define SMELT_TEST_GPU_REFUSALS_H

#include <stddef.h>
#include <stdint.h>

#include "suite.h"

/* A field of the args struct set to a value. */
struct refused_change {
    const char *part; /* the message must hold it */
    size_t offset, bytes;
    int64_t value;
};

#define REFUSED(type, field, value)                                                                \
    { #field, offsetof(type, field), sizeof(((type *)0)->field), (value) }
/* The same where the message says something else. */
#define REFUSED_AS(type, field, part, value)                                                       \
    { (part), offsetof(type, field), sizeof(((type *)0)->field), (value) }

struct refusals {
    const char *name; /* of the case */
    const char *spec;
    struct smelt__problem_options problem;
    const struct refused_change *changes;
    int count;
    /* A tensor of the args that is moved onto each input in turn; the offset of its struct. */
    size_t output;
    const size_t *inputs;
    int input_count;
};

/* Each change alone is refused with INVALID_ARGUMENT, and so is the output on an input. */
void run_refusals(struct suite *suite, const struct refusals *refusals);

#endif
