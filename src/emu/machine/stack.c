/* See stack.h. */
#include "emu/machine/stack.h"

#include <string.h>
#include <sys/mman.h>

/* A thread's stack, and a shadow with the time of each word's last write. Pages exist
 * once touched. */
enum { STACK_BYTES = 256 * 1024, PAGE = 4096 };
/* The part of a new stack that the kernel's own frame may use is filled with this byte: a register
 * read before it is written is a large number as int, float and bf16, not 0. */
enum { UNWRITTEN = 0x7f, FILLED_BYTES = 20 * 1024 };

static u8 *stacks;
static u32 *touched;
static int stacks_for; /* threads */

bool emu_stacks_make(int threads) {
    size_t bytes = (size_t)STACK_BYTES * (size_t)threads;
    if (threads <= stacks_for)
        return true;
    if (stacks_for > 0) {
        munmap(stacks, (size_t)STACK_BYTES * (size_t)stacks_for);
        munmap(touched, (size_t)STACK_BYTES * (size_t)stacks_for);
        stacks_for = 0;
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    void *shadow = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED || shadow == MAP_FAILED) {
        if (memory != MAP_FAILED)
            munmap(memory, bytes);
        if (shadow != MAP_FAILED)
            munmap(shadow, bytes);
        return false;
    }
    stacks = memory;
    touched = shadow;
    stacks_for = threads;
    fibre_forget(stacks, bytes);
    for (int i = 0; i < threads; i++)
        mprotect(stacks + (size_t)STACK_BYTES * (size_t)i, PAGE, PROT_NONE);
    for (int i = 1; i <= threads; i++)
        memset(stacks + (size_t)STACK_BYTES * (size_t)i - FILLED_BYTES, UNWRITTEN, FILLED_BYTES);
    return true;
}

const u8 *emu_stack_low(const struct thread *thread) {
    return stacks + (size_t)STACK_BYTES * (size_t)thread->number;
}

size_t emu_stack_bytes(void) {
    return STACK_BYTES;
}

u32 *emu_stack_touched(const struct thread *thread) {
    return touched + (size_t)(STACK_BYTES / 4) * (size_t)thread->number;
}

/* Stacks begin at different offsets in a page, so that they use different cache sets. */
static size_t unused_bytes(const struct thread *thread) {
    enum { LINE = 64, LINES = PAGE / LINE, APART = 7 };
    return (size_t)(thread->number * APART % LINES) * LINE;
}

void emu_stack_prepare(struct thread *thread, void (*body)(void)) {
    fibre_prepare(&thread->fibre, stacks + (size_t)STACK_BYTES * (size_t)thread->number + PAGE,
                  STACK_BYTES - PAGE - unused_bytes(thread), body);
}
