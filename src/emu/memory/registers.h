/* A thread's registers, which are on its stack, while a wgmma uses them. */
#pragma once

#include "emu/machine/machine.h"

/* A thread reads or writes its stack. */
void emu_registers_touched(struct thread *thread, const u8 *low, u32 bytes, bool write, site at);
/* Registers that a wrapped instruction reads or writes for a thread. */
void emu_registers_used(struct thread *thread, const void *registers, size_t bytes, bool write,
                        site at);

/* Checks registers that a product is about to use, as its result or as A: not touched since the
 * last fence and not used by another product under way. */
void emu_registers_check(struct thread *thread, const void *registers, u32 bytes, bool result,
                         site at);
/* Marks them as used by the warp's product `number`; _release ends that. */
void emu_registers_use(struct thread *thread, const void *registers, u32 bytes, u32 number,
                       bool result, site at);
void emu_registers_release(struct thread *thread, u32 number);
/* Called at the gang's end. */
void emu_registers_free(struct thread *thread);
