/*
 * What the compile matrix compiles: a list of kernel specs, crossed with the architectures.
 */
#pragma once

#include <stddef.h>

enum { SPEC_TEXT = 256 };

/* What an operator has in the matrix beside its example and presets, in tests/compile/STEM.c, where
 * there is one; lists end with NULL, as does NULL for none. */
struct compile_cells {
    /* Odd shape number `number`, the text of an operator; 0 past the last. NULL: none. */
    int (*shape)(int number, char *spec, size_t size);
    const char *const *operators; /* specs with knobs that no preset has */
    const char *const *tuned;     /* kernels whose tuning candidates are compiled, for sm_90a */
    const char *const *kernels;   /* kernels that none of those operators has */
};

struct kernel_list {
    char (*specs)[SPEC_TEXT]; /* canonical kernel specs, none twice */
    int *preset;              /* 1: a preset asks for it */
    size_t count, capacity;
};

/* Every kernel of every preset at tp 1, 2, 4 and 8 and of every operator's example, then the odd shapes. 0, or -1 after a line on
 * standard error. */
int kernel_list_fill(struct kernel_list *list);
void kernel_list_free(struct kernel_list *list);
