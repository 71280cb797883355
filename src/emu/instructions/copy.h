/* cp.async copies when a thread exits. */
#pragma once

#include "emu/machine/machine.h"

/* The thread exits: reports copies that it did not wait for. */
void emu_copies_leave(struct thread *thread);
/* Called at the gang's end. */
void emu_copies_free(struct thread *thread);
