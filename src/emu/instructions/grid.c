/* Programmatic dependent launch: griddepcontrol. */
#include "emu/machine/schedule.h"
#include "emu/memory/chain.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EMU_EXPORT void emu_grid_launch_dependents(void) {
    emu.statistics.instructions++;
    emu_chain_let_begin();
    emu_yield();
}

EMU_EXPORT void emu_grid_wait(void) {
    emu.statistics.instructions++;
    emu_chain_wait();
    emu_yield();
}
