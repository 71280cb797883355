/*
 * Lists the functions that instrumented code calls: names from the sanitizers' run-time libraries, which the
 * emulator replaces (instructions/access.c). A kernel is linked with the linker's option `--wrap` for each, so
 * that it calls __wrap_NAME, since a host program that is itself linked with a sanitizer defines NAME.
 */
#pragma once

/* ACCESS(NAME, BYTES, WRITE, ALIGNED): __tsan_NAME; ALIGNED: the address must be a multiple of BYTES. */
#define EMU_ACCESSES_OF(ACCESS, bytes)                                                             \
    ACCESS(read##bytes, bytes, 0, 1)                                                               \
    ACCESS(write##bytes, bytes, 1, 1)                                                              \
    ACCESS(unaligned_read##bytes, bytes, 0, 0)                                                     \
    ACCESS(unaligned_write##bytes, bytes, 1, 0)                                                    \
    ACCESS(volatile_read##bytes, bytes, 0, 1)                                                      \
    ACCESS(volatile_write##bytes, bytes, 1, 1)                                                     \
    ACCESS(unaligned_volatile_read##bytes, bytes, 0, 0)                                            \
    ACCESS(unaligned_volatile_write##bytes, bytes, 1, 0)
#define EMU_ACCESSES(ACCESS)                                                                       \
    EMU_ACCESSES_OF(ACCESS, 1)                                                                     \
    EMU_ACCESSES_OF(ACCESS, 2)                                                                     \
    EMU_ACCESSES_OF(ACCESS, 4)                                                                     \
    EMU_ACCESSES_OF(ACCESS, 8)                                                                     \
    EMU_ACCESSES_OF(ACCESS, 16)

/* IGNORED(NAME): __tsan_NAME does nothing. */
#define EMU_IGNORED(IGNORED)                                                                       \
    IGNORED(init)                                                                                  \
    IGNORED(func_entry)                                                                            \
    IGNORED(func_exit)

/* MISUSE(NAME, KIND, WHAT): __ubsan_handle_NAME_abort, which does not return. */
#define EMU_MISUSES(MISUSE)                                                                        \
    MISUSE(add_overflow, EMU_ARITHMETIC, "an addition overflows its signed type")                  \
    MISUSE(sub_overflow, EMU_ARITHMETIC, "a subtraction overflows its signed type")                \
    MISUSE(mul_overflow, EMU_ARITHMETIC, "a multiplication overflows its signed type")             \
    MISUSE(negate_overflow, EMU_ARITHMETIC, "a negation overflows its signed type")                \
    MISUSE(divrem_overflow, EMU_ARITHMETIC, "a division by zero, or one that overflows")           \
    MISUSE(shift_out_of_bounds, EMU_ARITHMETIC,                                                    \
           "a shift by more bits than its type has, or out of a signed type")                      \
    MISUSE(out_of_bounds, EMU_BOUNDS, "an index outside its array (registers, in CUDA terms)")
