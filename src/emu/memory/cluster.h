/* Accesses between blocks of a cluster. */
#pragma once

#include "emu/machine/machine.h"

/* Another block's shared memory may be used only while that block is known to run. It must not end
 * before such accesses are ordered before its threads' exits. */

/* Reports an access by the running thread to a block that may not have begun or has ended. */
void emu_cluster_enter(const struct cta *cta, const char *what, site at);
/* Records such an access: the other block must not end before it. */
void emu_cluster_visit(struct cta *cta, site at);
/* The running thread has exited. */
void emu_cluster_leave(void);
