/* See registers.h. */
#include "emu/memory/registers.h"

#include <stdlib.h>

#include "emu/machine/report.h"
#include "emu/machine/stack.h"

void emu_registers_touched(struct thread *thread, const u8 *low, u32 bytes, bool write, site at) {
    if (!thread->fence_executed) /* before the first fence nothing can be wrong */
        return;
    size_t first = (size_t)(low - emu_stack_low(thread)) / 4;
    for (size_t i = 0; i < (bytes + 3) / 4; i++)
        thread->touched[first + i] = thread->fences;
    for (int i = 0; i < thread->range_count; i++) {
        const struct range *range = &thread->ranges[i];
        if (low >= range->high || low + bytes <= range->low || (!write && !range->result))
            continue;
        emu_report(EMU_REGISTERS, at, range->at,
                   "%s: %s of %s of a wgmma under way {1}, issued {2}: no wgmma.wait covers it",
                   emu_thread_name(thread), write ? "a write" : "a read",
                   range->result ? "the accumulators" : "A's registers");
        return;
    }
}

void emu_registers_used(struct thread *thread, const void *registers, size_t bytes, bool write,
                        site at) {
    const u8 *low = registers;
    if ((size_t)(low - emu_stack_low(thread)) < emu_stack_bytes())
        emu_registers_touched(thread, low, (u32)bytes, write, at);
}

void emu_registers_check(struct thread *thread, const void *registers, u32 bytes, bool result,
                         site at) {
    const u8 *low = registers;
    size_t first = (size_t)(low - emu_stack_low(thread)) / 4;
    if ((size_t)(low - emu_stack_low(thread)) >= emu_stack_bytes())
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: a wgmma operand is not in registers {1}",
                  emu_thread_name(thread));
    for (u32 i = 0; i < bytes / 4; i++)
        if (thread->touched[first + i] == thread->fences) {
            emu_report(EMU_REGISTERS, at, 0,
                       "%s: wgmma uses registers {1} that were touched after the last wgmma.fence",
                       emu_thread_name(thread));
            return;
        }
    for (int i = 0; i < thread->range_count; i++) {
        const struct range *range = &thread->ranges[i];
        if (low >= range->high || low + bytes <= range->low)
            continue;
        bool same_accumulators =
            result && range->result && low == range->low && low + bytes == range->high;
        if (same_accumulators || (!result && !range->result))
            continue;
        emu_report(EMU_REGISTERS, at, range->at,
                   "%s: wgmma uses registers {1} that overlap those of another wgmma under way, of "
                   "other registers or shape {2}",
                   emu_thread_name(thread));
        return;
    }
}

void emu_registers_use(struct thread *thread, const void *registers, u32 bytes, u32 number,
                       bool result, site at) {
    if (thread->range_count == thread->range_capacity) {
        int more = thread->range_capacity ? 2 * thread->range_capacity : 64;
        struct range *larger = realloc(thread->ranges, (size_t)more * sizeof *larger);
        if (!larger)
            emu_fatal(EMU_ILLEGAL, at, 0, "out of memory");
        thread->ranges = larger;
        thread->range_capacity = more;
    }
    thread->ranges[thread->range_count++] =
        (struct range){registers, (const u8 *)registers + bytes, number, result, at};
}

void emu_registers_release(struct thread *thread, u32 number) {
    int kept = 0;
    for (int i = 0; i < thread->range_count; i++)
        if (thread->ranges[i].product != number)
            thread->ranges[kept++] = thread->ranges[i];
    thread->range_count = kept;
}

void emu_registers_free(struct thread *thread) {
    free(thread->ranges);
}
