/* See pool.h. */
#include "emu/machine/pool.h"

#include <stdlib.h>

#include "emu/machine/report.h"

struct taken {
    struct taken *previous, *next;
    max_align_t memory[];
};

static struct taken *all_taken;

void *emu_pool_alloc(size_t bytes) {
    struct taken *taken = calloc(1, sizeof *taken + bytes);
    if (!taken)
        emu_fatal(EMU_ILLEGAL, 0, 0, "out of memory");
    taken->next = all_taken;
    if (all_taken)
        all_taken->previous = taken;
    all_taken = taken;
    return taken->memory;
}

void emu_pool_free(void *memory) {
    if (!memory)
        return;
    struct taken *taken = (struct taken *)(void *)((u8 *)memory - offsetof(struct taken, memory));
    if (taken->next)
        taken->next->previous = taken->previous;
    if (taken->previous)
        taken->previous->next = taken->next;
    else
        all_taken = taken->next;
    free(taken);
}

void emu_pool_free_all(void) {
    while (all_taken)
        emu_pool_free(all_taken->memory);
}
