/*
 * Compiled kernels, kept: SMELT_EMU_OBJECTS names a folder that processes share, a cache as the
 * library's (runtime/cache), with its checks of owners and links, its checksums and its cap. The
 * same text is compiled by the same compiler once, however many tests ask for it, and whichever
 * build's: an object needs the emulator by its soname, which whoever loads it has, and the text
 * begins with what the emulator of its day put before it.
 */
#ifndef SMELT_EMU_OBJECTS_H
#define SMELT_EMU_OBJECTS_H

#include <stddef.h>

#include "runtime/cache/cache.h"

/* The text, its options and what compiles them. */
struct emu_object_key {
    struct smelt__cache_key text;
    struct smelt__compiler_id compiler;
};

/* Of all that decides what is made: the compiler, which is the command's first words as given in
 * CC, by its files' paths, sizes and times; the options, NULL-terminated; the text. 0, or -1 when a
 * compiler's file is not found. */
int emu_object_key(const char *compiler, const char *const *options, const char *text,
                   struct emu_object_key *key);

/* The folder, made if it is not there: smelt__cache_close closes it. NULL: `why` says why it cannot
 * be used. */
struct smelt__cache *emu_objects_open(const char *folder, char *why, size_t why_bytes);

/* The object kept under this key, freed by the caller: 0. -1 when there is none, or it cannot be
 * trusted. */
int emu_object_find(struct smelt__cache *objects, const struct emu_object_key *key,
                    unsigned char **object, size_t *bytes);

/* Keeps an object; where that fails, nothing is lost but time. */
void emu_object_keep(struct smelt__cache *objects, const struct emu_object_key *key,
                     unsigned char *object, size_t bytes);

#endif
