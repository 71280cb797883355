/* See pdl.h. */
#include "emu/memory/pdl.h"

#include "emu/machine/report.h"
#include "emu/memory/clock.h"

enum { REMEMBERED = 32 };
static const u32 ALL = 0xffffffff;

static u32 number;                    /* of the current launch */
static u32 first_gangs[REMEMBERED];   /* of launch n at n % REMEMBERED */
static u32 at_start, after_wait;      /* this launch's masks (pdl.h), bit 0 unused */
static u32 fresh;                     /* likewise: complete when L1 was last invalidated */
static u32 ended = 0xffffffff;        /* of the last launch; bit 0: itself */
static bool waited, begun_after_wait; /* some thread waited; every block waited first */
static const void *stream;
static const void *streams[REMEMBERED]; /* of launch n at n % REMEMBERED */
static u32 synchronized;                /* launches the host waited for; bit 0: the last */
static bool interrupted;                /* the next launch follows a memset */

/* The launches on a stream; bit 0: the last launch. */
static u32 launches_on(const void *on) {
    u32 found = 0;
    for (u32 k = 0; k < REMEMBERED && k < number; k++)
        found |= (u32)(streams[(number - k) % REMEMBERED] == on) << k;
    return found;
}

/* The launches that are complete for an operation without PDL on a stream: those that the host
 * waited for, and earlier ones on the stream. Bit 0: the last launch. */
static u32 complete_on(const void *on) {
    const u32 before = number < REMEMBERED ? ALL << number : 0; /* before the first launch */
    const u32 there = launches_on(on);
    return synchronized | before | (on == stream ? ended & there : there);
}

void emu_pdl_begin(bool pdl, const void *on) {
    u32 known = ended = complete_on(on); /* to the previous launch */
    pdl = pdl && on == stream && !interrupted;
    if (pdl)
        known = at_start | (begun_after_wait ? after_wait : 0) | (ended & ~launches_on(on));
    after_wait = ended << 1;
    at_start = known << 1;
    fresh = pdl ? fresh << 1 : at_start;
    interrupted = false;
    stream = on;
    number++;
    synchronized <<= 1;
    streams[number % REMEMBERED] = on;
    first_gangs[number % REMEMBERED] = emu.first_gang;
    waited = false;
    begun_after_wait = true;
}

void emu_pdl_interrupt(const void *on) {
    interrupted = interrupted || on == stream;
}

bool emu_pdl_has_ended(u32 gang, const void *on) {
    const u32 complete = complete_on(on);
    for (u32 k = 0; k < REMEMBERED && k < number; k++)
        if (first_gangs[(number - k) % REMEMBERED] <= gang)
            return complete >> k & 1;
    return true;
}

void emu_pdl_synchronize(const void *on) {
    synchronized |= launches_on(on);
}

u32 emu_pdl_produce(const void *on) {
    emu.first_gang = ++emu.gang;
    emu_pdl_begin(false, on);
    begun_after_wait = false;
    emu_pdl_end();
    return emu.gang;
}

void emu_pdl_block_ends(const struct cta *cta) {
    if (!cta->lets_begin && !cta->waited)
        begun_after_wait = false;
}

void emu_pdl_end(void) {
    ended = at_start | (waited ? after_wait : 0) | 1;
}

/* Whether the launch of a gang is in a set. */
static bool holds(u32 set, u32 gang) {
    if ((set | 1) == ALL)
        return true;
    for (u32 k = 1; k < REMEMBERED && k < number; k++)
        if (first_gangs[(number - k) % REMEMBERED] <= gang)
            return set >> k & 1;
    return true;
}

bool emu_pdl_is_complete(u32 gang, const struct thread *thread) {
    return holds(at_start | (thread->clock[emu_grid_slot()] ? after_wait : 0), gang);
}

bool emu_pdl_is_fresh(u32 gang, const struct thread *thread, bool read_only) {
    return holds(fresh | (thread->clock[emu_grid_slot()] && !read_only ? after_wait : 0), gang);
}

bool emu_pdl_check_ended(void) {
    if ((launches_on(stream) & ~ended) == 0)
        return true;
    emu_reports_begin();
    emu_report(
        EMU_RACE, 0, 0,
        "the host reads device memory after the last launch, which may end before earlier launches "
        "do: one of its threads must execute griddepcontrol.wait");
    emu_reports_end();
    ended |= launches_on(stream);
    return false;
}

/* Blocks that end count as well: emu_pdl_block_ends. */
void emu_pdl_let_begin(void) {
    struct thread *self = emu.self;
    if (!self->cta->lets_begin && !self->clock[emu_grid_slot()])
        begun_after_wait = false;
    self->cta->lets_begin = true;
}

void emu_pdl_wait(void) {
    struct thread *self = emu.self;
    emu_clock_learn(self, emu_grid_slot(), 1);
    self->cta->waited = waited = true;
}
