/* What the tests of structs of another version are made of: a call with one struct that is the
 * caller's. See structs.c. */
#pragma once

#include <stddef.h>

#include "smelt/smelt.h"

enum {
    TAIL = 32, /* bytes more than this program's structs have */
    CANARY = 0xA5,
    POISON = 0xEE
};

/* The struct stands in `memory`, 0 but for `size` and what `fill` put there. */
struct subject {
    const char *type;     /* as its header names it */
    const char *argument; /* as messages name it */
    size_t size;
    int is_input;
    int pass; /* which of the operators' passes it is about; of others 0 */
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

/* Tests: a bucketed operator's structs, and what every operator says of its kernels. */
void operators_work(void **state);
void kernel_infos(void **state);
