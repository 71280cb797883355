/* What cp.async leaves to whoever runs a launch. */
#ifndef SMELT_EMU_COPY_H
#define SMELT_EMU_COPY_H

#include "emu/machine/machine.h"

/* The thread leaves the kernel: it must have waited for its copies. */
void emu_copies_leave(struct thread *thread);
/* The gang is over. */
void emu_copies_free(struct thread *thread);

#endif
