/* templates/ptx/cluster.cuh, emulated. */

void emu_cluster_arrive(void);
void emu_cluster_wait(void);
unsigned emu_cluster_rank(void);
unsigned emu_cluster_address(unsigned address, unsigned rank);
/* Both are addresses of the cluster. */
void emu_cluster_store_async(unsigned to, const unsigned *values, unsigned barrier);

#define cluster_arrive() emu_cluster_arrive()
#define cluster_wait() emu_cluster_wait()
#define cluster_rank() emu_cluster_rank()
#define cluster_address(address, rank) emu_cluster_address(address, rank)
#define cluster_store_async_16(to, values, barrier) emu_cluster_store_async(to, values, barrier)
