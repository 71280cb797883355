/* See view.h. */
#include "emu/memory/view.h"

#include <stdlib.h>
#include <string.h>

#include "emu/machine/report.h"
#include "emu/memory/clock.h"

/* What was known of a gang at some moment. */
struct view {
    struct view *next; /* of all */
    u32 gang;
    u32 clock[]; /* seen, then fenced */
};

/* A thread of the gang that runs took over a view. */
struct acquired {
    const struct view *view;
    u32 clock; /* the thread's */
    u16 slot;
};

static struct view *views; /* of this launch */
static struct acquired *acquired;
static u32 acquired_count, acquired_capacity, acquired_gang;

void emu_views_begin(void) {
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

bool emu_view_orders(u32 gang, u16 slot, u32 clock, const struct thread *thread) {
    see_gang();
    for (u32 i = 0; i < acquired_count; i++)
        if (acquired[i].view->gang == gang && acquired[i].view->clock[slot] >= clock &&
            knows(thread, &acquired[i]))
            return true;
    return false;
}

const struct view *emu_view_take(site at) {
    const size_t words = 2 * (size_t)emu.slots;
    struct view *view = malloc(sizeof *view + words * sizeof view->clock[0]);
    if (!view)
        no_memory(at);
    view->gang = emu.gang;
    memcpy(view->clock, emu.self->clock, words * sizeof view->clock[0]);
    view->next = views;
    views = view;
    return view;
}

const struct view **emu_views_held(u32 *count, site at) {
    see_gang();
    *count = 0;
    if (acquired_count == 0)
        return NULL;
    const struct view **held = malloc(acquired_count * sizeof *held);
    if (!held)
        no_memory(at);
    for (u32 i = 0; i < acquired_count; i++)
        if (knows(emu.self, &acquired[i]))
            held[(*count)++] = acquired[i].view;
    return held;
}

void emu_view_join(const struct view *view, site at) {
    struct thread *self = emu.self;
    if (view->gang == emu.gang) {
        emu_acquire(self, view->clock, 0);
        return;
    }
    see_gang();
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
