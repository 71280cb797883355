/*
 * Counters in device memory, by which blocks tell each other their progress: an addition releases
 * what its thread did and knew, a read acquires that of every addition whose sum it has seen (PTX
 * ISA, "Memory Consistency Model": additions are a release sequence). Gangs run one after another,
 * but a read need not see all that earlier ones added: it shows some sum of those that are
 * possible, later ones the more often it is asked, so that what does not look at the number is
 * found out.
 */
#include "emu/instructions/counter.h"

#include <stdlib.h>
#include <string.h>

#include "emu/machine/report.h"
#include "emu/machine/schedule.h"
#include "emu/memory/global.h"
#include "emu/memory/view.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

struct addition {
    u32 sum; /* with it */
    u32 gang, clock;
    u16 slot;
    const struct view *own;
    const struct view **others; /* of earlier gangs */
    u32 other_count;
};

struct counter {
    struct counter *next;
    unsigned *address;
    u32 first; /* what was there before the additions */
    struct addition *additions;
    u32 count, capacity;
    u32 gang, seen; /* additions that a read of this gang showed */
    u16 reader;     /* who read last, and took over so many of them */
    u32 taken;
};

static struct counter *counters; /* of this launch */

void emu_counters_begin(void) {
    while (counters) {
        struct counter *next = counters->next;
        for (u32 i = 0; i < counters->count; i++)
            free(counters->additions[i].others);
        free(counters->additions);
        free(counters);
        counters = next;
    }
    emu_views_begin();
}

static _Noreturn void no_memory(site at) {
    emu_fatal(EMU_ILLEGAL, at, 0, "out of memory");
}

/* The counter at an address, with no additions when a plain store has been there since. */
static struct counter *find_counter(unsigned *address, site at) {
    struct counter *counter = counters;
    while (counter && counter->address != address)
        counter = counter->next;
    if (!counter) {
        counter = calloc(1, sizeof *counter);
        if (!counter)
            no_memory(at);
        counter->address = address;
        counter->next = counters;
        counters = counter;
    }
    const u32 last = counter->count ? counter->additions[counter->count - 1].sum : counter->first;
    if (last != *address) {
        for (u32 i = 0; i < counter->count; i++)
            free(counter->additions[i].others);
        counter->count = 0;
    }
    if (counter->count == 0)
        counter->first = *address;
    if (counter->gang != emu.gang || counter->count == 0)
        counter->seen = counter->taken = 0;
    return counter;
}

/* ---- addition: release ----------------------------------------------------------------------- */

static struct addition *next_addition(struct counter *counter, site at) {
    if (counter->count == counter->capacity) {
        const u32 more = counter->capacity ? 2 * counter->capacity : 16;
        struct addition *larger = realloc(counter->additions, more * sizeof *larger);
        if (!larger)
            no_memory(at);
        counter->additions = larger;
        counter->capacity = more;
    }
    return &counter->additions[counter->count++];
}

EMU_EXPORT void emu_counter_add(unsigned *address, unsigned value) {
    struct thread *self = emu.self;
    site at = EMU_SITE;
    emu.statistics.instructions++;
    emu_check_aligned(address, sizeof *address, "red.release", at);
    emu_global_access(address, sizeof *address, EMU_ATOMIC, at);
    struct counter *counter = find_counter(address, at);
    struct addition *addition = next_addition(counter, at);
    *address += value;
    *addition = (struct addition){.sum = *address,
                                  .gang = emu.gang,
                                  .slot = (u16)self->number,
                                  .clock = self->clock[self->number],
                                  .own = emu_view_take(at)};
    addition->others = emu_views_held(&addition->other_count, at);
    self->clock[self->number]++; /* what it does from here on is not released */
    emu_yield();
}

/* ---- reading: acquire ------------------------------------------------------------------------ */

/* How many of the additions a read must see: its gang's, those it knows of, and as many as one
 * before it saw. */
static u32 least_seen(const struct counter *counter) {
    u32 least = counter->gang == emu.gang ? counter->seen : 0;
    for (u32 i = least; i < counter->count; i++) {
        const struct addition *one = &counter->additions[i];
        if (one->gang == emu.gang || emu_view_orders(one->gang, one->slot, one->clock, emu.self))
            least = i + 1;
    }
    return least;
}

static u32 choose_seen(const struct counter *counter) {
    const u32 least = least_seen(counter), unseen = counter->count - least;
    if (unseen == 0 || emu.settings.timing == EMU_EARLY)
        return counter->count;
    if (emu.settings.timing == EMU_RANDOM)
        return least + emu_random() % (unseen + 1);
    return counter->gang == emu.gang ? least + 1 : least; /* the first one late, the next later */
}

/* Most often read in a loop: others go first. */
EMU_EXPORT unsigned emu_counter_read(const unsigned *address) {
    site at = EMU_SITE;
    emu.statistics.instructions++;
    emu_check_aligned(address, sizeof *address, "ld.acquire", at);
    emu_global_access(address, sizeof *address, EMU_ATOMIC, at);
    emu_poll("ld.acquire", at);
    struct counter *counter = find_counter((unsigned *)(uintptr_t)address, at);
    const u32 seen = choose_seen(counter);
    if (counter->gang != emu.gang || seen > counter->seen)
        emu_progress();
    if (counter->gang != emu.gang || counter->reader != emu.self->number)
        counter->taken = 0;
    counter->gang = emu.gang;
    counter->reader = (u16)emu.self->number;
    counter->seen = seen;
    for (; counter->taken < seen; counter->taken++) {
        const struct addition *one = &counter->additions[counter->taken];
        emu_view_join(one->own, at);
        for (u32 k = 0; k < one->other_count; k++)
            emu_view_join(one->others[k], at);
    }
    return seen ? counter->additions[seen - 1].sum : counter->first;
}

/* ---- hints: neither -------------------------------------------------------------------------- */

EMU_EXPORT void emu_hint_add(unsigned *address, unsigned value) {
    site at = EMU_SITE;
    emu.statistics.instructions++;
    emu_check_aligned(address, sizeof *address, "red.relaxed", at);
    emu_global_access(address, sizeof *address, EMU_ATOMIC, at);
    *address += value;
    emu_yield();
}

/* Come to at once, or never: what depends on it is found out. */
EMU_EXPORT int emu_hint_wait(const unsigned *address, unsigned value, int polls) {
    site at = EMU_SITE;
    const bool early =
        emu.settings.timing == EMU_RANDOM ? emu_random() % 2 : emu.settings.timing == EMU_EARLY;
    emu.statistics.instructions++;
    emu_check_aligned(address, sizeof *address, "ld.relaxed", at);
    if (polls > 0)
        emu_global_access(address, sizeof *address, EMU_ATOMIC, at);
    emu_yield();
    (void)value;
    return early && polls > 0 ? polls - 1 : -1;
}
