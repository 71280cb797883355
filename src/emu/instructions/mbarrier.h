/* What other instructions do with an mbarrier. */
#ifndef SMELT_EMU_MBARRIER_H
#define SMELT_EMU_MBARRIER_H

#include "emu/machine/machine.h"

/* The object at an address of the cluster; `own`: of the thread's own block only. */
struct mbarrier *emu_mbarrier_at(u32 address, bool own, const char *what, site at);
/* `count` arrivals, by the running thread or, when a deferred arrival takes effect, for it. What
 * they release was joined into the barrier's `arriving`. */
void emu_mbarrier_arrived(struct mbarrier *barrier, int count, site at);
/* Adds to the bytes expected (positive) or completes some (negative). */
void emu_mbarrier_bytes(struct mbarrier *barrier, i64 bytes, site at);
/* A proxy fence of the thread makes known what it knows, initialisations included. */
void emu_mbarriers_fenced(struct thread *thread);
/* For uses through the async proxy or from another block: the initialisation was fenced. */
void emu_mbarrier_check_fenced(const struct mbarrier *barrier, const char *what, site at);

#endif
