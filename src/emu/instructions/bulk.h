/* Bulk stores when a thread exits. */
#pragma once

#include "emu/machine/machine.h"

/* The thread exits: reports bulk stores whose reads were not waited for; completes their writes. */
void emu_bulk_leave(struct thread *thread);
