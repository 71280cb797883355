/*
 * cp.async: copies of up to 16 bytes into shared memory. The issuing thread waits for them by
 * groups or has them arrive at an mbarrier (PTX ISA, "Data Movement and Conversion Instructions:
 * Asynchronous copy"). They use the generic proxy.
 */
#include "emu/instructions/copy.h"

#include <stdlib.h>
#include <string.h>

#include "emu/instructions/mbarrier.h"
#include "emu/machine/pool.h"
#include "emu/machine/report.h"
#include "emu/machine/schedule.h"
#include "emu/memory/clock.h"
#include "emu/memory/global.h"
#include "emu/memory/shared.h"

/* The number of the next copy. */
static u32 newest(const struct thread *thread) {
    return thread->copies_end;
}

static struct copy *copy_at(struct thread *thread, u32 number) {
    return &thread->copies[number - thread->copies_base];
}

/* Reserves a slot for one more copy; first drops complete ones from the front. */
static bool reserve_slot(struct thread *thread) {
    if (thread->copies_end - thread->copies_base < thread->copies_capacity)
        return true;
    u32 dropped = thread->copies_begin - thread->copies_base;
    if (dropped > 0) {
        memmove(thread->copies, thread->copies + dropped,
                (thread->copies_end - thread->copies_begin) * sizeof *thread->copies);
        thread->copies_base = thread->copies_begin;
        return true;
    }
    u32 more = thread->copies_capacity ? 2 * thread->copies_capacity : 128;
    struct copy *larger = realloc(thread->copies, more * sizeof *larger);
    if (!larger)
        return false;
    thread->copies = larger;
    thread->copies_capacity = more;
    return true;
}

static void take_effect(struct copy *copy) {
    if (copy->done)
        return;
    u8 *to = copy->cta->arena + copy->offset;
    if (copy->given > 0) /* else the source may be any address */
        memcpy(to, copy->source, copy->given);
    memset(to + copy->given, 0, (size_t)(copy->bytes - copy->given));
    copy->done = 1;
}

/* Completes all copies before number `end`. */
static void complete(struct thread *thread, u32 end) {
    u16 slot = emu_copy_slot(thread);
    for (; thread->copies_begin < end; thread->copies_begin++) {
        struct copy *copy = copy_at(thread, thread->copies_begin);
        take_effect(copy);
        struct epoch done = {slot, thread->copies_begin + 1};
        emu_shared_write_end(copy->cta, copy->offset, copy->bytes, done, done);
    }
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EMU_EXPORT void emu_cp_async(unsigned address, const void *source, int bytes, int given) {
    site at = EMU_SITE;
    struct thread *self = emu.self;
    struct shared_location location =
        emu_own_location(address, (u32)bytes, (u32)bytes, "cp.async", at);
    emu.statistics.instructions++;
    if (given < 0 || given > bytes)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: cp.async of %d bytes with a source of %d {1}",
                  emu_thread_name(self), bytes, given);
    if ((uintptr_t)source % (uintptr_t)bytes != 0)
        emu_fatal(EMU_ALIGNMENT, at, 0,
                  "%s: cp.async from an address that is %u past a multiple of %d {1}",
                  emu_thread_name(self), (u32)((uintptr_t)source % (uintptr_t)bytes), bytes);
    if (given > 0)
        emu_global_access(source, (size_t)given, EMU_READ, at);
    if (!reserve_slot(self))
        emu_fatal(EMU_ILLEGAL, at, 0, "out of memory");
    u32 number = newest(self);
    emu_shared_write_begin(location.cta, location.offset, (u32)bytes, false,
                           (struct epoch){emu_copy_slot(self), number + 1}, at);
    self->copies_end++;
    struct copy *copy = copy_at(self, number);
    *copy = (struct copy){location.cta, location.offset, (u8)bytes, (u8)given, 0, source, at};
    if (emu_takes_effect_now())
        take_effect(copy);
    emu_yield();
}

EMU_EXPORT void emu_cp_async_commit(void) {
    struct thread *self = emu.self;
    if (self->group_count == self->group_capacity) {
        int more = self->group_capacity ? 2 * self->group_capacity : 8;
        u32 *larger = realloc(self->groups, (size_t)more * sizeof *larger);
        if (!larger)
            emu_fatal(EMU_ILLEGAL, EMU_SITE, 0, "out of memory");
        self->groups = larger;
        self->group_capacity = more;
    }
    self->groups[self->group_count++] = newest(self);
    emu_yield();
}

/* Completes the copies before number `end`, ordered before the thread's next action. */
static void wait_for(struct thread *self, u32 end) {
    complete(self, end);
    u32 *known = &self->clock[emu_copy_slot(self)];
    if (*known >= end)
        return;
    emu_clock_use(emu_copy_slot(self));
    *known = end;
}

EMU_EXPORT void emu_cp_async_wait(int pending) {
    struct thread *self = emu.self;
    emu.statistics.instructions++;
    int done = self->group_count - pending;
    if (done > 0) {
        wait_for(self, self->groups[done - 1]);
        memmove(self->groups, self->groups + done,
                (size_t)(self->group_count - done) * sizeof *self->groups);
        self->group_count -= done;
    }
    emu_yield();
}

EMU_EXPORT void emu_cp_async_wait_all(void) {
    struct thread *self = emu.self;
    wait_for(self, newest(self));
    self->group_count = 0;
    emu_yield();
}

/* ---- arrival at an mbarrier once the thread's copies so far are complete --------------------- */

struct arrival {
    struct deferred deferred;
    struct mbarrier *barrier;
    u32 end; /* number after the last copy it waits for */
};

/* Releases only the copies: a plain store before it needs its own arrival. */
static void arrival_effect(struct deferred *deferred) {
    struct arrival *arrival = (struct arrival *)deferred;
    struct thread *thread = deferred->thread;
    complete(thread, arrival->end);
    struct mbarrier *barrier = arrival->barrier;
    site at = deferred->at;
    emu_release_word(&barrier->arriving, emu_copy_slot(thread), arrival->end);
    emu_pool_free(arrival);
    emu_mbarrier_arrived(barrier, 1, at);
}

EMU_EXPORT void emu_cp_async_arrive(unsigned address) {
    site at = EMU_SITE;
    struct mbarrier *barrier = emu_mbarrier_at(address, true, "cp.async.mbarrier.arrive", at);
    struct arrival *arrival = emu_pool_alloc(sizeof *arrival);
    arrival->deferred = (struct deferred){arrival_effect, NULL, emu.self, at};
    arrival->barrier = barrier;
    arrival->end = emu.self->copies_arriving = newest(emu.self);
    if (emu_takes_effect_now())
        arrival_effect(&arrival->deferred);
    else
        emu_defer(&arrival->deferred);
    emu_yield();
}

/* ---- leaving --------------------------------------------------------------------------------- */

void emu_copies_leave(struct thread *thread) {
    if (thread->copies_begin < thread->copies_end && thread->copies_end > thread->copies_arriving)
        emu_report(EMU_LEFTOVER, copy_at(thread, thread->copies_end - 1)->at, 0,
                   "%s exits with cp.async copies that it did not wait for, the last issued {1}",
                   emu_thread_name(thread));
}

void emu_copies_free(struct thread *thread) {
    free(thread->copies);
    free(thread->groups);
}
