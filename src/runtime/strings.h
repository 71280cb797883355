/*
 * The strings that a context hands out in public structs. They live as long as the table, each
 * different text once, so that asking a thousand times for the same kernel's info costs nothing.
 */
#ifndef SMELT_RUNTIME_STRINGS_H
#define SMELT_RUNTIME_STRINGS_H

#include <stddef.h>

struct smelt__strings; /* opaque; thread-safe */

/* Bytes of notes that one table takes. */
enum { SMELT__STRINGS_NOTES = 1 << 20 };

/* NULL when memory is out. */
struct smelt__strings *smelt__strings_new(void);
void smelt__strings_free(struct smelt__strings *strings);

/* The table's copy of a text; NULL, with the message of OUT_OF_MEMORY, when memory is out. */
const char *smelt__strings_keep(struct smelt__strings *strings, const char *text);

/* The same for texts of which a long-lived program may see ever new ones: messages, specs that are
 * none. Never NULL: when the table holds SMELT__STRINGS_NOTES bytes of them, or memory is out, a
 * constant takes the place of a text that it has not got yet. */
const char *smelt__strings_note(struct smelt__strings *strings, const char *text);

/* Zeroed memory that lives as long as the table, for arrays of such strings; NULL as above. */
void *smelt__strings_room(struct smelt__strings *strings, size_t count, size_t bytes);

#endif
