/* Programmatic dependent launch: griddepcontrol. */
#include "emu/machine/schedule.h"
#include "emu/memory/pdl.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

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
