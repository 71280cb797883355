/*
 * mbarriers (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier"). An
 * object has an expected count, the pending arrivals of the current phase, and a transaction count
 * of bytes; the phase is complete when both are zero. Phases count from 0. A wait names the parity
 * of a phase and returns when the current phase has the other parity.
 */
#include "emu/instructions/mbarrier.h"

#include "emu/machine/report.h"
#include "emu/machine/schedule.h"
#include "emu/memory/clock.h"
#include "emu/memory/cluster.h"
#include "emu/memory/shared.h"

enum { MAX_COUNT = (1 << 20) - 1 };

/* An mbarrier exists until its block ends; plain accesses to its 8 bytes are reported. */
static struct mbarrier *find(struct cta *cta, u32 offset) {
    for (int i = 0; i < cta->mbarrier_count; i++)
        if (cta->mbarriers[i].offset == offset)
            return &cta->mbarriers[i];
    return NULL;
}

/* The object at an address; its initialisation must be ordered before. */
struct mbarrier *emu_mbarrier_at(u32 address, bool own, const char *what, site at) {
    struct thread *self = emu.self;
    struct shared_location location =
        (own ? emu_own_location : emu_shared_location)(address, 8, 8, what, at);
    struct mbarrier *barrier = find(location.cta, location.offset);
    emu.statistics.instructions++;
    if (!barrier)
        emu_fatal(EMU_BARRIER, at, 0, "%s: %s at %s, where no mbarrier was initialised {1}",
                  emu_thread_name(self), what, emu_shared_name(location.cta, location.offset));
    if (self->number != barrier->init_slot && self->clock[barrier->init_slot] < barrier->init_clock)
        emu_fatal(EMU_RACE, at, barrier->at,
                  "%s: %s at %s {1}, not ordered after its initialisation {2}",
                  emu_thread_name(self), what, emu_shared_name(location.cta, location.offset));
    return barrier;
}

static void complete_phase(struct mbarrier *barrier) {
    u32 *released = barrier->released;
    emu_clock_join(released, barrier->arriving.clock);
    barrier->phase++;
    /* Writes of the phase's bulk copies become visible to both proxies. */
    emu_clock_use_fenced(barrier->slot);
    released[barrier->slot] = released[emu.slots + barrier->slot] = barrier->phase;
    barrier->edition = emu_edition_new();
    emu_joined_clear(&barrier->arriving);
    barrier->pending = barrier->expected;
    for (int i = 0; i < emu.thread_count; i++) {
        struct thread *thread = &emu.threads[i];
        if (thread->wait != AT_MBARRIER || thread->wait_object != barrier ||
            (barrier->phase & 1) == thread->wait_parity)
            continue;
        emu_acquire(thread, released, barrier->edition);
        emu_wake(thread);
    }
}

static void complete_if_done(struct mbarrier *barrier) {
    if (barrier->pending == 0 && barrier->bytes == 0)
        complete_phase(barrier);
}

static const char *name(const struct mbarrier *barrier) {
    return emu_shared_name(barrier->cta, barrier->offset);
}

/* `count` arrivals, whose released clocks have been joined. Called by the arriving thread, or for
 * it when a deferred arrival takes effect. */
void emu_mbarrier_arrived(struct mbarrier *barrier, int count, site at) {
    if (count < 1 || count > barrier->pending)
        emu_fatal(EMU_BARRIER, at, barrier->at,
                  "%d arrivals at the mbarrier %s {1}, whose phase %u misses only %d of %d; it was "
                  "initialised {2}",
                  count, name(barrier), barrier->phase, barrier->pending, barrier->expected);
    barrier->pending -= count;
    complete_if_done(barrier);
}

/* Adds expected bytes (positive) or completes some (negative). */
void emu_mbarrier_bytes(struct mbarrier *barrier, i64 bytes, site at) {
    barrier->bytes += bytes;
    if (barrier->bytes > MAX_COUNT || barrier->bytes < -MAX_COUNT)
        emu_fatal(EMU_BARRIER, at, barrier->at,
                  "the transaction count of the mbarrier %s becomes %lld, beyond 2^20 - 1 {1}",
                  name(barrier), (long long)barrier->bytes);
    if (bytes < 0)
        complete_if_done(barrier);
}

