/* templates/ptx/once.cuh, emulated. */
#ifndef EMU_PTX_ONCE
#define EMU_PTX_ONCE

void emu_load_global(unsigned *values, const void *from, int count, int read_only);

#define load_once_16(values, from) emu_load_global(values, from, 4, 0)

#endif
