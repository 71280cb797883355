/* Blocks of a cluster. ../defects.c describes the format. */
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh

DEVICE void meet() {
    cluster_arrive();
    cluster_wait();
}

/* Each block initialises a barrier; returns the other block's rank. */
DEVICE u32 begin_barriers() {
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(0), 1);
        mbarrier_fence_init();
    }
    meet();
    return cluster_rank() ^ 1u;
}

DEVICE void give_back(u32 rank) {
    if (threadIdx.x == 0) {
        mbarrier_give_back_remote(cluster_address(shared_address(0), rank));
    }
}

//! a neighbour's barrier by an instruction of the own block: illegal, 32 threads, clusters of 2; its own block's shared memory only
const u32 other = begin_barriers();
if (threadIdx.x == 0) {
    mbarrier_arrive(cluster_address(shared_address(0), other)); /* HERE */
}
meet();
data[threadIdx.x + 32 * blockIdx.x] = 1;

//! a store to a neighbour, counted on the own barrier: illegal, 32 threads, clusters of 2; in the same block
const u32 other = begin_barriers();
if (threadIdx.x == 0) {
    mbarrier_arrive_expect(shared_address(0), 16);
    const u32 there = cluster_address(shared_address(16), other);
    const u32 values[4] = {1, 1, 1, 1};
    cluster_store_async_16(there, values, shared_address(0)); /* HERE */
}
mbarrier_wait_given_back(shared_address(0), 0);
data[threadIdx.x + 32 * blockIdx.x] = ((int *)arena)[4];
meet();

//! a neighbour's arrival, acquired for the block only: barrier, 32 threads, clusters of 2; at block scope
give_back(begin_barriers());
mbarrier_wait(shared_address(0), 0); /* HERE */
data[threadIdx.x + 32 * blockIdx.x] = 1;
meet();

//! a neighbour's arrival, acquired: none, 32 threads, clusters of 2
give_back(begin_barriers());
mbarrier_wait_given_back(shared_address(0), 0);
data[threadIdx.x + 32 * blockIdx.x] = 1;
meet();

//! a neighbour's barrier that may have ended: race, 32 threads, clusters of 2; end
begin_barriers();
if (cluster_rank() == 0 && threadIdx.x == 0) {
    mbarrier_give_back_remote(cluster_address(shared_address(0), 1)); /* HERE */
}
data[threadIdx.x + 32 * blockIdx.x] = 1;

//! threads leave before the others meet at the barrier: none, 96 threads, clusters of 2
cluster_arrive();
if (threadIdx.x >= 64) {
    return;
}
cluster_wait();
if (threadIdx.x >= 32) {
    return;
}
data[threadIdx.x + 32 * blockIdx.x] = 1;
meet();
