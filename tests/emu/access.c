/*
 * Plain loads and stores of the compiled kernel. Its compiler put a call before each (the
 * instrumentation of -fsanitize=thread, with these functions in place of its run-time library's),
 * and one at each arithmetic or array error (-fsanitize=bounds and others, likewise).
 */
#include <stdio.h>
#include <string.h>

#include "internal.h"

/* An address is of a thread's own stack (its registers, in CUDA terms), of some block's shared
 * memory, of the kernel's constants, or of device memory. */
static void look_at(const u8 *pointer, u32 bytes, bool write, site at) {
    struct thread *self = emu.self;
    if (!self)
        return;
    emu.statistics.accesses++;
    if ((size_t)(pointer - emu_stack_low(self)) < emu_stack_bytes()) {
        emu_registers_touched(self, pointer, bytes, write, at);
        return;
    }
    for (int i = 0; i < emu.ctas; i++) {
        struct cta *cta = &emu.cta[i];
        size_t offset = (size_t)(pointer - cta->arena);
        if (offset >= ARENA_SPAN)
            continue;
        if (cta != self->cta)
            emu_fatal(EMU_BOUNDS, at, 0, "%s: a plain access to another block's shared memory {1}",
                      emu_who(self));
        if (write)
            emu_shared_write(cta, (u32)offset, bytes, at);
        else
            emu_shared_read(cta, (u32)offset, bytes, at);
        return;
    }
    if (!write && emu_kernel_holds(pointer))
        return;
    emu_global_access(pointer, bytes, write ? EMU_WRITE : EMU_READ, at);
}

static void look_aligned(const u8 *pointer, u32 bytes, bool write, site at) {
    if ((uintptr_t)pointer % bytes != 0 && emu.self)
        emu_fatal(
            EMU_ALIGNMENT, at, 0, "%s: %s of %u bytes at an address %u past a multiple of it {1}",
            emu_who(emu.self), write ? "write" : "read", bytes, (u32)((uintptr_t)pointer % bytes));
    look_at(pointer, bytes, write, at);
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define ACCESS(bytes)                                                                              \
    EMU_EXPORT void __tsan_read##bytes(void *p) {                                                  \
        look_aligned(p, bytes, false, EMU_SITE);                                                   \
    }                                                                                              \
    EMU_EXPORT void __tsan_write##bytes(void *p) {                                                 \
        look_aligned(p, bytes, true, EMU_SITE);                                                    \
    }                                                                                              \
    EMU_EXPORT void __tsan_unaligned_read##bytes(void *p) {                                        \
        look_at(p, bytes, false, EMU_SITE);                                                        \
    }                                                                                              \
    EMU_EXPORT void __tsan_unaligned_write##bytes(void *p) {                                       \
        look_at(p, bytes, true, EMU_SITE);                                                         \
    }                                                                                              \
    EMU_EXPORT void __tsan_volatile_read##bytes(void *p) {                                         \
        look_aligned(p, bytes, false, EMU_SITE);                                                   \
    }                                                                                              \
    EMU_EXPORT void __tsan_volatile_write##bytes(void *p) {                                        \
        look_aligned(p, bytes, true, EMU_SITE);                                                    \
    }

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

EMU_EXPORT void __tsan_read_range(void *p, size_t bytes) {
    look_at(p, (u32)bytes, false, EMU_SITE);
}

EMU_EXPORT void __tsan_write_range(void *p, size_t bytes) {
    look_at(p, (u32)bytes, true, EMU_SITE);
}

EMU_EXPORT void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    look_at(from, (u32)bytes, false, EMU_SITE);
    look_at(to, (u32)bytes, true, EMU_SITE);
    return memcpy(to, from, bytes);
}

EMU_EXPORT void *__tsan_memset(void *to, int value, size_t bytes) {
    look_at(to, (u32)bytes, true, EMU_SITE);
    return memset(to, value, bytes);
}

EMU_EXPORT void __tsan_init(void) {}

EMU_EXPORT void __tsan_func_entry(void *caller) {
    (void)caller;
}

EMU_EXPORT void __tsan_func_exit(void) {}

/* ---- errors of arithmetic and arrays (the layout of the compilers' own run-time library) ----- */

struct source_place {
    const char *file;
    u32 line, column;
};

struct with_place { /* what every handler's data begins with */
    struct source_place place;
};

static void arithmetic(const struct with_place *data, const char *what, enum emu_kind kind,
                       site at) {
    if (!emu.self)
        return;
    (void)data;
    emu_fatal(kind, at, 0, "%s: %s {1}", emu_who(emu.self), what);
}

#define HANDLER(name, parameters, kind, what)                                                      \
    EMU_EXPORT void __ubsan_handle_##name parameters {                                             \
        arithmetic(data, what, kind, EMU_SITE);                                                    \
    }

HANDLER(add_overflow, (const struct with_place *data), EMU_ARITHMETIC,
        "an addition overflows its signed type")
HANDLER(sub_overflow, (const struct with_place *data), EMU_ARITHMETIC,
        "a subtraction overflows its signed type")
HANDLER(mul_overflow, (const struct with_place *data), EMU_ARITHMETIC,
        "a multiplication overflows its signed type")
HANDLER(negate_overflow, (const struct with_place *data), EMU_ARITHMETIC,
        "a negation overflows its signed type")
HANDLER(divrem_overflow, (const struct with_place *data), EMU_ARITHMETIC,
        "a division by zero, or one that overflows")
HANDLER(shift_out_of_bounds, (const struct with_place *data), EMU_ARITHMETIC,
        "a shift by more bits than its type has, or out of a signed type")
HANDLER(out_of_bounds, (const struct with_place *data), EMU_BOUNDS,
        "an index outside its array (registers, in CUDA terms)")

/* A pointer that is null, misaligned, or does not reach as far as it is used. `kind_of_access`
 * follows the place, a type and the logarithm of the alignment. */
struct mismatch {
    struct source_place place;
    const void *type;
    u8 log_alignment, kind_of_access;
};

EMU_EXPORT void __ubsan_handle_type_mismatch_v1(const struct mismatch *data, uintptr_t pointer) {
    if (!emu.self)
        return;
    uintptr_t alignment = (uintptr_t)1 << data->log_alignment;
    if (pointer % alignment != 0)
        emu_fatal(EMU_ALIGNMENT, EMU_SITE, 0,
                  "%s: an access that wants a multiple of %u bytes at an address %u past one {1}",
                  emu_who(emu.self), (u32)alignment, (u32)(pointer % alignment));
    emu_fatal(EMU_BOUNDS, EMU_SITE, 0, "%s: %s {1}", emu_who(emu.self),
              pointer ? "a pointer beyond the end of its array (registers, in CUDA terms)"
                      : "a null pointer");
}
