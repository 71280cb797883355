/* Subjects of the tests of structs of another version: a call with one struct of the caller's. See
 * structs.c. */
#pragma once

#include <stddef.h>

#include "smelt/smelt.h"

enum {
    TAIL = 32, /* bytes more than this program's structs have */
    CANARY = 0xA5,
    POISON = 0xEE
};

/* The struct is in `memory`, which is 0 except for `size` and the fields that `fill` set. */
struct subject {
    const char *type;     /* as its header names it */
    const char *argument; /* as messages name it */
    size_t size;
    int is_input;
    int pass; /* number of the operators' pass; 0 for other subjects */
    void (*fill)(void *memory);
    smelt_status (*call)(void *memory);
};

#define SUBJECT(type, argument, is_input, fill, call)                                              \
    { #type, argument, sizeof(type), is_input, 0, fill, call }

void fill_nothing(void *memory);

/* The pass of the subject that is tested: set before its functions are called. */
extern int subject_pass;

/* Makes every operator from a context with a device, and adds their subjects. */
smelt_status make_operators(smelt_context *context);
void add_subjects(const struct subject *more, int count);
void destroy_operators(void);

/* Tests of a bucketed operator's structs, and of every operator's kernel infos. */
void operators_work(void);
void kernel_infos(void);
