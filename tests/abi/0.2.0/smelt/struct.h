/*
 * smelt: how public structs begin and grow.
 *
 * Each struct that callers hold begins with `size`, the sizeof the caller was compiled with. Its
 * macro sets that and leaves every other field 0, which always means the field's default:
 *
 *   smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
 *
 * in C11 and in C++11; to assign one later write (smelt_context_options)SMELT_CONTEXT_OPTIONS_INIT.
 *
 * Later versions of the library add fields at the end, so:
 *   - a caller built against an older header gives a shorter struct: the fields it lacks have their
 *     defaults; of a struct that the library fills, it fills what the caller has and writes no byte
 *     beyond;
 *   - a caller built against a newer header gives a longer one: it is taken when all that this
 *     library does not know is 0, and refused otherwise (INVALID_ARGUMENT, naming both sizes); of
 *     one that the library fills, what it does not know becomes 0;
 *   - a size of 0, or one that no version ever had, is refused: the struct was not initialised.
 * In an array of structs that the library fills, the first element's `size` is every element's: the
 * others' need not be set. Structs have no padding, which a later field might come to stand in.
 *
 * Strings in these structs are never NULL when the library fills them ("" for none), unless a field
 * says otherwise; whose they are and how long they live is said at the struct.
 */
#ifndef SMELT_STRUCT_H
#define SMELT_STRUCT_H

#ifdef __cplusplus

template <typename Struct> inline Struct smelt_struct_init() {
    Struct made = Struct();
    made.size = sizeof made;
    return made;
}
#define SMELT_INIT(type) smelt_struct_init<type>()

#else

/* clang-format off */
#define SMELT_INIT(type) {.size = sizeof(type)}
/* clang-format on */

#endif

#endif
