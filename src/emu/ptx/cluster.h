/* templates/ptx/cluster.cuh, emulated. */
#ifndef EMU_PTX_CLUSTER
#define EMU_PTX_CLUSTER

void emu_cluster_arrive(void);
void emu_cluster_wait(void);
unsigned emu_cluster_rank(void);
unsigned emu_cluster_address(unsigned address, unsigned rank);
/* Addresses of the cluster from here on. */
unsigned emu_cluster_load(unsigned address);
void emu_cluster_store(unsigned address, unsigned value);
void emu_cluster_store_async(unsigned to, const unsigned *values, int count, unsigned barrier);

#define cluster_arrive() emu_cluster_arrive()
#define cluster_wait() emu_cluster_wait()
#define cluster_rank() emu_cluster_rank()
#define cluster_address(address, rank) emu_cluster_address(address, rank)
#define cluster_load_32(address) emu_cluster_load(address)
#define cluster_store_32(address, value) emu_cluster_store(address, value)
#define cluster_store_async_4(to, value, barrier)                                                  \
    emu_cluster_store_async(to, (const unsigned[1]){value}, 1, barrier)
#define cluster_store_async_16(to, values, barrier) emu_cluster_store_async(to, values, 4, barrier)

#endif
