/*
 * Counters in device memory, by which blocks tell each other their progress: an addition releases
 * what its thread did and knew, a read acquires that of every addition whose sum it has seen (PTX
 * ISA, "Memory Consistency Model": additions are a release sequence). Gangs run one after another,
 * but a read need not see all that earlier ones added: it shows some sum of those that are
 * possible, later ones the more often it is asked, so that what does not look at the number is
 * found out.
 *
 * What another gang knew cannot stand in this one's clocks, whose slots are its own. It is kept as
 * that gang's clock, together with who acquired it and when: whoever comes after that knows it,
 * too.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* What was known of a gang at some moment. */
struct view {
    struct view *next; /* of all */
    u32 gang;
    u32 clock[]; /* seen, then fenced */
};

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

/* A thread of the gang that runs took over a view. */
struct acquired {
    const struct view *view;
    u32 clock; /* the thread's */
    u16 slot;
};

static struct counter *counters; /* of this launch */
static struct view *views;
static struct acquired *acquired;
static u32 acquired_count, acquired_capacity, acquired_gang;

void emu_counters_begin(void) {
    while (counters) {
        struct counter *next = counters->next;
        for (u32 i = 0; i < counters->count; i++)
            free(counters->additions[i].others);
        free(counters->additions);
        free(counters);
        counters = next;
    }
    while (views) {
        struct view *next = views->next;
        free(views);
        views = next;
    }
    acquired_count = 0;
}

static _Noreturn void no_memory(site at) {
    emu_fatal(EMU_ILLEGAL, at, 0, "out of memory");
}

/* Forgets what threads of earlier gangs took over. */
static void see_gang(void) {
    if (acquired_gang != emu.gang)
        acquired_count = 0;
    acquired_gang = emu.gang;
}

static bool knows(const struct thread *thread, const struct acquired *one) {
    return one->slot == thread->number || thread->clock[one->slot] >= one->clock;
}

bool emu_counter_orders(u32 gang, u16 slot, u32 clock, const struct thread *thread) {
    see_gang();
    for (u32 i = 0; i < acquired_count; i++)
        if (acquired[i].view->gang == gang && acquired[i].view->clock[slot] >= clock &&
            knows(thread, &acquired[i]))
            return true;
    return false;
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

static const struct view *view_of(const struct thread *thread, site at) {
    const size_t words = 2 * (size_t)emu.slots;
    struct view *view = malloc(sizeof *view + words * sizeof view->clock[0]);
    if (!view)
        no_memory(at);
    view->gang = emu.gang;
    memcpy(view->clock, thread->clock, words * sizeof view->clock[0]);
    view->next = views;
    views = view;
    return view;
}

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
    see_gang();
    struct counter *counter = find_counter(address, at);
    struct addition *addition = next_addition(counter, at);
    *address += value;
    *addition = (struct addition){.sum = *address,
                                  .gang = emu.gang,
                                  .slot = (u16)self->number,
                                  .clock = self->clock[self->number],
                                  .own = view_of(self, at)};
    if (acquired_count > 0) {
        addition->others = malloc(acquired_count * sizeof *addition->others);
        if (!addition->others)
            no_memory(at);
        for (u32 i = 0; i < acquired_count; i++)
            if (knows(self, &acquired[i]))
                addition->others[addition->other_count++] = acquired[i].view;
    }
    self->clock[self->number]++; /* what it does from here on is not released */
    emu_yield();
}

/* ---- reading: acquire ------------------------------------------------------------------------ */

static void take_over(const struct view *view, site at) {
    struct thread *self = emu.self;
    if (view->gang == emu.gang) {
        emu_clock_join(self->clock, view->clock);
        return;
    }
    for (u32 i = 0; i < acquired_count; i++)
        if (acquired[i].view == view && knows(self, &acquired[i]))
            return;
    if (acquired_count == acquired_capacity) {
        const u32 more = acquired_capacity ? 2 * acquired_capacity : 64;
        struct acquired *larger = realloc(acquired, more * sizeof *larger);
        if (!larger)
            no_memory(at);
        acquired = larger;
        acquired_capacity = more;
    }
    acquired[acquired_count++] = (struct acquired){
        .view = view, .clock = self->clock[self->number], .slot = (u16)self->number};
}

/* How many of the additions a read must see: its gang's, those it knows of, and as many as one
 * before it saw. */
static u32 least_seen(const struct counter *counter) {
    u32 least = counter->gang == emu.gang ? counter->seen : 0;
    for (u32 i = least; i < counter->count; i++) {
        const struct addition *one = &counter->additions[i];
        if (one->gang == emu.gang || emu_counter_orders(one->gang, one->slot, one->clock, emu.self))
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
    see_gang();
    struct counter *counter = find_counter((unsigned *)(uintptr_t)address, at);
    const u32 seen = choose_seen(counter);
    if (counter->gang != emu.gang || seen > counter->seen)
        emu.fruitless = 0;
    if (counter->gang != emu.gang || counter->reader != emu.self->number)
        counter->taken = 0;
    counter->gang = emu.gang;
    counter->reader = (u16)emu.self->number;
    counter->seen = seen;
    for (; counter->taken < seen; counter->taken++) {
        const struct addition *one = &counter->additions[counter->taken];
        take_over(one->own, at);
        for (u32 k = 0; k < one->other_count; k++)
            take_over(one->others[k], at);
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
