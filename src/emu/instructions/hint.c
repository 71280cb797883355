/* Hints between blocks (templates/ptx/hint.cuh): they order nothing. */
#include "emu/machine/report.h"
#include "emu/machine/schedule.h"
#include "emu/memory/global.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EMU_EXPORT void emu_hint_add(unsigned *address, unsigned value) {
    site at = EMU_SITE;
    emu.statistics.instructions++;
    emu_check_aligned(address, sizeof *address, "red.relaxed", at);
    emu_global_access(address, sizeof *address, EMU_ATOMIC, at);
    *address += value;
    emu_yield();
}

/* The wait succeeds either at once or never, which exposes results that depend on it. */
EMU_EXPORT int emu_hint_wait(const unsigned *address, unsigned value, int polls) {
    site at = EMU_SITE;
    const bool early =
        emu.settings.timing == EMU_RANDOM ? emu_random() % 2 : emu.settings.timing == EMU_EARLY;
    emu.statistics.instructions++;
    emu_check_aligned(address, sizeof *address, "ld.relaxed", at);
    if (polls > 0)
        emu_global_access(address, sizeof *address, EMU_ATOMIC, at);
    emu_yield();
    (void)value;
    return early && polls > 0 ? polls - 1 : -1;
}
