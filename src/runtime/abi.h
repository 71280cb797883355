/*
 * Public structs that grow (smelt/tensor.h says how): a caller's struct, which may be shorter or
 * longer than this library's, read into one of this library's size, and back.
 */
#ifndef SMELT_RUNTIME_ABI_H
#define SMELT_RUNTIME_ABI_H

#include <stddef.h>

#include "smelt/status.h"

/* What the messages say, and the sizes that are legal. Make it with SMELT__STRUCT. */
struct smelt__struct {
    const char *argument;    /* the parameter's name: "options" */
    const char *initialiser; /* what to fill it from: "SMELT_CONTEXT_OPTIONS_INIT" */
    size_t known;            /* this library's size */
    size_t first;            /* up to where the first version's fields went: none is shorter */
};

/* `last`: the last field that the first released version had. */
#define SMELT__STRUCT(type, argument, initialiser, last)                                           \
    (&(const struct smelt__struct){(argument), (initialiser), sizeof(type),                        \
                                   offsetof(type, last) + sizeof(((type *)0)->last)})

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

#endif
