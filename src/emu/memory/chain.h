/*
 * Launches that may overlap. A kernel launched early (programmatic stream serialisation) may begin
 * when every block of the kernel before it has said launch_dependents or ended. The emulator runs
 * launches one after another all the same, but remembers which of them such a kernel may take for
 * complete, and global.c asks it about what an earlier one wrote. Launches on other streams are
 * complete when the host has waited for them.
 *
 * What is complete is a set of launches, bit k of a mask being the k-th before the one it belongs
 * to; older than those of a mask all are.
 *     at a launch's start   plain: what is complete when the one before it has ended; early: what
 *                           that one knew when its blocks let it begin
 *     after its wait        what is complete when the one before it has ended
 *     when it has ended     itself, what was at its start, and, if a thread of it waited, that
 *
 * L1 follows no other SM's writes. It is emptied before a launch that is not early, and what a wait
 * waited for is visible to the whole grid (PTX ISA, "griddepcontrol"). To an early launch that does
 * not wait nobody promised that: what was written since the last launch that was not early began is
 * to be read past L1, though it be complete.
 */
#ifndef SMELT_EMU_CHAIN_H
#define SMELT_EMU_CHAIN_H

#include "emu/machine/machine.h"

/* Around a launch on a stream, and when one of its blocks has ended. */
void emu_chain_begin(bool early, const void *stream);
void emu_chain_block_ends(const struct cta *cta);
void emu_chain_end(void);
/* Whether the earlier launch that the gang was of is complete, as far as the thread knows. */
bool emu_chain_is_complete(u32 gang, const struct thread *thread);
/* Whether, that being so, the thread reads through L1 what it wrote. */
bool emu_chain_is_fresh(u32 gang, const struct thread *thread, bool read_only);
/* Something that is no launch, on a stream: the next launch there is not early, whatever it says.
 */
void emu_chain_interrupt(const void *stream);
/* Whether the launch that the gang was of is complete when the last one on the stream has ended. */
bool emu_chain_has_ended(u32 gang, const void *stream);
/* The host waits for the stream. */
void emu_chain_synchronize(const void *stream);
/* Adds an imaginary launch to the stream, which lets the next one begin at once; returns its gang. */
u32 emu_chain_produce(const void *stream);
/* Whether all launches are complete when the last one is: reports it when not. */
bool emu_chain_check_ended(void);

/* The running thread lets the next launch begin (griddepcontrol.launch_dependents). */
void emu_chain_let_begin(void);
/* What follows in it, and in those that it tells so, is ordered after the kernels before. */
void emu_chain_wait(void);

#endif
