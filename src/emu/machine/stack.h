/* The threads' stacks, which hold what a GPU has in registers; kept between launches. */
#ifndef SMELT_EMU_STACK_H
#define SMELT_EMU_STACK_H

#include "emu/machine/machine.h"

/* Stacks of at least so many threads; false: there is no memory. */
bool emu_stacks_make(int threads);
/* A thread's stack, and how many bytes one has. The lowest page is not to be touched: a stack that
 * overflows meets it. */
const u8 *emu_stack_low(const struct thread *thread);
size_t emu_stack_bytes(void);
/* Beside it, of each 4 bytes, the number of the fence that they were last touched after. */
u32 *emu_stack_touched(const struct thread *thread);
/* Has the thread's fibre begin there, in body(). */
void emu_stack_prepare(struct thread *thread, void (*body)(void));

#endif
