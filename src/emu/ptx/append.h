/* templates/ptx/append.cuh, emulated. */

unsigned emu_append_shared(unsigned address, unsigned wanted, unsigned low, unsigned high);

#define append_shared_8(address, wanted, low, high) emu_append_shared(address, wanted, low, high)
