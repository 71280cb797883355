/* See cluster.h. */
#include "emu/memory/cluster.h"

#include "emu/machine/pool.h"
#include "emu/machine/report.h"
#include "emu/memory/clock.h"

void emu_cluster_enter(const struct cta *cta, const char *what, site at) {
    const struct thread *self = emu.self;
    int first = cta->rank * emu.cta_threads, known = 0;
    while (known < emu.cta_threads && self->clock[first + known] == 0)
        known++;
    if (known == emu.cta_threads)
        emu_fatal(EMU_RACE, at, 0,
                  "%s: %s in block %d of the cluster {1}, which may not have begun: no cluster "
                  "barrier orders the two",
                  emu_thread_name(self), what, cta->rank);
    if (cta->live == 0)
        emu_fatal(EMU_RACE, at, 0, "%s: %s in block %d of the cluster {1}, which has ended",
                  emu_thread_name(self), what, cta->rank);
}

void emu_cluster_visit(struct cta *cta, site at) {
    const struct thread *self = emu.self;
    if (cta == self->cta)
        return;
    if (!cta->visits)
        cta->visits = emu_pool_alloc((size_t)emu.thread_count * sizeof *cta->visits);
    cta->visits[self->number].clock = self->clock[self->number];
    cta->visits[self->number].at = at;
}

/* Called when all threads of the block have exited. */
static void end_block(const struct cta *cta) {
    for (int i = 0; cta->visits && i < emu.thread_count; i++)
        if (cta->visits[i].clock > cta->known_at_end[i])
            emu_report(EMU_RACE, cta->visits[i].at, 0,
                       "block %d of the cluster may end while %s still accesses its shared "
                       "memory {1}: no barrier orders the two",
                       cta->rank, emu_thread_name(&emu.threads[i]));
}

void emu_cluster_leave(void) {
    const struct thread *self = emu.self;
    struct cta *cta = self->cta;
    if (emu.ctas > 1) {
        if (!cta->known_at_end)
            cta->known_at_end = emu_pool_alloc(2 * (size_t)emu.slots * sizeof *cta->known_at_end);
        emu_clock_join(cta->known_at_end, self->clock);
    }
    if (--cta->live == 0)
        end_block(cta);
}
