/* See deadlock.h. */
#include "emu/launch/deadlock.h"

#include <stdio.h>

#include "emu/machine/report.h"
#include "emu/memory/shared.h"

static void describe_wait(const struct thread *thread, char *text, size_t size) {
    if (thread->wait == AT_COLLECTIVE) {
        const struct collective *collective = thread->wait_object;
        u32 gone = 0;
        for (int lane = 0; lane < WARP; lane++)
            if (thread->warp->threads[lane] && thread->warp->threads[lane]->wait == GONE)
                gone |= 1u << lane;
        snprintf(text, size, "lanes 0x%08x of 0x%08x have arrived%s", collective->arrived,
                 collective->mask, gone & collective->mask ? "; others have exited" : "");
    } else if (thread->wait == AT_BARRIER) {
        const struct barrier *barrier = thread->wait_object;
        snprintf(text, size, "%d of %d threads have arrived", barrier->arrived, barrier->expected);
    } else if (thread->wait == AT_MBARRIER) {
        const struct mbarrier *barrier = thread->wait_object;
        snprintf(text, size,
                 "%s: waits for the end of a phase of parity %u; phase %u is under way, missing "
                 "%d of %d arrivals and %lld bytes",
                 emu_shared_name(thread->cta, barrier->offset), thread->wait_parity, barrier->phase,
                 barrier->pending, barrier->expected, (long long)barrier->bytes);
    } else {
        snprintf(text, size, "waits");
    }
}

void emu_report_deadlock(void) {
    char text[3072] = "", what[320];
    size_t used = 0;
    site first = 0, second = 0;
    int groups = 0;
    for (int i = 0; i < emu.thread_count; i++) {
        const struct thread *thread = &emu.threads[i];
        if (thread->wait == GONE || thread->wait == RUNS)
            continue;
        int same = 0, earlier = 0;
        for (int j = 0; j < emu.thread_count; j++) {
            const struct thread *other = &emu.threads[j];
            if (other->wait != thread->wait || other->wait_site != thread->wait_site ||
                other->wait_parity != thread->wait_parity ||
                (thread->wait != AT_COLLECTIVE && other->wait_object != thread->wait_object))
                continue;
            same++;
            earlier += j < i;
        }
        if (earlier)
            continue;
        describe_wait(thread, what, sizeof what);
        int length =
            snprintf(text + used, sizeof text - used,
                     "\n    %d thread%s from %s on, at %s {@%u}: %s", same, same == 1 ? "" : "s",
                     emu_thread_name(thread), thread->wait_name, thread->wait_site, what);
        if (length < 0 || (size_t)length >= sizeof text - used) {
            text[used] = '\0'; /* drop the truncated entry */
            break;
        }
        used += (size_t)length;
        second = first ? second ? second : thread->wait_site : 0;
        first = first ? first : thread->wait_site;
        if (++groups == 12)
            break;
    }
    emu_report(EMU_DEADLOCK, first, second, "no thread can run; %d of %d threads have exited%s",
               emu.thread_count - emu.live, emu.thread_count, text);
}
