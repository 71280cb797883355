/* templates/ptx/redux.cuh, emulated. */

/* kind 2: sum, 5: unsigned minimum, 6: unsigned maximum */
unsigned emu_reduce_sync(int kind, unsigned mask, unsigned value);

#define warp_reduce_add(value) emu_reduce_sync(2, 0xffffffffu, value)
#define warp_reduce_min(value) emu_reduce_sync(5, 0xffffffffu, value)
#define warp_reduce_max(value) emu_reduce_sync(6, 0xffffffffu, value)
