/*
 * Plain loads and stores of the compiled kernel. Its compiler put a call before each (the
 * instrumentation of -fsanitize=thread, without its run-time library), and one at each arithmetic
 * or array error (-fsanitize=bounds and others, likewise).
 */
#include <string.h>

#include "emu/machine/report.h"
#include "emu/machine/stack.h"
#include "emu/memory/global.h"
#include "emu/memory/registers.h"
#include "emu/memory/shared.h"

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
    emu_global_access(pointer, bytes, write ? EMU_WRITE : EMU_CACHED, at);
}

static void look_aligned(const u8 *pointer, u32 bytes, bool write, site at) {
    if ((uintptr_t)pointer % bytes != 0 && emu.self)
        emu_fatal(
            EMU_ALIGNMENT, at, 0, "%s: %s of %u bytes at an address %u past a multiple of it {1}",
            emu_who(emu.self), write ? "write" : "read", bytes, (u32)((uintptr_t)pointer % bytes));
    look_at(pointer, bytes, write, at);
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* The kernel's object holds the functions its compiler calls (callbacks.h), and they call these: in
 * a program that is sanitized itself the names are the sanitizers' own. `from`: who called them. */
EMU_EXPORT void emu_access(const void *pointer, unsigned bytes, int write, int aligned,
                           const void *from) {
    site at = (site)((const u8 *)from - (emu.kernel ? emu.kernel->image : NULL));
    if (aligned)
        look_aligned(pointer, bytes, write != 0, at);
    else
        look_at(pointer, bytes, write != 0, at);
}

/* A number whose bits hang on all of this one's, as good as at random. */
static u32 scatter(u32 number) {
    number = (number ^ number >> 16) * 0x7feb352du;
    number = (number ^ number >> 15) * 0x846ca68bu;
    return number ^ number >> 16;
}

/* A local that nobody wrote: its words are large numbers, as ints, floats and bf16, of two one
 * above 0 and one below, which of them is as good as random: two arrays of a struct are not the
 * same. Never a NaN. Lanes of a warp that came the same way have the same, so that what they
 * compare or add up stays on one side. */
EMU_EXPORT void emu_leave_unwritten(void *local, unsigned long bytes) {
    enum { PAIR = 8 };
    static const u8 pairs[2][PAIR] = {{0x7f, 0x7f, 0x7f, 0x7f, 0xfe, 0xfe, 0xfe, 0xfe},
                                      {0xfe, 0xfe, 0xfe, 0xfe, 0x7f, 0x7f, 0x7f, 0x7f}};
    const u32 turn = scatter(emu.self->unwritten++ + (u32)emu.settings.seed);
    for (unsigned long i = 0; i < bytes; i += PAIR)
        memcpy((u8 *)local + i, pairs[scatter(turn + (u32)i) & 1],
               bytes - i < PAIR ? bytes - i : PAIR);
}

/* Errors of arithmetic and arrays. */
EMU_EXPORT void emu_misuse(int kind, const char *what, const void *from) {
    static const enum emu_kind kinds[] = {EMU_ARITHMETIC, EMU_BOUNDS};
    if (emu.self)
        emu_fatal(kinds[kind], (site)((const u8 *)from - emu.kernel->image), 0, "%s: %s {1}",
                  emu_who(emu.self), what);
}

/* A pointer that is null, misaligned, or does not reach as far as it is used. */
EMU_EXPORT void emu_mismatch(unsigned long long pointer, unsigned log_alignment, const void *from) {
    site at = (site)((const u8 *)from - (emu.kernel ? emu.kernel->image : NULL));
    u64 past = pointer % ((u64)1 << log_alignment);
    if (!emu.self)
        return;
    if (past != 0)
        emu_fatal(EMU_ALIGNMENT, at, 0,
                  "%s: an access that wants a multiple of %u bytes at an address %u past one {1}",
                  emu_who(emu.self), 1u << log_alignment, (u32)past);
    emu_fatal(EMU_BOUNDS, at, 0, "%s: %s {1}", emu_who(emu.self),
              pointer ? "a pointer beyond the end of its array (registers, in CUDA terms)"
                      : "a null pointer");
}
