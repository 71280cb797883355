/* Identifies the build of a shared library from its file, without loading it. */
#pragma once

#include <stddef.h>

enum { SMELT__LIBRARY_ID = 64 };

struct smelt__library_id {
    unsigned char bytes[SMELT__LIBRARY_ID];
    size_t length;
    int is_emulator; /* it has the emulator's ELF note */
};

/* Name and type of the emulator's ELF note (src/emu/compiler/nvrtc.c), which has no content. */
#define SMELT__EMULATOR_NOTE "smelt.emulator"
enum { SMELT__EMULATOR_NOTE_TYPE = 1 };

/* Reads the file's GNU build-id; without one, hashes its size and its first and last 64 KB. 0; -1
 * with errno when the file cannot be read; 1 when it is not a shared library of this machine. */
int smelt__library_id_read(const char *path, struct smelt__library_id *id);
