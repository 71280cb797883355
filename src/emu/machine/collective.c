/* See collective.h. */
#include "emu/machine/collective.h"

#include "emu/machine/lines.h"
#include "emu/machine/report.h"
#include "emu/machine/schedule.h"

static struct collective *find_collective(struct warp *warp, const char *name, u32 mask, int lane) {
    for (int i = 0; i < WARP; i++) {
        struct collective *collective = &warp->collectives[i];
        if (collective->open && collective->name == name && collective->mask == mask &&
            !(collective->arrived >> lane & 1))
            return collective;
    }
    return NULL;
}

/* Reports a lane for which others wait at one collective instruction while it arrives at another
 * that needs one of them: neither can complete. */
static void check_convergence(const struct warp *warp, const char *name, u32 mask, int lane,
                              site at) {
    for (int i = 0; i < WARP; i++) {
        const struct collective *other = &warp->collectives[i];
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
    struct collective *collective = find_collective(warp, name, mask, self->lane);
    if (!collective) {
        check_convergence(warp, name, mask, self->lane, at);
        for (collective = warp->collectives; collective->open; collective++)
            continue;
        *collective = (struct collective){
            .execute = execute, .name = name, .mask = mask, .at = at, .open = true};
    }
    if (aligned && collective->at != at && !emu_same_line(collective->at, at))
        emu_fatal(EMU_CONVERGENCE, at, collective->at,
                  "lanes of warp %d execute %s, which is .aligned, at two locations: {1} and {2}",
                  warp->index, name);
    collective->arrived |= 1u << self->lane;
    collective->arguments[self->lane] = arguments;
    if (collective->arrived != mask) {
        emu_block(AT_COLLECTIVE, name, collective, at);
        return;
    }
    collective->open = false;
    execute(warp, mask, collective->arguments, at);
    for (u32 lanes = mask & ~(1u << self->lane); lanes; lanes &= lanes - 1)
        emu_wake(warp->threads[__builtin_ctz(lanes)]);
    emu_yield();
}

void emu_collective(const char *name, u32 mask,
                    void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
                    void *arguments, site at) {
    meet(name, mask, false, execute, arguments, at);
}

void emu_collective_whole(const char *name,
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
