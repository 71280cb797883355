/* Blocks of a cluster. How a case is written: ../defects.c. */
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh

//! a neighbour's memory before the cluster's barrier: race, 32 threads, clusters of 2
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    const u32 other = cluster_address(shared_address(4 * threadIdx.x), cluster_rank() ^ 1u);
    data[threadIdx.x + 32 * blockIdx.x] = (int)cluster_load_32(other); /* HERE */
    cluster_arrive();
    cluster_wait();
}

//! a neighbour's memory after the cluster's barrier: none, 32 threads, clusters of 2
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    cluster_arrive();
    cluster_wait();
    const u32 other = cluster_address(shared_address(4 * threadIdx.x), cluster_rank() ^ 1u);
    data[threadIdx.x + 32 * blockIdx.x] = (int)cluster_load_32(other);
    cluster_arrive();
    cluster_wait();
}

//! a neighbour's barrier by an instruction of the own block: illegal, 32 threads, clusters of 2; its own block's shared memory only
KERNEL void KERNEL_NAME(int *data) {
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
}

//! a store to a neighbour, counted on the own barrier: illegal, 32 threads, clusters of 2; in the same block
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(0), 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(shared_address(0), 4);
    }
    cluster_arrive();
    cluster_wait();
    if (threadIdx.x == 0) {
        const u32 there = cluster_address(shared_address(16), cluster_rank() ^ 1u);
        cluster_store_async_4(there, 1, shared_address(0)); /* HERE */
    }
    mbarrier_wait_cluster(shared_address(0), 0);
    data[threadIdx.x + 32 * blockIdx.x] = ((int *)arena)[4];
    cluster_arrive();
    cluster_wait();
}

//! a neighbour's arrival, acquired for the block only: barrier, 32 threads, clusters of 2; at block scope
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(0), 1);
        mbarrier_fence_init();
    }
    cluster_arrive();
    cluster_wait();
    const u32 there = cluster_rank() ^ 1u;
    if (threadIdx.x == 0) {
        cluster_store_32(cluster_address(shared_address(16), there), 1);
        mbarrier_arrive_remote(cluster_address(shared_address(0), there));
    }
    mbarrier_wait(shared_address(0), 0); /* HERE */
    data[threadIdx.x + 32 * blockIdx.x] = ((int *)arena)[4];
    cluster_arrive();
    cluster_wait();
}

//! a neighbour's arrival, acquired: none, 32 threads, clusters of 2
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(0), 1);
        mbarrier_fence_init();
    }
    cluster_arrive();
    cluster_wait();
    const u32 there = cluster_rank() ^ 1u;
    if (threadIdx.x == 0) {
        cluster_store_32(cluster_address(shared_address(16), there), 1);
        mbarrier_arrive_remote(cluster_address(shared_address(0), there));
    }
    mbarrier_wait_cluster(shared_address(0), 0);
    data[threadIdx.x + 32 * blockIdx.x] = ((int *)arena)[4];
    cluster_arrive();
    cluster_wait();
}

//! a neighbour's memory too soon: race, 32 threads, clusters of 2; may not have begun
KERNEL void KERNEL_NAME(int *data) {
    const u32 there = cluster_address(shared_address(4 * threadIdx.x), cluster_rank() ^ 1u);
    cluster_store_32(there, 1); /* HERE */
    cluster_arrive();
    cluster_wait();
    data[threadIdx.x + 32 * blockIdx.x] = ((int *)arena)[threadIdx.x];
}

//! a neighbour's memory that may have ended: race, 32 threads, clusters of 2; end
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    cluster_arrive();
    cluster_wait();
    if (cluster_rank() == 0) {
        const u32 there = cluster_address(shared_address(4 * threadIdx.x), 1);
        data[threadIdx.x] = (int)cluster_load_32(there); /* HERE */
    }
}

//! threads leave before the others meet at the barrier: none, 96 threads, clusters of 2
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    cluster_arrive();
    if (threadIdx.x >= 64) {
        return;
    }
    cluster_wait();
    if (threadIdx.x >= 32) {
        return;
    }
    const u32 there = cluster_address(shared_address(4 * threadIdx.x), cluster_rank() ^ 1u);
    data[threadIdx.x + 32 * blockIdx.x] = (int)cluster_load_32(there);
    cluster_arrive();
    cluster_wait();
}
