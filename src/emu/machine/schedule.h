/*
 * Scheduling: runs the threads of a gang as fibres, one at a time, in the order of the settings,
 * and decides when deferred effects happen. It does not depend on what threads do or wait for.
 */
#pragma once

#include "emu/machine/machine.h"

/* ---- the running thread ---------------------------------------------------------------------- */

/* Blocks; returns when another thread calls emu_wake for it. */
void emu_block(enum wait_kind kind, const char *name, void *object, site at);
void emu_wake(struct thread *thread);
/* In a shuffled order, another thread may run here. */
void emu_yield(void);
/* After a failed test: runs other threads first. */
void emu_poll(const char *name, site at);
/* The thread has exited: after its body returns it does not run again. */
void emu_gone(void);
/* Ends the launch from inside a fibre. */
_Noreturn void emu_end(void);

/* ---- random numbers, deferred effects -------------------------------------------------------- */

u32 emu_random(void);
/* Whether an operation issued now takes effect immediately. */
bool emu_takes_effect_now(void);

/* A deferred effect: a copy that completes on an mbarrier, or an arrival that waits for copies. */
struct deferred {
    void (*effect)(struct deferred *deferred);
    struct deferred *next;
    struct thread *thread; /* the issuing thread */
    site at;
};

void emu_defer(struct deferred *deferred);
/* The number of deferred effects; the site of the last one. */
int emu_deferred_count(void);
site emu_deferred_last(void);
/* Runs all of them, unless one ends the launch. */
void emu_deferred_run_all(void);

/* ---- the scheduler --------------------------------------------------------------------------- */

/* Seeds the random numbers of a launch. */
void emu_schedule_begin_launch(void);
/* Makes the gang's threads, prepared by emu_schedule_thread, runnable. */
void emu_schedule_begin_gang(void);
/* Prepares a thread that runs body(). */
void emu_schedule_thread(struct thread *thread, void (*body)(void));

enum emu_outcome {
    EMU_ALL_GONE,   /* or the launch has ended */
    EMU_STUCK,      /* no thread can run */
    EMU_OUT_OF_TIME /* emu.late was set */
};
enum emu_outcome emu_run_threads(void);
