/* See gang.h. */
#include "emu/launch/gang.h"

#include <stdlib.h>
#include <string.h>

#include "emu/instructions/barrier.h"
#include "emu/instructions/bulk.h"
#include "emu/instructions/copy.h"
#include "emu/instructions/wgmma.h"
#include "emu/launch/deadlock.h"
#include "emu/machine/pool.h"
#include "emu/machine/report.h"
#include "emu/machine/schedule.h"
#include "emu/machine/stack.h"
#include "emu/memory/clock.h"
#include "emu/memory/cluster.h"
#include "emu/memory/pdl.h"
#include "emu/memory/registers.h"
#include "emu/memory/shared.h"

/* ---- beginning ------------------------------------------------------------------------------- */

/* The body of every thread. */
static void thread_body(void) {
    emu.kernel->entry(emu.parameters);
    emu_copies_leave(emu.self);
    emu_bulk_leave(emu.self);
    emu_products_leave(emu.self);
    emu_gone();
    emu_cluster_leave();
    emu_cluster_barrier_leave();
}

static void make_thread(struct thread *thread, int number, u64 edition) {
    struct cta *cta = &emu.cta[number / emu.cta_threads];
    int index = number % emu.cta_threads;
    int warps_of_block = (emu.cta_threads + WARP - 1) / WARP;
    thread->cta = cta;
    thread->number = number;
    thread->index = index;
    thread->lane = index % WARP;
    thread->x = (unsigned)index % emu.block[0];
    thread->y = (unsigned)index / emu.block[0] % emu.block[1];
    thread->z = (unsigned)index / (emu.block[0] * emu.block[1]);
    thread->warp = &emu.warps[cta->rank * warps_of_block + index / WARP];
    thread->warp->cta = cta;
    thread->warp->index = index / WARP;
    thread->warp->threads[thread->lane] = thread;
    thread->warp->present |= 1u << thread->lane;
    emu_clock_begin(thread, edition);
    thread->fences = ++emu.fences;
    thread->touched = emu_stack_touched(thread);
    emu_schedule_thread(thread, thread_body);
}

/* Sets up the gang whose first block is (x, y, z). */
static void make_gang(unsigned x, unsigned y, unsigned z) {
    int warps_of_block = (emu.cta_threads + WARP - 1) / WARP;
    emu.thread_count = emu.ctas * emu.cta_threads;
    emu.warp_count = emu.ctas * warps_of_block;
    emu.slots = 2 * emu.thread_count + emu.warp_count + emu.ctas * MAX_MBARRIERS + 1;
    emu.threads = calloc((size_t)emu.thread_count, sizeof *emu.threads);
    emu.warps = calloc((size_t)emu.warp_count, sizeof *emu.warps);
    emu.live = emu.thread_count;
    emu.gang++;
    memset(&emu.cluster_barrier, 0, sizeof emu.cluster_barrier);
    for (int i = 0; i < emu.ctas; i++) {
        struct cta *cta = &emu.cta[i];
        struct cta fresh = {
            .rank = i, .arena = cta->arena, .cells = cta->cells, .live = emu.cta_threads};
        *cta = fresh;
        unsigned rank = (unsigned)i;
        cta->x = x + rank % emu.cluster[0];
        cta->y = y + rank / emu.cluster[0] % emu.cluster[1];
        cta->z = z + rank / (emu.cluster[0] * emu.cluster[1]);
    }
    for (int i = 0; i < emu.warp_count; i++)
        emu.warps[i].number = i;
    emu_clocks_begin();
    const u64 edition = emu_edition_new();
    for (int i = 0; i < emu.thread_count; i++)
        make_thread(&emu.threads[i], i, edition);
    emu_schedule_begin_gang();
    emu_shadow_begin();
    emu_products_begin();
}

/* ---- end ------------------------------------------------------------------------------------- */

/* Reports asynchronous operations that are under way when the last thread has exited. */
static void check_leftovers(void) {
    int late = emu_deferred_count();
    emu_products_compare();
    emu_deferred_run_all();
    if (late > 0 && !emu.ended)
        emu_report(
            EMU_LEFTOVER, emu_deferred_last(), 0,
            "the block ended with %d asynchronous operation%s under way, the last issued {1}", late,
            late == 1 ? "" : "s");
}

static void release_thread(struct thread *thread) {
    emu_copies_free(thread);
    emu_registers_free(thread);
    emu_clock_free(thread->clock);
}

static void release_gang(void) {
    emu_pool_free_all();
    for (int i = 0; i < emu.thread_count; i++)
        release_thread(&emu.threads[i]);
    for (int i = 0; i < emu.warp_count; i++)
        emu_products_free(&emu.warps[i]);
    for (int i = 0; i < emu.ctas; i++) {
        struct cta *cta = &emu.cta[i];
        for (int b = 0; b < NAMED_BARRIERS; b++)
            emu_clock_free(cta->barriers[b].joined.clock);
        for (int b = 0; b < cta->mbarrier_count; b++) {
            emu_clock_free(cta->mbarriers[b].arriving.clock);
            emu_clock_free(cta->mbarriers[b].released);
        }
    }
    emu_clock_free(emu.cluster_barrier.joined.clock);
    emu_clock_free(emu.cluster_barrier.released);
    free(emu.threads);
    free(emu.warps);
    emu.threads = NULL;
    emu.warps = NULL;
}

/* ---- running --------------------------------------------------------------------------------- */

static void run(void) {
    switch (emu_run_threads()) {
    case EMU_STUCK:
        emu_report_deadlock();
        emu.ended = true;
        break;
    case EMU_OUT_OF_TIME:
        emu_report(EMU_TIME, 0, 0, "the launch took more than %g s of processor time",
                   emu.settings.seconds);
        emu.ended = true;
        break;
    case EMU_ALL_GONE:
        break;
    }
    if (!emu.ended)
        check_leftovers();
}

void emu_run_gang(unsigned x, unsigned y, unsigned z) {
    make_gang(x, y, z);
    run();
    for (int i = 0; i < emu.ctas; i++)
        emu_pdl_block_ends(&emu.cta[i]);
    release_gang();
    emu.statistics.blocks += (u64)emu.ctas;
}