static void arrive(struct mbarrier *barrier, int count, site at) {
    emu_release(emu.self, &barrier->arriving);
    emu_mbarrier_arrived(barrier, count, at);
    emu_yield();
}

/* A thread that missed a whole phase cannot distinguish two phases by parity. Its clock holds the
 * phases that it knows, from its own waits or those of threads it synchronised with. */
static void check_aliasing(const struct mbarrier *barrier, site at) {
    const struct thread *self = emu.self;
    u32 known = self->clock[barrier->slot];
    if (barrier->phase >= known + 2)
        emu_fatal(EMU_BARRIER, at, barrier->at,
                  "%s: a wait for the mbarrier %s {1}, which has completed %u phases while the "
                  "thread knows of %u: the parity cannot distinguish them; initialised {2}",
                  emu_thread_name(self), name(barrier), barrier->phase, known);
}

/* An acquire at block scope does not order what another block released. */
static void check_scope(const struct mbarrier *barrier, bool cluster, const char *what, site at) {
    if (!cluster && barrier->phase > 0 && barrier->remote_phase == barrier->phase)
        emu_fatal(EMU_BARRIER, at, barrier->remote_at,
                  "%s: %s at block scope on the mbarrier %s {1}, at which another block "
                  "arrived {2}: an acquire at cluster scope is needed",
                  emu_thread_name(emu.self), what, name(barrier));
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EMU_EXPORT void emu_mbarrier_init(unsigned address, int count) {
    site at = EMU_SITE;
    struct thread *self = emu.self;
    struct shared_location location = emu_own_location(address, 8, 8, "mbarrier.init", at);
    struct cta *cta = location.cta;
    emu.statistics.instructions++;
    if (count < 1 || count > MAX_COUNT)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: mbarrier.init with a count of %d {1}",
                  emu_thread_name(self), count);
    /* Its bytes must be free of other mbarriers and unordered accesses. */
    emu_shared_write(cta, location.offset, 8, at);
    const int index = cta->mbarrier_count;
    if (index == MAX_MBARRIERS)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: more than %d mbarriers in a block {1}",
                  emu_thread_name(self), MAX_MBARRIERS);
    struct mbarrier *barrier = &cta->mbarriers[index];
    cta->mbarrier_count++;
    *barrier = (struct mbarrier){.cta = cta,
                                 .offset = location.offset,
                                 .expected = count,
                                 .pending = count,
                                 .arriving.clock = emu_clock_new(),
                                 .released = emu_clock_new(),
                                 .init_slot = (u16)self->number,
                                 .init_clock = self->clock[self->number],
                                 .at = at};
    barrier->slot =
        (u16)(2 * emu.thread_count + emu.warp_count + cta->rank * MAX_MBARRIERS + index);
}

/* Makes the thread's initialisations visible to the async proxy and the cluster. */
EMU_EXPORT void emu_mbarrier_fence_init(void) {
    struct thread *self = emu.self;
    for (int i = 0; i < emu.ctas; i++)
        for (int b = 0; b < emu.cta[i].mbarrier_count; b++) {
            struct mbarrier *barrier = &emu.cta[i].mbarriers[b];
            if (barrier->init_slot != self->number || barrier->init_fenced)
                continue;
            barrier->init_fenced = true;
            barrier->fence_slot = (u16)self->number;
            barrier->fence_clock = self->clock[self->number];
        }
}

/* A proxy fence publishes all initialisations that the thread knows. */
void emu_mbarriers_fenced(struct thread *thread) {
    for (int b = 0; b < thread->cta->mbarrier_count; b++) {
        struct mbarrier *barrier = &thread->cta->mbarriers[b];
        bool knows = barrier->init_slot == thread->number ||
                     thread->clock[barrier->init_slot] >= barrier->init_clock;
        if (barrier->init_fenced || !knows)
            continue;
        barrier->init_fenced = true;
        barrier->fence_slot = (u16)thread->number;
        barrier->fence_clock = thread->clock[thread->number];
    }
}

