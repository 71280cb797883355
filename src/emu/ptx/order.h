/* templates/ptx/order.cuh, emulated. */

unsigned emu_push_greater(unsigned mask, float threshold, unsigned x);

#define push_greater(mask, threshold, x) emu_push_greater(mask, threshold, x)
