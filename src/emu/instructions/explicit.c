/* Loads, stores and reductions with wrappers in templates/ptx, hints, fences, and griddepcontrol. */
#include <string.h>

#include "emu/instructions/mbarrier.h"
#include "emu/machine/schedule.h"
#include "emu/memory/clock.h"
#include "emu/memory/cluster.h"
#include "emu/memory/global.h"
#include "emu/memory/pdl.h"
#include "emu/memory/registers.h"
#include "emu/memory/shared.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* An access to global memory. `registers`: those that it reads or writes; NULL: they are not checked. */
static void begin_global(const void *memory, const void *registers, size_t bytes,
                         enum emu_access access, const char *what, site at) {
    emu.statistics.instructions++;
    emu_check_aligned(memory, bytes, what, at);
    if (registers)
        emu_registers_used(emu.self, registers, bytes, access <= EMU_READ_ONLY, at);
    emu_global_access(memory, bytes, access, at);
}

EMU_EXPORT void emu_store_global(void *to, const unsigned *values, int count) {
    const size_t bytes = 4 * (size_t)count;
    begin_global(to, values, bytes, EMU_WRITE, "a store", EMU_SITE);
    memcpy(to, values, bytes);
}

EMU_EXPORT void emu_load_global(unsigned *values, const void *from, int count, int read_only) {
    const size_t bytes = 4 * (size_t)count;
    begin_global(from, values, bytes, read_only ? EMU_READ_ONLY : EMU_CACHED, "a load", EMU_SITE);
    memcpy(values, from, bytes);
}

EMU_EXPORT unsigned emu_load_l2(const void *from) {
    unsigned value;
    begin_global(from, NULL, sizeof value, EMU_READ, "a load", EMU_SITE);
    memcpy(&value, from, sizeof value);
    return value;
}

EMU_EXPORT void emu_load_shared(unsigned *values, unsigned address, int count) {
    site at = EMU_SITE;
    u32 bytes = 4 * (u32)count;
    emu.statistics.instructions++;
    struct shared_location location = emu_own_location(address, bytes, bytes, "ld.shared", at);
    emu_registers_used(emu.self, values, bytes, true, at);
    emu_shared_read(location.cta, location.offset, bytes, at);
    memcpy(values, location.cta->arena + location.offset, bytes);
}

EMU_EXPORT unsigned emu_append_shared(unsigned address, unsigned wanted, unsigned low,
                                      unsigned high) {
    site at = EMU_SITE;
    const unsigned values[2] = {low, high};
    const u32 bytes = sizeof values;
    emu.statistics.instructions++;
    if (!wanted)
        return address;
    struct shared_location location = emu_own_location(address, bytes, bytes, "st.shared", at);
    emu_shared_write(location.cta, location.offset, bytes, at);
    memcpy(location.cta->arena + location.offset, values, bytes);
    return address + bytes;
}

EMU_EXPORT void emu_reduce_add_f32(float *to, const float *values, int count) {
    begin_global(to, values, 4 * (size_t)count, EMU_ATOMIC, "red.global.add", EMU_SITE);
    for (int i = 0; i < count; i++)
        to[i] += values[i];
    emu_yield();
}

EMU_EXPORT unsigned emu_atomic_shared(int kind, unsigned address, unsigned value) {
    site at = EMU_SITE;
    unsigned before, after;
    emu.statistics.instructions++;
    struct shared_location location =
        emu_own_location(address, sizeof before, sizeof before, "atom.shared", at);
    emu_shared_atomic(location.cta, location.offset, sizeof before, at);
    memcpy(&before, location.cta->arena + location.offset, sizeof before);
    after = kind == 0 ? before | value : before + value;
    memcpy(location.cta->arena + location.offset, &after, sizeof after);
    emu_yield();
    return before;
}

EMU_EXPORT void emu_reduce_add_global(unsigned *to, unsigned value) {
    begin_global(to, NULL, sizeof *to, EMU_ATOMIC, "red.global.add", EMU_SITE);
    *to += value;
    emu_yield();
}

EMU_EXPORT void emu_reduce_add_global_64(unsigned long long *to, unsigned long long value) {
    begin_global(to, NULL, sizeof *to, EMU_ATOMIC, "red.global.add", EMU_SITE);
    *to += value;
    emu_yield();
}

/* The bounded wait for a hint, which orders nothing, succeeds either at once or never. That exposes results
 * that depend on the wait. */
EMU_EXPORT int emu_hint_wait(const unsigned *address, int polls) {
    const bool early =
        emu.settings.timing == EMU_RANDOM ? emu_random() % 2 : emu.settings.timing == EMU_EARLY;
    if (polls <= 0)
        return -1;
    begin_global(address, NULL, sizeof *address, EMU_ATOMIC, "ld.relaxed", EMU_SITE);
    emu_yield();
    return early ? polls - 1 : -1;
}

EMU_EXPORT void emu_grid_launch_dependents(void) {
    emu.statistics.instructions++;
    emu_pdl_let_begin();
    emu_yield();
}

EMU_EXPORT void emu_grid_wait(void) {
    emu.statistics.instructions++;
    emu_pdl_wait();
    emu_yield();
}

/* Advances the thread's time: this fence does not cover later writes. */
EMU_EXPORT void emu_fence_proxy_async(void) {
    struct thread *self = emu.self;
    emu.statistics.instructions++;
    emu_clock_fence(self);
    emu_mbarriers_fenced(self);
    self->clock[self->number]++;
    emu_yield();
}
