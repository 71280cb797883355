/* Collective instructions of a warp. */
#ifndef SMELT_EMU_MEETING_H
#define SMELT_EMU_MEETING_H

#include "emu/machine/machine.h"

/* The running thread comes to a collective instruction of its warp: when all lanes of `mask` have
 * come, the last carries it out for all. */
void emu_meet(const char *name, u32 mask,
              void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
              void *arguments, site at);
/* For .aligned instructions: all 32 lanes of a whole warp, at one place of the text. */
void emu_meet_whole(const char *name,
                    void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
                    void *arguments, site at);
/* The same for all lanes the warp has, with nothing to carry out: before a barrier. */
void emu_converge(const char *name, site at);

#endif
