/* A thread's registers, as memory of its stack, where a wgmma that is under way uses them. */
#ifndef SMELT_EMU_REGISTERS_H
#define SMELT_EMU_REGISTERS_H

#include "emu/machine/machine.h"

/* A thread reads or writes memory of its stack. */
void emu_registers_touched(struct thread *thread, const u8 *low, u32 bytes, bool write, site at);
/* Registers that an instruction with a wrapper of its own reads or writes for a thread. */
void emu_registers_used(struct thread *thread, const void *registers, size_t bytes, bool write,
                        site at);

/* Those that a product is about to use, as its result or as A: not touched since the last fence,
 * and not in another use that is under way. */
void emu_registers_check(struct thread *thread, const void *registers, u32 bytes, bool result,
                         site at);
/* They are in use by the warp's product of this number from here on; until it is complete. */
void emu_registers_use(struct thread *thread, const void *registers, u32 bytes, u32 number,
                       bool result, site at);
void emu_registers_release(struct thread *thread, u32 number);
/* The gang is over. */
void emu_registers_free(struct thread *thread);

#endif
