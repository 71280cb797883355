/*
 * Plain loads and stores of the compiled kernel. The compiler inserts a call before each of them
 * (the instrumentation of -fsanitize=thread without its run-time library) and at each arithmetic or
 * array error (-fsanitize=bounds and others).
 */
#include <string.h>

#include "emu/callbacks.h"
#include "emu/machine/report.h"
#include "emu/machine/stack.h"
#include "emu/memory/global.h"
#include "emu/memory/registers.h"
#include "emu/memory/shared.h"

/* An address belongs to the thread's own stack (its registers, in CUDA terms), to a block's shared
 * memory, to the kernel's constants, or to device memory. */
static void check_access(const u8 *pointer, u32 bytes, bool write, site at) {
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
                      emu_thread_name(self));
        if (write)
            emu_shared_write(cta, (u32)offset, bytes, at);
        else
            emu_shared_read(cta, (u32)offset, bytes, at);
        return;
    }
    if (!write && emu_kernel_holds(pointer))
        return;
    emu_global_access(pointer, bytes, write ? EMU_WRITE : EMU_CACHED, at);
}

static void check_aligned_access(const u8 *pointer, u32 bytes, bool write, site at) {
    if ((uintptr_t)pointer % bytes != 0 && emu.self)
        emu_fatal(EMU_ALIGNMENT, at, 0,
                  "%s: misaligned %s of %u bytes: the address is %u past a multiple {1}",
                  emu_thread_name(emu.self), write ? "write" : "read", bytes,
                  (u32)((uintptr_t)pointer % bytes));
    check_access(pointer, bytes, write, at);
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static site site_from(const void *from) {
    return (site)((const u8 *)from - (emu.kernel ? emu.kernel->image : NULL));
}

#define FROM site_from(__builtin_return_address(0))
#define TSAN(name) EMU_EXPORT void __wrap___tsan_##name

#define ACCESS(name, bytes, write, aligned)                                                        \
    TSAN(name)(const void *pointer) {                                                              \
        if (aligned)                                                                               \
            check_aligned_access(pointer, bytes, write, FROM);                                     \
        else                                                                                       \
            check_access(pointer, bytes, write, FROM);                                             \
    }
EMU_ACCESSES(ACCESS)

TSAN(read_range)(const void *pointer, unsigned long bytes) {
    check_access(pointer, (u32)bytes, false, FROM);
}

TSAN(write_range)(const void *pointer, unsigned long bytes) {
    check_access(pointer, (u32)bytes, true, FROM);
}

EMU_EXPORT void *__wrap___tsan_memcpy(void *to, const void *from, unsigned long bytes) {
    check_access(from, (u32)bytes, false, FROM);
    check_access(to, (u32)bytes, true, FROM);
    return memcpy(to, from, bytes);
}

EMU_EXPORT void *__wrap___tsan_memset(void *to, int value, unsigned long bytes) {
    check_access(to, (u32)bytes, true, FROM);
    return memset(to, value, bytes);
}

/* For clang's copies of structs (device.h), with the return address. */
EMU_EXPORT void emu_access(const void *pointer, unsigned long bytes, int write, const void *from) {
    check_access(pointer, (u32)bytes, write != 0, site_from(from));
}

#define IGNORED(name)                                                                              \
    TSAN(name)(void) {}
EMU_IGNORED(IGNORED)

/* A hash whose bits depend on all bits of `number`. */
static u32 hash_bits(u32 number) {
    number = (number ^ number >> 16) * 0x7feb352du;
    number = (number ^ number >> 15) * 0x846ca68bu;
    return number ^ number >> 16;
}

/* Fills an uninitialised local: its words are large numbers as ints, floats and bf16, pairwise one
 * positive and one negative in a pseudo-random order, so that two arrays of a struct differ. Never
 * a NaN. Lanes of a warp that took the same path get equal values, so that comparisons and sums
 * stay uniform. */
EMU_EXPORT void emu_leave_unwritten(void *local, unsigned long bytes) {
    enum { PAIR = 8 };
    static const u8 pairs[2][PAIR] = {{0x7f, 0x7f, 0x7f, 0x7f, 0xfe, 0xfe, 0xfe, 0xfe},
                                      {0xfe, 0xfe, 0xfe, 0xfe, 0x7f, 0x7f, 0x7f, 0x7f}};
    const u32 hash = hash_bits(emu.self->unwritten++ + (u32)emu.settings.seed);
    for (unsigned long i = 0; i < bytes; i += PAIR)
        memcpy((u8 *)local + i, pairs[hash_bits(hash + (u32)i) & 1],
               bytes - i < PAIR ? bytes - i : PAIR);
}

/* Reports arithmetic and array errors. */
#define MISUSE(name, kind, what)                                                                   \
    EMU_EXPORT _Noreturn void __wrap___ubsan_handle_##name##_abort(void) {                         \
        emu_fatal(kind, FROM, 0, "%s: " what " {1}", emu_thread_name(emu.self));                   \
    }
EMU_MISUSES(MISUSE)

/* What the compiler says about a pointer's type. */
struct mismatch {
    const char *file;
    unsigned line, column;
    const void *type;
    unsigned char log_alignment, kind_of_access;
};

/* Reports a null or misaligned pointer, or one beyond the end of its object. */
EMU_EXPORT _Noreturn void
__wrap___ubsan_handle_type_mismatch_v1_abort(const struct mismatch *mismatch, u64 pointer) {
    const u64 alignment = (u64)1 << mismatch->log_alignment, past = pointer % alignment;
    if (past != 0)
        emu_fatal(
            EMU_ALIGNMENT, FROM, 0,
            "%s: an access with an alignment of %u bytes: the address is %u past a multiple {1}",
            emu_thread_name(emu.self), (u32)alignment, (u32)past);
    emu_fatal(EMU_BOUNDS, FROM, 0, "%s: %s {1}", emu_thread_name(emu.self),
              pointer ? "a pointer beyond the end of its array (registers, in CUDA terms)"
                      : "a null pointer");
}
