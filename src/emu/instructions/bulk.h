/* What bulk stores leave to whoever runs a launch. */
#ifndef SMELT_EMU_BULK_H
#define SMELT_EMU_BULK_H

#include "emu/machine/machine.h"

/* The thread leaves the kernel: what its stores read must have been waited for. Their writing
 * completes. */
void emu_bulk_leave(struct thread *thread);

#endif
