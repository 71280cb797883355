/*
 * A disk cache of compiled kernels in the folder that SMELT_EMU_OBJECTS names, which processes may
 * share. It uses the library's cache (runtime/cache), with its checks of owners and links, its
 * checksums and its cap. All tests and builds share the objects: an object refers to the emulator
 * only by soname, and the text in the key includes the prologue that the emulator adds.
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

/* Makes a key of everything that determines an object: the compiler, which is the command's first
 * words as in CC, by the paths, sizes and times of its files; the NULL-terminated options; the
 * text. 0, or -1 when a file of the compiler is not found. */
int emu_object_key(const char *compiler, const char *const *options, const char *text,
                   struct emu_object_key *key);

/* The folder, made if it is not there: smelt__cache_close closes it. NULL: `why` says why it cannot
 * be used. */
struct smelt__cache *emu_objects_open(const char *folder, char *why, size_t why_bytes);

/* The object kept under this key, freed by the caller: 0. -1 when there is none, or it cannot be
 * trusted. */
int emu_object_find(struct smelt__cache *objects, const struct emu_object_key *key,
                    unsigned char **object, size_t *bytes);

/* Stores an object; a failure costs only time. */
void emu_object_keep(struct smelt__cache *objects, const struct emu_object_key *key,
                     unsigned char *object, size_t bytes);

#endif
