/* templates/ptx/once.cuh, emulated. */

void emu_load_global(unsigned *values, const void *from, int count, int read_only);

#define load_once_16(values, from) emu_load_global(values, from, 4, 0)
#define load_once_8(values, from) emu_load_global(values, from, 2, 0)
