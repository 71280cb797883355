/* templates/ptx/stream.cuh, emulated. */
#ifndef EMU_PTX_STREAM
#define EMU_PTX_STREAM

void emu_load_global(unsigned *values, const void *from, int count, int read_only);

#define load_streaming_16(values, from) emu_load_global(values, from, 4, 1)

#endif
