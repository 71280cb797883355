/*
 * The compile matrix: kernel specs times architectures.
 */
#pragma once

#include <stddef.h>

enum { SPEC_TEXT = 256 };

/* An operator's kernels in the matrix in addition to its example and presets, in
 * tests/compile/STEM.c, if it has one. Lists end with NULL; a NULL list is empty. */
struct compile_cells {
    /* Writes odd shape number `number`, an operator's text; 0 past the last. NULL: none. */
    int (*shape)(int number, char *spec, size_t size);
    const char *const *operators; /* specs with knobs that no preset has */
    const char *const *tuned;     /* kernels whose tuning candidates are compiled, for sm_90a */
    const char *const *kernels;   /* kernels that none of those operators has */
};

struct kernel_list {
    char (*specs)[SPEC_TEXT]; /* canonical kernel specs, none twice */
    int *preset;              /* 1: a preset contains it */
    unsigned *archs;          /* where calls launch it: a bit for each of arch_names (turns.h) */
    size_t count, capacity;
};

/* Every kernel of every preset at tp 1, 2, 4 and 8 and of every operator's example, then the odd
 * shapes. 0, or -1 after a line on standard error. */
int kernel_list_fill(struct kernel_list *list);
void kernel_list_free(struct kernel_list *list);
