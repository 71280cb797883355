/*
 * smelt: how public structs begin and grow.
 *
 * Each struct that callers hold begins with `size`, the sizeof that the caller was compiled with.
 * Its macro sets `size` and leaves every other field 0, which is the field's default or, where a call
 * needs a value (extents, a softmax scale), one that the call refuses:
 *
 *   smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
 *
 * in C11 and in C++11; to assign one later write (smelt_context_options)SMELT_CONTEXT_OPTIONS_INIT. Other
 * languages do what the macro does: they set all bytes to 0, then `size`.
 *
 * Later versions of the library add fields at the end, so:
 *   - a caller built against an older header passes a shorter struct: missing fields have their
 *     defaults; when the library fills a struct, it writes no byte beyond the caller's size;
 *   - a caller built against a newer header passes a longer struct: it is accepted if all bytes that
 *     this library does not know are 0, else refused (INVALID_ARGUMENT, with both sizes); when the
 *     library fills it, unknown bytes become 0;
 *   - a size of 0, or one that no version had, is refused: the struct was not initialised.
 * In an array of structs the first element's `size` holds for all; the others need not be set.
 * Structs have no padding, since a later field could use it.
 *
 * Strings in structs that the library fills are never NULL ("" for none) unless a field's comment
 * says otherwise; each struct documents their owner and lifetime.
 */
#ifndef SMELT_STRUCT_H
#define SMELT_STRUCT_H

#include <stddef.h>

#include "smelt/status.h"

/* The initialiser that each struct's own macro expands to. */
#ifdef __cplusplus

template <typename Struct> inline Struct smelt_struct_zero() {
    Struct made = Struct();
    made.size = sizeof made;
    return made;
}
#define SMELT_INIT(type) smelt_struct_zero<type>()

#else

/* clang-format off */
#define SMELT_INIT(type) {.size = sizeof(type)}
/* clang-format on */

#endif

#endif
