/*
 * Who runs: the threads of a gang as fibres, one at a time, in an order that is part of the
 * schedule; and when what takes effect by itself does. It knows nothing of what threads do or wait
 * for.
 */
#ifndef SMELT_EMU_SCHEDULE_H
#define SMELT_EMU_SCHEDULE_H

#include "emu/machine/machine.h"

/* ---- the running thread ---------------------------------------------------------------------- */

/* It waits; returns when another called emu_wake for it. */
void emu_block(enum wait_kind kind, const char *name, void *object, site at);
void emu_wake(struct thread *thread);
/* A point at which another thread may take over, in a shuffled order. */
void emu_yield(void);
/* After a fruitless test: other threads go first. */
void emu_poll(const char *name, site at);
/* It has left the kernel: once its body returns it does not run again. */
void emu_gone(void);
/* Ends the launch from inside a fibre. */
_Noreturn void emu_end(void);

/* ---- chance, and what takes effect by itself ------------------------------------------------- */

u32 emu_random(void);
/* Whether an operation issued now takes effect now. */
bool emu_lands_now(void);

/* What can still take effect: a copy that completes on an mbarrier, an arrival that waits for
 * copies. */
struct deferred {
    void (*effect)(struct deferred *deferred);
    struct deferred *next;
    struct thread *thread; /* who issued it */
    site at;
};

void emu_defer(struct deferred *deferred);
/* How many there are; the place of the last that was issued. */
int emu_deferred_count(void);
site emu_deferred_last(void);
/* Lets all of them happen that can before the launch ends. */
void emu_land_all(void);

/* ---- the scheduler --------------------------------------------------------------------------- */

/* A launch begins: its random numbers. */
void emu_schedule_begin_launch(void);
/* The gang's threads, prepared by emu_schedule_thread, are to run. */
void emu_schedule_begin_gang(void);
/* Has a thread begin with body(). */
void emu_schedule_thread(struct thread *thread, void (*body)(void));

enum emu_outcome {
    EMU_ALL_GONE,   /* or the launch has ended */
    EMU_STUCK,      /* nothing can run any more */
    EMU_OUT_OF_TIME /* emu.late was set */
};
enum emu_outcome emu_run_threads(void);

#endif
