/*
 * Public structs that grow (smelt/struct.h says how): a caller's struct, which may be shorter or
 * longer than this library's, read into one of this library's size, and back.
 */
#ifndef SMELT_RUNTIME_ABI_H
#define SMELT_RUNTIME_ABI_H

#include <stddef.h>

#include "smelt/status.h"
#include "smelt/struct.h"

/* What the messages say, and the sizes that are legal. Make it with SMELT__STRUCT. */
struct smelt__struct {
    const char *argument;    /* the parameter's name: "options" */
    const char *initialiser; /* what to fill it from: "SMELT_CONTEXT_OPTIONS_INIT" */
    size_t known;            /* this library's size */
    size_t first;            /* up to where the first version's fields went: none is shorter */
};

/* `last`: the last field that the first released version had. */
#define SMELT__STRUCT(type, argument, initialiser, last)                                           \
    (&(const struct smelt__struct)SMELT__STRUCT_VALUE(type, argument, initialiser, last))
/* The same to initialise a static with. */
#define SMELT__STRUCT_VALUE(type, argument, initialiser, last)                                     \
    { (argument), (initialiser), sizeof(type), offsetof(type, last) + sizeof(((type *)0)->last) }

/* A kernel's info, which several calls fill. */
#define SMELT__KERNEL_INFO(argument)                                                               \
    SMELT__STRUCT(smelt_kernel_info, argument, "SMELT_KERNEL_INFO_INIT", emulated)

/* Copies a caller's struct into *to, of the known size: what a shorter one lacks is 0. *to may be
 * what `from` points to only when the sizes are equal. Errors: INVALID_ARGUMENT for NULL, for a
 * size of 0 or below the first version's or beyond 64 KiB, for a longer one whose unknown bytes are
 * not all 0. to->size is the known size afterwards. */
smelt_status smelt__struct_read(const struct smelt__struct *about, const void *from, void *to);

/* Whether a caller's struct, whose `size` it has set, can be filled. Errors as above, but a longer
 * one is legal whatever it holds. */
smelt_status smelt__struct_check(const struct smelt__struct *about, const void *to);

/* Fills a checked struct of the caller from one of the known size: as much as it has room for; of a
 * longer one what this library does not know becomes 0. `size` stays the caller's. */
void smelt__struct_write(const struct smelt__struct *about, const void *from, void *to);

/*
 * Arrays: the first element's `size` is that of all, the others need not have it set. Name the
 * argument "requests[0]".
 *
 * Reads `count` elements into an array of this library's; errors as of smelt__struct_read.
 */
smelt_status smelt__structs_read(const struct smelt__struct *about, const void *from, size_t count,
                                 void *to);
/* Fills element `index` of an array whose first element smelt__struct_check has checked, its `size`
 * included. */
void smelt__structs_write(const struct smelt__struct *about, const void *from, void *array,
                          size_t index);

#endif
