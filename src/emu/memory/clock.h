/*
 * Order. Every location of shared memory remembers who wrote it last, who read it since, and when;
 * "when" is a vector clock over slots (FastTrack: Flanagan and Freund, PLDI 2009):
 *     a thread                      its own time, which moves at every release
 *     a thread's cp.async copies    how many of them are complete and known to be
 *     a warp's wgmmas               likewise
 *     an mbarrier                   phases known to be complete
 *     the grid                      1: the kernels before it in the stream have ended (chain.h)
 * Each thread holds two clocks: `seen`, what happened before its next action, and `fenced`, which
 * of that a proxy fence has made visible to the async proxy. Barriers carry both.
 */
#ifndef SMELT_EMU_CLOCK_H
#define SMELT_EMU_CLOCK_H

#include "emu/machine/machine.h"

/* Clocks: seen[slots] then fenced[slots]. */
void emu_clock_join(u32 *clock, const u32 *other);
void emu_clock_fence(u32 *clock);
u32 *emu_clock_new(void);
void emu_clock_clear(u32 *clock);

/* The running thread's release and acquire. */
void emu_release(u32 *clock); /* joins the thread's clock into *clock and moves its own time on */
void emu_acquire(const u32 *clock);

#endif