/* Uses through the async proxy or from another block need a fenced initialisation. */
void emu_mbarrier_check_fenced(const struct mbarrier *barrier, const char *what, site at) {
    const struct thread *self = emu.self;
    if (!barrier->init_fenced || (barrier->fence_slot != self->number &&
                                  self->clock[barrier->fence_slot] < barrier->fence_clock))
        emu_fatal(EMU_PROXY, at, barrier->at,
                  "%s: %s uses the mbarrier %s {1}; no fence.mbarrier_init or fence.proxy.async "
                  "was executed since its initialisation {2}",
                  emu_thread_name(self), what, name(barrier));
}

EMU_EXPORT void emu_mbarrier_arrive(unsigned address, int count) {
    site at = EMU_SITE;
    arrive(emu_mbarrier_at(address, true, "mbarrier.arrive", at), count, at);
}

EMU_EXPORT void emu_mbarrier_arrive_remote(unsigned address) {
    site at = EMU_SITE;
    struct mbarrier *barrier =
        emu_mbarrier_at(address, false, "mbarrier.arrive of the cluster", at);
    emu_mbarrier_check_fenced(barrier, "mbarrier.arrive of the cluster", at);
    emu_cluster_visit(barrier->cta, at);
    if (barrier->cta != emu.self->cta) {
        barrier->remote_phase = barrier->phase + 1;
        barrier->remote_at = at;
    }
    arrive(barrier, 1, at);
}

EMU_EXPORT void emu_mbarrier_expect(unsigned address, unsigned bytes) {
    site at = EMU_SITE;
    emu_mbarrier_bytes(emu_mbarrier_at(address, true, "mbarrier.expect_tx", at), bytes, at);
}

EMU_EXPORT void emu_mbarrier_arrive_expect(unsigned address, unsigned bytes) {
    site at = EMU_SITE;
    struct mbarrier *barrier = emu_mbarrier_at(address, true, "mbarrier.arrive.expect_tx", at);
    emu_mbarrier_bytes(barrier, bytes, at);
    arrive(barrier, 1, at);
}

EMU_EXPORT int emu_mbarrier_test(unsigned address, int parity) {
    site at = EMU_SITE;
    struct mbarrier *barrier = emu_mbarrier_at(address, true, "mbarrier.test_wait", at);
    check_aliasing(barrier, at);
    if ((barrier->phase & 1) == ((u32)parity & 1)) {
        emu_poll("mbarrier.test_wait", at);
        return 0;
    }
    check_scope(barrier, false, "mbarrier.test_wait", at);
    emu_acquire(emu.self, barrier->released, barrier->edition);
    return 1;
}

static void wait(unsigned address, int parity, bool cluster, site at) {
    struct mbarrier *barrier = emu_mbarrier_at(address, true, "mbarrier.try_wait", at);
    if (parity != 0 && parity != 1)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: a wait for parity %d; legal: 0, 1 {1}",
                  emu_thread_name(emu.self), parity);
    check_aliasing(barrier, at);
    if ((barrier->phase & 1) != (u32)parity) {
        emu_acquire(emu.self, barrier->released, barrier->edition);
        emu_yield();
    } else {
        emu.self->wait_parity = (u32)parity;
        emu_block(AT_MBARRIER, "mbarrier.try_wait", barrier, at);
    }
    check_scope(barrier, cluster, "mbarrier.try_wait", at);
}

EMU_EXPORT void emu_mbarrier_wait(unsigned address, int parity) {
    wait(address, parity, false, EMU_SITE);
}

EMU_EXPORT void emu_mbarrier_wait_cluster(unsigned address, int parity) {
    wait(address, parity, true, EMU_SITE);
}
