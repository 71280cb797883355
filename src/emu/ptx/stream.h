/* templates/ptx/stream.cuh, emulated. */

void emu_load_global(unsigned *values, const void *from, int count, int read_only);

#define load_streaming_16(values, from) emu_load_global(values, from, 4, 1)
