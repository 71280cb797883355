/* Running a launch: gangs one after another. */
#ifndef SMELT_EMU_LAUNCH_H
#define SMELT_EMU_LAUNCH_H

#include "emu/machine/machine.h"

/* Whether a device takes the shape that `emu` describes; reports it when not. */
bool emu_launch_is_legal(void);
/* Runs that launch, which is legal; true when it made no report. */
bool emu_launch(struct kernel *kernel, void **parameters);

#endif
