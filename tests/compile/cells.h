/*
 * What the compile matrix compiles: a list of kernel specs, crossed with the architectures.
 */
#ifndef SMELT_TESTS_COMPILE_CELLS_H
#define SMELT_TESTS_COMPILE_CELLS_H

#include <stddef.h>

enum { SPEC_TEXT = 256 };

struct kernel_list {
    char (*specs)[SPEC_TEXT]; /* canonical kernel specs, none twice */
    int *preset;              /* 1: a preset asks for it */
    size_t count, capacity;
};

/* Every kernel of every preset at tp 1, 2, 4 and 8, then the odd shapes. 0, or -1 after a line on
 * standard error. */
int kernel_list_fill(struct kernel_list *list);
void kernel_list_free(struct kernel_list *list);

#endif
