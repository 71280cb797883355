/*
 * Shared code of programs that run single kernels through the library's internal functions, on a
 * GPU or the emulator. Such a program defines a table, struct alone_test, and runs the shapes in it,
 * then random ones.
 */
#ifndef SMELT_TESTS_KERNEL_ALONE_H
#define SMELT_TESTS_KERNEL_ALONE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/random.h"
#include "harness/emulated.h"
#include "runtime/kernel.h"
#include "runtime/specs.h"
#include "runtime/tensor_map.h"
#include "smelt/smelt.h"

extern struct alone {
    smelt_context *context;
    struct random random;
    int cases, failures;
} alone;

/* The program's random numbers. */
static inline int below(int count) {
    return random_below(&alone.random, count);
}

/* Prints errors, including the emulator's reports, and returns 0; 1 without errors. */
int works(smelt_status status, const char *what);

/* ---- memory: until the case's end ------------------------------------------------------------ */

/* Host memory; the process exits when it runs out. `filled` sets every byte. */
void *take(size_t bytes);
void *filled(size_t bytes, int byte);
/* bf16 numbers, multiples of 1 / step between -32 / step and 32 / step. */
uint16_t *drawn_bf16(size_t count, int step);

/* Rows of so many bytes, and how far apart they lie on the host and on the device. Those further
 * apart on the device lie in memory that exists when touched, which the emulator alone has. */
struct rows {
    int64_t count;
    size_t bytes, host_step, step;
};

/* Device memory with a copy of the host's, by its name in reports; the process ends where there is
 * none. `copy` gives NULL for NULL; `copy_rows` leaves rows unwritten for NULL. */
void *copy(const char *name, const void *host, size_t bytes);
void *copy_rows(const char *name, const void *host, struct rows rows);
/* The rows' bytes as the host has them; gaps are 0. */
void *fetch(const void *device, struct rows rows);

/* ---- the device: 0 with a message printed when it failed ------------------------------------- */

int fill(void *device, int byte, size_t bytes);
int fill_rows(void *device, int byte, struct rows rows);
int upload(void *device, const void *host, size_t bytes);
int get_kernel(const char *spec, const struct smelt__kernel **kernel);
/* A constant of the kernel's plan. */
int plan_constant(const char *spec, const char *name);
/* The launch by itself: waits until earlier work and the launch are complete. */
int run_kernel(const struct smelt__kernel *kernel, uint32_t blocks, const void *params);
/* A map of bf16 rows, packed; strides are elements, the first extent is the row's. */
int make_map(const void *data, int dimensions, const int64_t *extents, uint32_t box_heads,
             struct tensor_map *map);

/* Whether elements of 1, 2 or 4 bytes on the device are as wanted; prints the first that is not. */
int same(const char *what, const void *device, const void *wanted, size_t count, size_t element);
int same_rows(const char *what, const void *device, const void *wanted, struct rows rows,
              size_t element);

/* ---- programs -------------------------------------------------------------------------------- */

/* A shape begins with its name; `ints` of its fields from offset `first_int` on are printed when it
 * fails, in the table's order. */
struct alone_test {
    const char *name;
    int random_cases, schedules, most_failures; /* by default; on the emulator; before it ends */
    size_t shape_bytes, first_int;
    int ints;
    const void *shapes, *large_shapes; /* the latter are too large for the emulator */
    int shape_count, large_count;
    int (*get_kernels)(void);                /* 0: failed */
    int (*is_far)(const void *shape);        /* for the emulator alone; may be NULL */
    void (*prepare)(const void *shape);      /* problem, device memory, reference */
    int (*run)(const void *shape, int turn); /* 0: failed. On a GPU there are two turns */
    void (*draw)(void *shape);               /* a random shape; its name is set */
    void (*run_large)(void);                 /* what else is run on a GPU; may be NULL */
};

/* The listed shapes of a table, and their ints from one field to another. */
#define SHAPES(list, first, last)                                                                  \
    .shapes = (list), .shape_count = sizeof(list) / sizeof *(list), .shape_bytes = sizeof *(list), \
    .first_int = offsetof(struct shape, first),                                                    \
    .ints = (offsetof(struct shape, last) - offsetof(struct shape, first)) / sizeof(int) + 1
#define LARGE_SHAPES(list) .large_shapes = (list), .large_count = sizeof(list) / sizeof *(list)

/* PROGRAM [RANDOM_CASES [ARCH [NAME]]], for main to return; SMELT_TEST_SEED repeats a run. ARCH: on
 * the emulator, that one alone, instead of the listed shapes for the first and random ones for all.
 * NAME: shapes whose names have this text. */
int run_alone(int argc, char **argv, const struct alone_test *test);
/* One case, `good` or not. */
void count_case(int good, const char *name);

/* PROGRAM KERNEL_SPEC, on the emulator as sm_90a: the context and the kernel; 0: failed. */
int begin_on_emulator(const char *program, const char *spec, const struct smelt__kernel **kernel);
void free_memory(void);

#endif
