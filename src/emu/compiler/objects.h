/*
 * A disk cache of compiled kernels in the folder named by SMELT_EMU_OBJECTS. Processes may share
 * it. It uses the library's cache (runtime/cache) with its checks of ownership and links, checksums
 * and cap. All tests and builds can share the objects: an object refers to the emulator only by
 * soname, and the text in the key includes the prologue that the emulator adds.
 */
#pragma once

#include <stddef.h>

#include "runtime/cache/cache.h"

/* The text with its options, and the compiler. */
struct emu_object_key {
    struct smelt__cache_key text;
    struct smelt__compiler_id compiler;
};

/* Makes a key of everything that determines an object: the compiler (a command as in CC; its files
 * by path, size and time), the NULL-terminated options, the text. 0; -1 when a file of the compiler
 * is not found. */
int emu_object_key(const char *compiler, const char *const *options, const char *text,
                   struct emu_object_key *key);

/* Opens the folder, creating it if needed; smelt__cache_close closes it. NULL: `why` is
 * the reason. */
struct smelt__cache *emu_objects_open(const char *folder, char *why, size_t why_bytes);

/* 0: the object stored under this key, freed by the caller; -1: none that is valid and trusted. */
int emu_object_find(struct smelt__cache *objects, const struct emu_object_key *key,
                    unsigned char **object, size_t *bytes);

/* Stores an object; a failure costs only time. */
void emu_object_keep(struct smelt__cache *objects, const struct emu_object_key *key,
                     unsigned char *object, size_t bytes);
