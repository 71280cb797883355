/* What tells one build of a shared library from another, read from its file without loading it. */
#ifndef SMELT_RUNTIME_LIBRARY_ID_H
#define SMELT_RUNTIME_LIBRARY_ID_H

#include <stddef.h>

enum { SMELT__LIBRARY_ID = 64 };

struct smelt__library_id {
    unsigned char bytes[SMELT__LIBRARY_ID];
    size_t length;
    int is_emulator; /* smelt's emulator says so in a note of its own */
};

/* The note of the emulator's library (src/emu/compiler/nvrtc.c): its name and type; it holds
 * nothing. */
#define SMELT__EMULATOR_NOTE "smelt.emulator"
enum { SMELT__EMULATOR_NOTE_TYPE = 1 };

/* The file's GNU build-id; of a library linked without one, a hash of its size and its first and
 * last 64 KB. 0; -1 with errno when the file cannot be read, 1 when it is not a shared library of
 * this machine.
 */
int smelt__library_id_read(const char *path, struct smelt__library_id *id);

#endif
