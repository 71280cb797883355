/* Blocks of a cluster that reach into each other. */
#ifndef SMELT_EMU_CLUSTER_H
#define SMELT_EMU_CLUSTER_H

#include "emu/machine/machine.h"

/* Shared memory of another block may be used from when that block is known to run to when it ends,
 * which its threads may do only after what they know to be over. */

/* What the running thread needs of another block whose shared memory it names. */
void emu_cluster_enter(const struct cta *cta, const char *what, site at);
/* Its own access to another block: that one must not end before. */
void emu_cluster_visit(struct cta *cta, site at);
/* It has left the kernel. */
void emu_cluster_leave(void);

#endif
