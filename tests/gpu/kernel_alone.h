/*
 * Shared code of programs that run single kernels through the library's internal functions, on a
 * GPU or the emulator. Such a program defines a table, struct alone_test, and runs the shapes in it,
 * then random ones.
 */
#pragma once

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
    const struct smelt__kernel *kernels[4];
    const char *option; /* the fourth argument; "" without */
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

/* Rows of so many bytes, and their distances on the host and on the device. Rows that are further
 * apart on the device need memory that is allocated on access, that is, the emulator. */
struct rows {
    int64_t count;
    size_t bytes, host_step, step;
};

/* Device memory with a copy of the host's, named in reports; the process exits if there is none.
 * For NULL `copy` returns NULL and `copy_rows` leaves the rows unwritten. */
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
/* Launches the kernel, and waits for earlier work before and for the launch after. */
int run_kernel(const struct smelt__kernel *kernel, uint32_t blocks, const void *params);
/* A map of bf16 rows, packed; strides are elements, the first extent is the row's. */
int make_map(const void *data, int dimensions, const int64_t *extents, uint32_t box_heads,
             struct tensor_map *map);

/* Whether elements of 1, 2 or 4 bytes on the device are as wanted; prints the first that is not. */
int same(const char *what, const void *device, const void *wanted, size_t count, size_t element);
int same_rows(const char *what, const void *device, const void *wanted, struct rows rows,
              size_t element);

/* ---- results --------------------------------------------------------------------------------- */

/* Rows of so many bytes, packed on the host and `step` bytes apart on the device; one such row. */
struct rows rows_of(int64_t count, int64_t bytes, int64_t step);
struct rows packed(size_t bytes);

/* Device memory that a kernel writes; the host's elements of 1, 2 or 4 bytes are the expected ones.
 * NULL for NULL. */
void *result_rows(const char *name, const void *wanted, struct rows rows, size_t element,
                  int poison);
/* For all results of the case: fills them with poison; compares them. */
int poison_results(void);
int same_results(void);

/* For arrays of a program's params structs `host` and `device`: sets the device's pointer from the
 * host's array. */
#define COPY(field, count)                                                                         \
    (device.field = copy(#field, host.field, (size_t)(count) * sizeof *host.field))
#define RESULT_ROWS(field, rows, poison)                                                           \
    (device.field = result_rows(#field, host.field, rows, sizeof *host.field, poison))
#define RESULT(field, count, poison)                                                               \
    RESULT_ROWS(field, packed((size_t)(count) * sizeof *host.field), poison)

/* ---- programs -------------------------------------------------------------------------------- */

/* A shape begins with its name; `ints` of its fields from offset `first_int` on are printed when it
 * fails, in the table's order. */
struct alone_test {
    const char *name;
    const char *specs[4];        /* of alone.kernels, which each context loads */
    int random_cases, schedules; /* defaults: 10; 3 on the emulator */
    size_t shape_bytes, first_int;
    int ints;
    const void *shapes, *large_shapes; /* the latter are too large for the emulator */
    int shape_count, large_count;
    size_t far;                              /* offset of an int that is nonzero in shapes for the
                                           emulator only; may be 0 */
    int (*read_plans)(void);                 /* 0: failed; may be NULL */
    void (*prepare)(const void *shape);      /* problem, device memory, reference */
    int (*run)(const void *shape, int turn); /* 0: failed. A GPU runs each shape twice, with `turn`
                                                0 and 1 */
    void (*draw)(void *shape);               /* a random shape; its name is set */
    void (*run_large)(void);                 /* further tests on a GPU; may be NULL */
};

#define LARGE_SHAPES(list) .large_shapes = (list), .large_count = sizeof(list) / sizeof *(list)

/* main of a program with the table `shapes`, whose ints are from field `first` to `last`, and the
 * functions prepare, run and draw_shape; then fields of struct alone_test, `.specs` at least. */
#define ALONE_TEST(program, first, last, ...)                                                      \
    int main(int argc, char **argv) {                                                              \
        static const struct alone_test test = {                                                    \
            .name = (program),                                                                     \
            .shapes = shapes,                                                                      \
            .shape_count = sizeof shapes / sizeof *shapes,                                         \
            .shape_bytes = sizeof *shapes,                                                         \
            .first_int = offsetof(struct shape, first),                                            \
            .ints =                                                                                \
                (offsetof(struct shape, last) - offsetof(struct shape, first)) / sizeof(int) + 1,  \
            .prepare = prepare,                                                                    \
            .run = run,                                                                            \
            .draw = draw_shape,                                                                    \
            __VA_ARGS__};                                                                          \
        return run_alone(argc, argv, &test);                                                       \
    }

/* PROGRAM [RANDOM_CASES [ARCH [NAME]]], for main to return; SMELT_TEST_SEED repeats a run. ARCH: on
 * the emulator, only this architecture, instead of fixed shapes for the first one and random shapes
 * for all. NAME: shapes whose names contain this text. A fourth argument is the program's own. */
int run_alone(int argc, char **argv, const struct alone_test *test);
/* Counts a case; prints it if it is not `good`. */
void count_case(int good, const char *name);

/* PROGRAM KERNEL_SPEC [OPTION], for main to return: calls `judge` with alone.kernels[0], on the
 * emulator as sm_90a. `passed`: printed if the kernel passed. */
int run_on_emulator(int argc, char **argv, const char *program,
                    int (*judge)(const char *spec, const char *option), const char *passed);
