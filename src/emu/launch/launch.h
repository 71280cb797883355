/* Running a launch: gangs one after another. */
#ifndef SMELT_EMU_LAUNCH_H
#define SMELT_EMU_LAUNCH_H

#include "emu/machine/machine.h"

/* Whether a device accepts the launch described by `emu`; if not, reports it. */
bool emu_launch_is_legal(void);
/* Runs that launch, which must be legal; true if it caused no report. */
bool emu_launch(struct kernel *kernel, void **parameters);

#endif
