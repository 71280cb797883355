/* See meeting.h. */
#include "emu/machine/meeting.h"

#include "emu/machine/lines.h"
#include "emu/machine/report.h"
#include "emu/machine/schedule.h"

static struct meeting *find_meeting(struct warp *warp, const char *name, u32 mask, int lane) {
    for (int i = 0; i < WARP; i++) {
        struct meeting *meeting = &warp->meetings[i];
        if (meeting->open && meeting->name == name && meeting->mask == mask &&
            !(meeting->arrived >> lane & 1))
            return meeting;
    }
    return NULL;
}

/* Reports a lane for which others wait at one collective instruction while it arrives at another
 * that needs one of them: neither can complete. */
static void check_convergence(const struct warp *warp, const char *name, u32 mask, int lane,
                              site at) {
    for (int i = 0; i < WARP; i++) {
        const struct meeting *other = &warp->meetings[i];
        if (other->open && other->mask >> lane & 1 && other->arrived & mask)
            emu_fatal(EMU_CONVERGENCE, at, other->at,
                      "lanes of warp %d diverge: %s arrives at %s (mask 0x%08x) {1}, while lanes "
                      "0x%08x wait for it at %s (mask 0x%08x) {2}",
                      warp->index, emu_thread_name(emu.self), name, mask, other->arrived,
                      other->name, other->mask);
    }
}

static void meet(const char *name, u32 mask, bool aligned,
                 void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
                 void *arguments, site at) {
    struct thread *self = emu.self;
    struct warp *warp = self->warp;
    emu.statistics.instructions++;
    if (!(mask >> self->lane & 1) || mask & ~warp->present)
        emu_fatal(EMU_CONVERGENCE, at, 0, "%s: %s with mask 0x%08x, which %s {1}",
                  emu_thread_name(self), name, mask,
                  mask & ~warp->present ? "names lanes that do not exist"
                                        : "does not name the lane itself");
    struct meeting *meeting = find_meeting(warp, name, mask, self->lane);
    if (!meeting) {
        check_convergence(warp, name, mask, self->lane, at);
        for (meeting = warp->meetings; meeting->open; meeting++)
            continue;
        *meeting = (struct meeting){
            .execute = execute, .name = name, .mask = mask, .at = at, .open = true};
    }
    if (aligned && meeting->at != at && !emu_same_line(meeting->at, at))
        emu_fatal(EMU_CONVERGENCE, at, meeting->at,
                  "lanes of warp %d execute %s, which is .aligned, at two locations: {1} and {2}",
                  warp->index, name);
    meeting->arrived |= 1u << self->lane;
    meeting->arguments[self->lane] = arguments;
    if (meeting->arrived != mask) {
        emu_block(AT_MEETING, name, meeting, at);
        return;
    }
    meeting->open = false;
    execute(warp, mask, meeting->arguments, at);
    for (u32 lanes = mask & ~(1u << self->lane); lanes; lanes &= lanes - 1)
        emu_wake(warp->threads[__builtin_ctz(lanes)]);
    emu_yield();
}

void emu_meet(const char *name, u32 mask,
              void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
              void *arguments, site at) {
    meet(name, mask, false, execute, arguments, at);
}

void emu_meet_whole(const char *name,
                    void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
                    void *arguments, site at) {
    if (emu.self->warp->present != ~(u32)0)
        emu_fatal(EMU_CONVERGENCE, at, 0, "%s: %s in a warp of fewer than 32 threads {1}",
                  emu_thread_name(emu.self), name);
    meet(name, ~(u32)0, true, execute, arguments, at);
}

static void execute_nothing(struct warp *warp, u32 mask, void **arguments, site at) {
    (void)warp;
    (void)mask;
    (void)arguments;
    (void)at;
}

void emu_converge(const char *name, site at) {
    meet(name, emu.self->warp->present, true, execute_nothing, NULL, at);
}
