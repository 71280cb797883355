/*
 * Public structs that grow (see smelt/struct.h): copies between a caller's struct, which may be
 * shorter or longer than this library's, and one of this library's size.
 */
#pragma once

#include <stddef.h>

#include "smelt/status.h"
#include "smelt/struct.h"

/* A struct type's name in messages, and its legal sizes. Made by SMELT__STRUCT. */
struct smelt__struct {
    const char *argument;    /* the parameter's name: "options" */
    const char *initialiser; /* its initialiser: "SMELT_CONTEXT_OPTIONS_INIT" */
    size_t known;            /* this library's size */
    size_t first;            /* size of the first version: the minimum */
};

/* `last`: the last field of the struct's first released version. */
#define SMELT__STRUCT(type, argument, initialiser, last)                                           \
    (&(const struct smelt__struct)SMELT__STRUCT_VALUE(type, argument, initialiser, last))
/* The same as an initialiser of a static. */
#define SMELT__STRUCT_VALUE(type, argument, initialiser, last)                                     \
    { (argument), (initialiser), sizeof(type), offsetof(type, last) + sizeof(((type *)0)->last) }

/* smelt_kernel_info, which several calls fill. */
#define SMELT__KERNEL_INFO(argument)                                                               \
    SMELT__STRUCT(smelt_kernel_info, argument, "SMELT_KERNEL_INFO_INIT", nvrtc_minor)

/* Copies a caller's struct into *to, which has the known size; fields that a shorter struct lacks
 * become 0, and to->size becomes the known size. `to` may equal `from` only if the sizes are equal.
 * Errors: INVALID_ARGUMENT for NULL; for a size of 0, below the first version's or above 64 KiB;
 * for a longer struct with a nonzero byte that this library does not know. */
smelt_status smelt__struct_read(const struct smelt__struct *about, const void *from, void *to);

/* Checks that a caller's struct, whose `size` is set, can be filled. Errors as above, except that
 * the bytes of a longer struct may have any value. */
smelt_status smelt__struct_check(const struct smelt__struct *about, const void *to);

/* Fills a checked struct of the caller from one of the known size: a shorter one as far as it
 * reaches; in a longer one the bytes that this library does not know become 0. The caller's `size`
 * is kept. */
void smelt__struct_write(const struct smelt__struct *about, const void *from, void *to);

/*
 * Arrays: the first element's `size` holds for all elements; the others' is ignored. Name the
 * argument "requests[0]".
 *
 * Reads `count` elements into an array of this library's elements; errors as for
 * smelt__struct_read.
 */
smelt_status smelt__structs_read(const struct smelt__struct *about, const void *from, size_t count,
                                 void *to);
/* Fills element `index`, its `size` included, of an array whose first element smelt__struct_check
 * has checked. */
void smelt__structs_write(const struct smelt__struct *about, const void *from, void *array,
                          size_t index);
