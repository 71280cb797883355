/* Collective instructions of a warp. */
#pragma once

#include "emu/machine/machine.h"

/* The running thread arrives at a collective instruction of its warp. The last lane of `mask` to
 * arrive executes it for all. */
void emu_collective(const char *name, u32 mask,
                    void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
                    void *arguments, site at);
/* For .aligned instructions: all 32 lanes, at one location in the source. */
void emu_collective_whole(const char *name,
                          void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
                          void *arguments, site at);
/* The same for all lanes of the warp, with nothing to execute: before a barrier. */
void emu_converge(const char *name, site at);
