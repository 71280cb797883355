/* templates/ptx/memory.cuh, emulated. */

void emu_store_global(void *to, const unsigned *values, int count);
/* read_only: no thread may write it while the kernel runs. */
void emu_load_global(unsigned *values, const void *from, int count, int read_only);
unsigned emu_load_l2(const void *from);
void emu_load_shared(unsigned *values, unsigned address, int count);

#define store_streaming_16(to, values) emu_store_global(to, values, 4)
#define store_streaming_8(to, values) emu_store_global(to, values, 2)
#define load_read_only_16(values, from) emu_load_global(values, from, 4, 1)
#define load_l2_32(from) emu_load_l2(from)
#define load_shared_16(values, address) emu_load_shared(values, address, 4)
