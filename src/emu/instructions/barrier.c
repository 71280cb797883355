/* Barriers of a block (bar.sync, bar.arrive, bar.red), of a cluster, and of part of a warp. */
#include "emu/instructions/barrier.h"

#include <stdlib.h>
#include <string.h>

#include "emu/machine/collective.h"
#include "emu/machine/report.h"
#include "emu/machine/schedule.h"
#include "emu/memory/clock.h"

enum reduction { NONE, OR, AND, COUNT };

static void clear(struct barrier *barrier) {
    emu_joined_clear(&barrier->joined);
    barrier->arrived = barrier->expected = barrier->predicates = 0;
}

static bool waits(const struct thread *thread, const struct barrier *barrier) {
    return thread->wait == AT_BARRIER && thread->wait_object == barrier;
}

/* All threads have arrived: wakes the waiting ones, which acquire what all of them released. */
static void complete(struct barrier *barrier, bool wait, int result) {
    const u64 edition = emu_edition_new();
    if (wait)
        emu_acquire_joined(emu.self, &barrier->joined, edition);
    for (int i = 0; i < emu.thread_count; i++) {
        struct thread *thread = &emu.threads[i];
        if (!waits(thread, barrier))
            continue;
        emu_acquire_joined(thread, &barrier->joined, edition);
        thread->result = result;
        emu_wake(thread);
    }
}

/* The running thread arrives at a barrier of `threads` threads; returns the reduction if
 * it waits. */
static int arrive_at(struct barrier *barrier, const char *name, int threads, bool wait,
                     enum reduction kind, bool predicate, site at) {
    struct thread *self = emu.self;
    emu_converge(name, at);
    if (!barrier->joined.clock)
        barrier->joined.clock = emu_clock_new();
    if (barrier->arrived == 0) {
        barrier->expected = threads;
        barrier->kind = (int)kind;
        barrier->at = at;
    } else if (barrier->expected != threads || (wait && barrier->kind != (int)kind)) {
        emu_fatal(EMU_BARRIER, at, barrier->at,
                  "%s arrives at %s with %d threads {1}, others arrived with %d {2}",
                  emu_thread_name(self), name, threads, barrier->expected);
    }
    barrier->arrived++;
    barrier->predicates += predicate;
    emu_release(self, &barrier->joined);
    if (barrier->arrived < barrier->expected) {
        if (wait)
            emu_block(AT_BARRIER, name, barrier, at);
        else
            emu_yield();
        return self->result;
    }
    int result = kind == OR      ? barrier->predicates > 0
                 : kind == AND   ? barrier->predicates == barrier->expected
                 : kind == COUNT ? barrier->predicates
                                 : 0;
    complete(barrier, wait, result);
    clear(barrier);
    emu_yield();
    return result;
}

static struct barrier *named(int id, int threads, site at) {
    if (id < 0 || id >= NAMED_BARRIERS)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: barrier %d; legal: 0 to 15 {1}",
                  emu_thread_name(emu.self), id);
    if (threads <= 0 || threads % WARP != 0 || threads > emu.cta_threads)
        emu_fatal(EMU_ILLEGAL, at, 0,
                  "%s: barrier %d for %d threads, which is not a multiple of 32 up to the block's "
                  "%d {1}",
                  emu_thread_name(emu.self), id, threads, emu.cta_threads);
    return &emu.self->cta->barriers[id];
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EMU_EXPORT void emu_syncthreads(void) {
    arrive_at(&emu.self->cta->barriers[0], "__syncthreads", emu.cta_threads, true, NONE, false,
              EMU_SITE);
}

EMU_EXPORT int emu_syncthreads_or(int predicate) {
    return arrive_at(&emu.self->cta->barriers[0], "__syncthreads_or", emu.cta_threads, true, OR,
                     predicate != 0, EMU_SITE);
}

EMU_EXPORT int emu_syncthreads_and(int predicate) {
    return arrive_at(&emu.self->cta->barriers[0], "__syncthreads_and", emu.cta_threads, true, AND,
                     predicate != 0, EMU_SITE);
}

EMU_EXPORT int emu_syncthreads_count(int predicate) {
    return arrive_at(&emu.self->cta->barriers[0], "__syncthreads_count", emu.cta_threads, true,
                     COUNT, predicate != 0, EMU_SITE);
}

EMU_EXPORT void emu_barrier_sync(int id, int threads) {
    site at = EMU_SITE;
    arrive_at(named(id, threads, at), "bar.sync", threads, true, NONE, false, at);
}

