/* templates/ptx/warp.cuh, emulated. */
#ifndef EMU_PTX_WARP
#define EMU_PTX_WARP

/* kind 0: or */
unsigned emu_reduce_sync(int kind, unsigned mask, unsigned value);

#define warp_reduce_or(value) emu_reduce_sync(0, 0xffffffffu, value)

#endif
