/* What wgmma and setmaxnreg leave to whoever runs a launch. */
#ifndef SMELT_EMU_WGMMA_H
#define SMELT_EMU_WGMMA_H

#include "emu/machine/machine.h"

void emu_products_begin(void); /* of a gang */
/* A thread leaves the kernel: no product of its warp may be under way. */
void emu_products_leave(struct thread *thread);
/* The gang is over: all warps of a warpgroup issued the same number, and set the same registers. */
void emu_products_compare(void);
void emu_products_free(struct warp *warp);

#endif
