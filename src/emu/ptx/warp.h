/* templates/ptx/warp.cuh, emulated. */

/* kind 0: or */
unsigned emu_reduce_sync(int kind, unsigned mask, unsigned value);

#define warp_reduce_or(value) emu_reduce_sync(0, 0xffffffffu, value)
