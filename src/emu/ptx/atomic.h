/* templates/ptx/atomic.cuh, emulated. */

/* kind 0: or, 1: add */
unsigned emu_atomic_shared(int kind, unsigned address, unsigned value);
void emu_reduce_add_global(unsigned *to, unsigned value);
void emu_reduce_add_global_64(unsigned long long *to, unsigned long long value);

#define atomic_or_shared(address, bits) emu_atomic_shared(0, address, bits)
#define atomic_add_shared(address, value) emu_atomic_shared(1, address, value)
#define reduce_add_global(to, value) emu_reduce_add_global(to, value)
#define reduce_add_global_64(to, value) emu_reduce_add_global_64(to, value)
