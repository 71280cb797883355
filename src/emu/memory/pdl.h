/*
 * Programmatic dependent launch (PDL): a kernel launched with it (programmatic stream serialization)
 * may start when every block of the previous kernel has executed launch_dependents or ended. The
 * emulator runs launches one after another all the same. It tracks which launches such a kernel may
 * take for complete, and global.c asks about the launch that wrote what an access reads. Launches on
 * other streams are complete when the host has waited for them.
 *
 * A mask is a set of complete launches: bit k is the k-th launch before the one that the mask
 * belongs to. All launches older than a mask's are complete.
 *     at a launch's start   without PDL: those complete when the previous launch has ended; with
 *                           PDL: those that the previous launch knew when its blocks let it start
 *     after its wait        those complete when the previous launch has ended
 *     when it has ended     itself, those at its start and, if one of its threads waited, those
 *                           after its wait
 *
 * L1 is not coherent with other SMs' writes. It is invalidated before a launch without PDL, and what
 * griddepcontrol.wait waited for is visible to the whole grid (PTX ISA, "griddepcontrol"). A kernel
 * launched with PDL that does not wait has no such guarantee: what was written since the start of
 * the last launch without PDL must be read past L1, even if it is complete.
 */
#pragma once

#include "emu/machine/machine.h"

/* Around a launch on a stream, and when one of its blocks has ended. */
void emu_pdl_begin(bool pdl, const void *stream);
void emu_pdl_block_ends(const struct cta *cta);
void emu_pdl_end(void);
/* Whether the earlier launch that ran the gang is complete, as far as the thread knows. */
bool emu_pdl_is_complete(u32 gang, const struct thread *thread);
/* Whether the thread then also sees that launch's writes when it reads through L1. */
bool emu_pdl_is_fresh(u32 gang, const struct thread *thread, bool read_only);
/* An operation other than a launch, on a stream: the next launch there is without PDL, whatever its
 * attributes. */
void emu_pdl_interrupt(const void *stream);
/* Whether the launch that ran the gang is complete when the last one on the stream has ended. */
bool emu_pdl_has_ended(u32 gang, const void *stream);
/* The host waits for the stream. */
void emu_pdl_synchronize(const void *stream);
/* Adds an imaginary launch to the stream, which lets the next one begin at once; returns its gang. */
u32 emu_pdl_produce(const void *stream);
/* Whether all launches are complete once the last one is; reports it if not. */
bool emu_pdl_check_ended(void);

/* The running thread executes griddepcontrol.launch_dependents. */
void emu_pdl_let_begin(void);
/* It executes griddepcontrol.wait: what follows in it, and in threads that synchronize with it, is
 * ordered after the previous kernels. */
void emu_pdl_wait(void);
