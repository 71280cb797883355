/* Bulk stores when a thread exits. */
#ifndef SMELT_EMU_BULK_H
#define SMELT_EMU_BULK_H

#include "emu/machine/machine.h"

/* The thread exits: reports bulk stores whose reads were not waited for; completes their writes. */
void emu_bulk_leave(struct thread *thread);

#endif
