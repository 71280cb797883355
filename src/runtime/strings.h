/*
 * The strings that a context hands out in public structs. They live as long as the table; equal
 * texts are stored once, so that repeated infos of one kernel need no more memory.
 */
#pragma once

#include <stddef.h>

struct smelt__strings; /* opaque; thread-safe */

/* Capacity of one table for notes, in bytes. */
enum { SMELT__STRINGS_NOTES = 1 << 20 };

/* NULL when out of memory. */
struct smelt__strings *smelt__strings_new(void);
void smelt__strings_free(struct smelt__strings *strings);

/* The table's copy of a text; NULL, with the message set, when out of memory. */
const char *smelt__strings_keep(struct smelt__strings *strings, const char *text);

/* The same for texts without a bound on their number, such as messages and invalid specs. Never
 * NULL: when the table holds SMELT__STRINGS_NOTES bytes of them, or memory runs out, new texts are
 * replaced by a constant. */
const char *smelt__strings_note(struct smelt__strings *strings, const char *text);
