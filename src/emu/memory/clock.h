/*
 * Ordering. Every location of shared memory remembers its last writer, its readers since, and their
 * times. A time is a vector clock over slots (FastTrack: Flanagan and Freund, PLDI 2009):
 *     a thread                      its own time, which advances at every release
 *     a thread's cp.async copies    the number of them known to be complete
 *     a warp's wgmmas               likewise
 *     an mbarrier                   the number of phases known to be complete
 *     the grid                      1: earlier kernels of the stream are complete (pdl.h)
 * Each thread holds two clocks: `seen`, what happened before its next action, and `fenced`, the
 * part of it that a proxy fence has made visible to the async proxy. Barriers carry both.
 *
 * Editions make joins cheap. Threads that leave a barrier have equal clocks except for each
 * thread's own words (of its slot and its copies' slot). Clocks with the same edition number are
 * equal except for those words, and each thread's own words are newest in its own clock. So once
 * one clock of an edition has been joined, joining another of it needs only its thread's own words.
 */
#pragma once

#include "emu/machine/machine.h"

/* A gang begins: no slot has been used. emu.slots must be set. */
void emu_clocks_begin(void);
/* Marks a slot whose word becomes nonzero. */
void emu_clock_use(u16 slot);
void emu_clock_use_fenced(u16 slot); /* and its `fenced` */

/* Clocks, initially zero: seen[slots], then fenced[slots]. They end with the gang. */
u32 *emu_clock_new(void);
void emu_clock_free(u32 *clock);
void emu_clock_clear(u32 *clock);
void emu_clock_join(u32 *clock, const u32 *other);

/* A new edition; never 0, which means unknown. */
u64 emu_edition_new(void);
/* Gives a thread a new clock, of the edition of threads that begin with it. */
void emu_clock_begin(struct thread *thread, u64 edition);
/* A proxy fence: `fenced` becomes `seen`. */
void emu_clock_fence(struct thread *thread);
/* The thread learns a time of a slot other than its own and its copies'. */
void emu_clock_learn(struct thread *thread, u16 slot, u32 clock);

/* Release: joins the thread's clock into `to` and advances its own time. */
void emu_release(struct thread *thread, struct joined *to);
/* Releases a single word. */
void emu_release_word(struct joined *to, u16 slot, u32 clock);
void emu_joined_clear(struct joined *joined);
/* Acquires a clock, whose edition is given (0: unknown). */
void emu_acquire(struct thread *thread, const u32 *clock, u64 edition);
/* The same for a joined clock; cheap for a thread that released to it and did nothing since. */
void emu_acquire_joined(struct thread *thread, const struct joined *from, u64 edition);
/* Joins the lanes' clocks. */
void emu_clocks_meet(struct warp *warp, u32 lanes);
