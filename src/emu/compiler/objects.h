/*
 * Compiled kernels, kept: SMELT_EMU_OBJECTS names a folder that processes share. The same text is
 * compiled by the same compiler once, however many tests ask for it, and whichever build's: an
 * object needs the emulator by its soname, which whoever loads it has, and the text begins with
 * what the emulator of its day put before it.
 */
#ifndef SMELT_EMU_OBJECTS_H
#define SMELT_EMU_OBJECTS_H

#include <stddef.h>

struct emu_object_key {
    unsigned char bytes[16];
};

/* Of all that decides what is made: the compiler, which is the command's first words as given in
 * CC, by its files' paths, sizes and times; the options; the text. 0, or -1 when a compiler's file
 * is not found. */
int emu_object_key(const char *compiler, const char *const *options, size_t count, const char *text,
                   struct emu_object_key *key);

/* The object kept under this key, freed by the caller: 0. -1 when there is none, or it was damaged.
 */
int emu_object_find(const char *folder, const struct emu_object_key *key, unsigned char **object,
                    size_t *bytes);

/* Keeps an object; where that fails, nothing is lost but time. What was not asked for longest goes
 * when there are more than about two thousand. */
void emu_object_keep(const char *folder, const struct emu_object_key *key,
                     const unsigned char *object, size_t bytes);

#endif
