/* Vector clocks. See clock.h. */
#include "emu/memory/clock.h"

#include <stdlib.h>
#include <string.h>

/* Twice the slots: `seen`, then `fenced`. */
static size_t clock_words(void) {
    return 2 * (size_t)emu.slots;
}

u32 *emu_clock_new(void) {
    return calloc(clock_words(), sizeof(u32));
}

void emu_clock_clear(u32 *clock) {
    memset(clock, 0, clock_words() * sizeof *clock);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx2", "default"), optimize("O3")))
#endif
static void
join_words(u32 *restrict clock, const u32 *restrict other, size_t words) {
    for (size_t i = 0; i < words; i++)
        clock[i] = clock[i] > other[i] ? clock[i] : other[i];
}

void emu_clock_join(u32 *clock, const u32 *other) {
    join_words(clock, other, clock_words());
}

void emu_clock_fence(u32 *clock) {
    join_words(clock + emu.slots, clock, (size_t)emu.slots);
}

void emu_release(u32 *clock) {
    struct thread *self = emu.self;
    emu_clock_join(clock, self->clock);
    self->clock[self->number]++;
}

void emu_acquire(const u32 *clock) {
    emu_clock_join(emu.self->clock, clock);
}
