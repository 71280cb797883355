/* mbarrier operations of other instructions. */
#pragma once

#include "emu/machine/machine.h"

/* The object at a shared address; `own`: in the thread's own block only. */
struct mbarrier *emu_mbarrier_at(u32 address, bool own, const char *what, site at);
/* `count` arrivals, by the running thread or for it when a deferred arrival takes effect. Their
 * released clocks must have been joined into `arriving`. */
void emu_mbarrier_arrived(struct mbarrier *barrier, int count, site at);
/* Adds expected bytes (positive) or completes some (negative). */
void emu_mbarrier_bytes(struct mbarrier *barrier, i64 bytes, site at);
/* A proxy fence of the thread: publishes all initialisations that it knows. */
void emu_mbarriers_fenced(struct thread *thread);
/* Reports an initialisation that was not fenced; for uses through the async proxy or from another
 * block. */
void emu_mbarrier_check_fenced(const struct mbarrier *barrier, const char *what, site at);
