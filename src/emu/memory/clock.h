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
 *
 * Threads that come from a barrier know the same, but for what each did itself. So a thread's clock
 * has an edition: those of one edition are the same but for each thread's own words, of its slot
 * and of its copies' (`seen` and `fenced`), and those it knows at least as well as the others do.
 * What of an edition was joined once need not be joined again: of a block at a barrier most often
 * one clock is, and of the others their own words.
 */
#ifndef SMELT_EMU_CLOCK_H
#define SMELT_EMU_CLOCK_H

#include "emu/machine/machine.h"

/* A gang begins, whose slots are counted: no slot was used yet. */
void emu_clocks_begin(void);
/* A slot whose word is other than 0 from here on. */
void emu_clock_use(u16 slot);
void emu_clock_use_fenced(u16 slot); /* and its `fenced` */

/* Clocks: seen[slots] then fenced[slots]; of zeros. They end with the gang. */
u32 *emu_clock_new(void);
void emu_clock_free(u32 *clock);
void emu_clock_clear(u32 *clock);
void emu_clock_join(u32 *clock, const u32 *other);

/* Another one each time; never 0, which says that nothing is known. */
u64 emu_edition_new(void);
/* A thread's clock with nothing in it, of the edition of those that begin with it. */
void emu_clock_begin(struct thread *thread, u64 edition);
/* Everything that the thread has seen is fenced. */
void emu_clock_fence(struct thread *thread);
/* The thread knows the slot at this time, which is not its own or its copies'. */
void emu_clock_learn(struct thread *thread, u16 slot, u32 clock);

/* A thread's release: joins its clock into `to`, and moves its own time on. */
void emu_release(struct thread *thread, struct joined *to);
/* A word alone is released. */
void emu_release_word(struct joined *to, u16 slot, u32 clock);
void emu_joined_clear(struct joined *joined);
/* A thread's acquire of a clock of some edition. */
void emu_acquire(struct thread *thread, const u32 *clock, u64 edition);
/* Threads that released to the one and did nothing since know all of it. */
void emu_acquire_joined(struct thread *thread, const struct joined *from, u64 edition);
/* The lanes know what each of them did. */
void emu_clocks_meet(struct warp *warp, u32 lanes);

#endif
