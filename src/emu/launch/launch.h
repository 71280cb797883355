/* Running a launch: gangs one after another. */
#pragma once

#include "emu/machine/machine.h"

/* Whether a device accepts the launch described by `emu`; if not, reports it. */
bool emu_launch_is_legal(void);
/* Runs that launch, which must be legal; true if it caused no report. */
bool emu_launch(struct kernel *kernel, void **parameters);
