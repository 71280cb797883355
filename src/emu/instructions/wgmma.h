/* wgmma and setmaxnreg at the beginning and end of gangs and threads. */
#pragma once

#include "emu/machine/machine.h"

void emu_products_begin(void); /* of a gang */
/* A thread exits: reports products of its warp that are under way. */
void emu_products_leave(struct thread *thread);
/* The gang's end: compares the warps of each warpgroup. */
void emu_products_compare(void);
void emu_products_free(struct warp *warp);
