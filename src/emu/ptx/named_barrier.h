/* templates/ptx/named_barrier.cuh, emulated. */

void emu_barrier_sync(int id, int threads);
void emu_barrier_arrive(int id, int threads);
int emu_barrier_or(int id, int threads, int condition);

#define barrier_sync(id, threads) emu_barrier_sync(id, threads)
#define barrier_arrive(id, threads) emu_barrier_arrive(id, threads)
#define barrier_or(id, threads, condition) (emu_barrier_or(id, threads, condition) != 0)
