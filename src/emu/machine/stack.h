/* The threads' stacks, which hold what a GPU keeps in registers; kept between launches. */
#pragma once

#include "emu/machine/machine.h"

/* Makes stacks for at least `threads` threads; false: out of memory. */
bool emu_stacks_make(int threads);
/* A thread's stack and the size of each. The lowest page is a guard that an overflow hits. */
const u8 *emu_stack_low(const struct thread *thread);
size_t emu_stack_bytes(void);
/* The shadow: per 4 bytes, the number of the last fence before the last write. */
u32 *emu_stack_touched(const struct thread *thread);
/* Prepares the thread's fibre to run body() on its stack. */
void emu_stack_prepare(struct thread *thread, void (*body)(void));
