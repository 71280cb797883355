/* Loads, stores and reductions with wrappers in templates/ptx, and fences. */
#include <string.h>

#include "emu/instructions/mbarrier.h"
#include "emu/machine/schedule.h"
#include "emu/memory/clock.h"
#include "emu/memory/cluster.h"
#include "emu/memory/global.h"
#include "emu/memory/registers.h"
#include "emu/memory/shared.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EMU_EXPORT void emu_store_global(void *to, const unsigned *values, int count) {
    site at = EMU_SITE;
    size_t bytes = 4 * (size_t)count;
    emu.statistics.instructions++;
    emu_check_aligned(to, bytes, "a store", at);
    emu_registers_used(emu.self, values, bytes, false, at);
    emu_global_access(to, bytes, EMU_WRITE, at);
    memcpy(to, values, bytes);
}

EMU_EXPORT void emu_load_global(unsigned *values, const void *from, int count, int read_only) {
    site at = EMU_SITE;
    size_t bytes = 4 * (size_t)count;
    emu.statistics.instructions++;
    emu_check_aligned(from, bytes, "a load", at);
    emu_registers_used(emu.self, values, bytes, true, at);
    emu_global_access(from, bytes, read_only ? EMU_READ_ONLY : EMU_CACHED, at);
    memcpy(values, from, bytes);
}

EMU_EXPORT unsigned emu_load_l2(const void *from) {
    site at = EMU_SITE;
    unsigned value;
    emu.statistics.instructions++;
    emu_check_aligned(from, sizeof value, "a load", at);
    emu_global_access(from, sizeof value, EMU_READ, at);
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
    site at = EMU_SITE;
    size_t bytes = 4 * (size_t)count;
    emu.statistics.instructions++;
    emu_check_aligned(to, bytes, "red.global.add", at);
    emu_registers_used(emu.self, values, bytes, false, at);
    emu_global_access(to, bytes, EMU_ATOMIC, at);
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
    site at = EMU_SITE;
    emu.statistics.instructions++;
    emu_check_aligned(to, sizeof *to, "red.global.add", at);
    emu_global_access(to, sizeof *to, EMU_ATOMIC, at);
    *to += value;
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