EMU_EXPORT void emu_barrier_arrive(int id, int threads) {
    site at = EMU_SITE;
    arrive_at(named(id, threads, at), "bar.arrive", threads, false, NONE, false, at);
}

EMU_EXPORT int emu_barrier_or(int id, int threads, int predicate) {
    site at = EMU_SITE;
    return arrive_at(named(id, threads, at), "bar.red.or", threads, true, OR, predicate != 0, at);
}

/* ---- the cluster's --------------------------------------------------------------------------- */

/* The cluster's barrier is complete when all threads that have not exited have arrived (PTX ISA,
 * "barrier.cluster": all non-exited threads). */
static void complete_generation_if_all_arrived(void) {
    struct barrier *barrier = &emu.cluster_barrier;
    barrier->expected = emu.live;
    if (barrier->arrived == 0 || barrier->arrived < barrier->expected)
        return;
    barrier->arrived = 0;
    barrier->generation++;
    emu_clock_join(barrier->released, barrier->joined.clock); /* includes earlier ones */
    barrier->edition = emu_edition_new();
    for (int i = 0; i < emu.thread_count; i++) {
        struct thread *thread = &emu.threads[i];
        if (!waits(thread, barrier))
            continue;
        emu_acquire(thread, barrier->released, barrier->edition);
        emu_wake(thread);
    }
}

void emu_cluster_barrier_leave(void) {
    const struct thread *self = emu.self;
    struct barrier *barrier = &emu.cluster_barrier;
    if (self->cluster_arrived && self->cluster_generation == barrier->generation)
        barrier->arrived--;
    complete_generation_if_all_arrived();
}

/* arrive and wait are two instructions: accesses between them are not ordered. A thread that waits
 * must have arrived and continues when that generation is complete. */
static void arrive_cluster(site at) {
    struct thread *self = emu.self;
    struct barrier *barrier = &emu.cluster_barrier;
    emu.statistics.instructions++;
    if (self->cluster_arrived)
        emu_fatal(EMU_BARRIER, at, 0,
                  "%s arrives twice at the cluster's barrier without a wait {1}",
                  emu_thread_name(self));
    self->cluster_arrived = true;
    if (!barrier->joined.clock) {
        barrier->joined.clock = emu_clock_new();
        barrier->released = emu_clock_new();
    }
    barrier->arrived++;
    self->cluster_generation = barrier->generation;
    emu_release(self, &barrier->joined);
    complete_generation_if_all_arrived();
    emu_yield();
}

EMU_EXPORT void emu_cluster_arrive(void) {
    arrive_cluster(EMU_SITE);
}

EMU_EXPORT void emu_cluster_wait(void) {
    struct thread *self = emu.self;
    struct barrier *barrier = &emu.cluster_barrier;
    site at = EMU_SITE;
    emu.statistics.instructions++;
    if (!self->cluster_arrived)
        emu_fatal(EMU_BARRIER, at, 0,
                  "%s waits at the cluster's barrier without having arrived {1}",
                  emu_thread_name(self));
    self->cluster_arrived = false;
    if (barrier->generation == self->cluster_generation)
        emu_block(AT_BARRIER, "barrier.cluster.wait", barrier, at);
    else
        emu_acquire(self, barrier->released, barrier->edition);
}

/* ---- addresses of the cluster ---------------------------------------------------------------- */

EMU_EXPORT unsigned emu_cluster_rank(void) {
    return (unsigned)emu.self->cta->rank;
}

/* The same offset in another block's shared memory, as a shared::cluster address. */
EMU_EXPORT unsigned emu_cluster_address(unsigned address, unsigned rank) {
    site at = EMU_SITE;
    if (rank >= (unsigned)emu.ctas)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: block %u of a cluster of %d {1}",
                  emu_thread_name(emu.self), rank, emu.ctas);
    return (address & ((1u << CLUSTER_SHIFT) - 1)) | (rank + 1) << CLUSTER_SHIFT;
}

/* ---- part of a warp -------------------------------------------------------------------------- */

static void execute_syncwarp(struct warp *warp, u32 mask, void **arguments, site at) {
    (void)arguments;
    (void)at;
    emu_clocks_meet(warp, mask);
}

EMU_EXPORT void emu_syncwarp(unsigned mask) {
    emu_collective("__syncwarp", mask, execute_syncwarp, NULL, EMU_SITE);
}
