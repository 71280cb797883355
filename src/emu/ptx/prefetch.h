/* templates/ptx/prefetch.cuh, emulated: only checks that the memory exists. */
void emu_bulk_prefetch(const void *from, unsigned bytes);

#define prefetch_l2(from, bytes) emu_bulk_prefetch(from, bytes)
