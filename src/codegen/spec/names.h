/* The nearest name to a misspelt one, and lists of names in messages. Pure. */
#pragma once

#include <stddef.h>

#include "codegen/text.h"

/* The name in a NULL-terminated list nearest to `given` by edit distance (at most 3, and less than
 * half of the length), or NULL. */
const char *smelt__nearest_name(const char *given, const char *const *names);

/* "unknown WHAT 'given', did you mean NEAREST?; known: A, B, C". `prefix` precedes it. Names
 * that have no room are left out, "...". */
void smelt__name_unknown(const char *prefix, const char *what, const char *given,
                         const char *const *names, struct smelt__message *message);
