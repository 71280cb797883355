/*
 * Launches that may overlap. A kernel launched early (programmatic stream serialisation) may begin
 * when every block of the kernel before it has said launch_dependents or ended. The emulator runs
 * launches one after another all the same, but remembers which of them such a kernel may take for
 * complete, and memory.c asks it about what an earlier one wrote.
 *
 * What is complete is a set of launches, bit k of a mask being the k-th before the one it belongs
 * to; older than those of a mask all are.
 *     at a launch's start   plain: what is complete when the one before it has ended; early: what
 *                           that one knew when its blocks let it begin
 *     after its wait        what is complete when the one before it has ended
 *     when it has ended     itself, what was at its start, and, if a thread of it waited, that
 *
 * L1 follows no other SM's writes. It is emptied before a launch that is not early, and what a wait
 * waited for is visible to the whole grid (PTX ISA, "griddepcontrol"). To an early launch that does
 * not wait nobody promised that: what was written since the last launch that was not early began is
 * to be read past L1, though it be complete.
 */
#include <stdio.h>

#include "internal.h"
#include "runtime/driver/cuda_abi.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { REMEMBERED = 32 };
static const u32 ALL = 0xffffffff;

static u32 number;                    /* of the launch */
static u32 first_gangs[REMEMBERED];   /* of launch n at n % REMEMBERED */
static u32 at_start, after_wait;      /* masks of this launch, bit 0 unused */
static u32 fresh;                     /* likewise: complete when L1 was last emptied */
static u32 ended = 0xffffffff;        /* of the last one: bit 0 itself */
static bool waited, begun_after_wait; /* some thread waited; every block did before it let go */
static const void *stream;
static bool interrupted; /* what the next launch follows on the stream is none */

static u16 grid_slot(void) {
    return (u16)(emu.slots - 1);
}

void emu_chain_begin(bool early, const void *on) {
    u32 known = ended; /* by the one before */
    early = early && on == stream && !interrupted;
    if (early)
        known = at_start | (begun_after_wait ? after_wait : 0);
    if (on != stream)
        known = ended = ALL; /* what orders streams is not looked at */
    after_wait = ended << 1;
    at_start = known << 1;
    fresh = early ? fresh << 1 : at_start;
    interrupted = false;
    stream = on;
    number++;
    first_gangs[number % REMEMBERED] = emu.first_gang;
    waited = false;
    begun_after_wait = true;
}

void emu_chain_interrupt(const void *on) {
    interrupted = interrupted || on == stream;
}

bool emu_chain_has_ended(u32 gang, const void *on) {
    if (on != stream)
        return true;
    for (u32 k = 0; k < REMEMBERED && k < number; k++)
        if (first_gangs[(number - k) % REMEMBERED] <= gang)
            return ended >> k & 1;
    return true;
}

void emu_chain_block_ends(const struct cta *cta) {
    if (!cta->lets_begin && !cta->waited)
        begun_after_wait = false;
}

void emu_chain_end(void) {
    ended = at_start | (waited ? after_wait : 0) | 1;
}

/* Whether the launch that the gang was of is in a set. */
static bool holds(u32 set, u32 gang) {
    if ((set | 1) == ALL)
        return true;
    for (u32 k = 1; k < REMEMBERED && k < number; k++)
        if (first_gangs[(number - k) % REMEMBERED] <= gang)
            return set >> k & 1;
    return true;
}

bool emu_chain_is_complete(u32 gang, const struct thread *thread) {
    return holds(at_start | (thread->clock[grid_slot()] ? after_wait : 0), gang);
}

bool emu_chain_is_fresh(u32 gang, const struct thread *thread, bool read_only) {
    return holds(fresh | (thread->clock[grid_slot()] && !read_only ? after_wait : 0), gang);
}

bool emu_chain_check_ended(void) {
    if (ended == ALL)
        return true;
    emu_reports_begin();
    emu_report(
        EMU_RACE, 0, 0,
        "the host reads device memory when the last launch has ended, but nothing made that "
        "one end after those before it: one of its threads must execute griddepcontrol.wait");
    emu_reports_end();
    ended = ALL;
    return false;
}

/* Blocks that have ended let go, too: emu_chain_block_ends. */
EMU_EXPORT void emu_grid_launch_dependents(void) {
    struct thread *self = emu.self;
    emu.statistics.instructions++;
    if (!self->cta->lets_begin && !self->clock[grid_slot()])
        begun_after_wait = false;
    self->cta->lets_begin = true;
    emu_yield();
}

/* What follows in this thread, and in those that it tells so, is ordered after the kernels before.
 */
EMU_EXPORT void emu_grid_wait(void) {
    struct thread *self = emu.self;
    emu.statistics.instructions++;
    self->clock[grid_slot()] = 1;
    self->cta->waited = waited = true;
    emu_yield();
}
