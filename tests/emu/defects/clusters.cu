/* Blocks of a cluster. ../defects.c describes the format. */
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh

//! a neighbour's barrier by an instruction of the own block: illegal, 32 threads, clusters of 2; its own block's shared memory only
if (threadIdx.x == 0) {
    mbarrier_init(shared_address(0), 1);
    mbarrier_fence_init();
}
cluster_arrive();
cluster_wait();
if (threadIdx.x == 0) {
    mbarrier_arrive(cluster_address(shared_address(0), cluster_rank() ^ 1u)); /* HERE */
}
cluster_arrive();
cluster_wait();
data[threadIdx.x + 32 * blockIdx.x] = 1;

//! a store to a neighbour, counted on the own barrier: illegal, 32 threads, clusters of 2; in the same block
if (threadIdx.x == 0) {
    mbarrier_init(shared_address(0), 1);
    mbarrier_fence_init();
    mbarrier_arrive_expect(shared_address(0), 16);
}
cluster_arrive();
cluster_wait();
if (threadIdx.x == 0) {
    const u32 there = cluster_address(shared_address(16), cluster_rank() ^ 1u);
    const u32 values[4] = {1, 1, 1, 1};
    cluster_store_async_16(there, values, shared_address(0)); /* HERE */
}
mbarrier_wait_given_back(shared_address(0), 0);
data[threadIdx.x + 32 * blockIdx.x] = ((int *)arena)[4];
cluster_arrive();
cluster_wait();

//! a neighbour's arrival, acquired for the block only: barrier, 32 threads, clusters of 2; at block scope
if (threadIdx.x == 0) {
    mbarrier_init(shared_address(0), 1);
    mbarrier_fence_init();
}
cluster_arrive();
cluster_wait();
const u32 there = cluster_rank() ^ 1u;
if (threadIdx.x == 0) {
    mbarrier_give_back_remote(cluster_address(shared_address(0), there));
}
mbarrier_wait(shared_address(0), 0); /* HERE */
data[threadIdx.x + 32 * blockIdx.x] = 1;
cluster_arrive();
cluster_wait();

//! a neighbour's arrival, acquired: none, 32 threads, clusters of 2
if (threadIdx.x == 0) {
    mbarrier_init(shared_address(0), 1);
    mbarrier_fence_init();
}
cluster_arrive();
cluster_wait();
const u32 there = cluster_rank() ^ 1u;
if (threadIdx.x == 0) {
    mbarrier_give_back_remote(cluster_address(shared_address(0), there));
}
mbarrier_wait_given_back(shared_address(0), 0);
data[threadIdx.x + 32 * blockIdx.x] = 1;
cluster_arrive();
cluster_wait();

//! a neighbour's barrier that may have ended: race, 32 threads, clusters of 2; end
if (threadIdx.x == 0) {
    mbarrier_init(shared_address(0), 1);
    mbarrier_fence_init();
}
cluster_arrive();
cluster_wait();
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
cluster_arrive();
cluster_wait();
