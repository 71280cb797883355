//@use micro/params.h
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh
/*
 * Blocks of a cluster store into each other's shared memory: block r to block r + 1, cyclically. 64
 * threads a block, `count` blocks a cluster; a and out are four words a thread.
 *
 * Shared memory: THEIRS, 16 bytes a thread; BARRIER, two of 8 bytes.
 */

enum {
    ONE_ROUND = 0,  /* st.async of 16 bytes */
    GIVEN_BACK = 1, /* the same four times to the same memory, which is released each time */

    THREADS = 64,
    TILE_BYTES = THREADS * 16
};

/* In each round a thread stores four words to its peer in block `to`, once that thread has released
 * the memory, and takes those from block `from`. */
DEVICE void exchange(const struct micro_params *params, u32 *values, u32 full, u32 to, u32 from) {
    const u32 place = shared_address((u32)THEIRS_OFFSET + threadIdx.x * 16u);
    const u32 *const theirs = (const u32 *)(arena + THEIRS_OFFSET) + 4 * threadIdx.x;
    const u32 empty = full + 8u;
    const int rounds = params->form == GIVEN_BACK ? 4 : 1;
    for (int round = 0; round < rounds; ++round) {
        u32 read = 0;
        mbarrier_wait_given_back(empty, (round & 1) ^ 1);
        if (threadIdx.x == 0 && round > 0) {
            mbarrier_arrive_expect(full, TILE_BYTES);
        }
        cluster_store_async_16(cluster_address(place, to), values, cluster_address(full, to));
        mbarrier_wait(full, round & 1);
        for (u32 i = 0; i < 4; ++i) {
            values[i] = theirs[i] + (params->form == GIVEN_BACK ? i : 0);
            read |= values[i];
        }
        /* The address depends on the words that were read (`count` is not negative). */
        mbarrier_give_back_remote(cluster_address(empty, from) +
                                  (read & (u32)(params->count >> 31)));
    }
}

KERNEL void KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    const u32 blocks = (u32)params.count, rank = cluster_rank();
    const u32 barrier = shared_address(BARRIER_OFFSET);
    const u32 index = (blockIdx.x * THREADS + threadIdx.x) * 4u;
    u32 values[4];
    for (u32 i = 0; i < 4; ++i) {
        values[i] = ((const u32 *)params.a)[index + i];
    }
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_init(barrier + 8u, THREADS);
        mbarrier_fence_init();
        mbarrier_arrive_expect(barrier, TILE_BYTES);
    }
    cluster_arrive();
    cluster_wait();
    exchange(&params, values, barrier, (rank + 1) % blocks, (rank + blocks - 1) % blocks);
    for (u32 i = 0; i < 4; ++i) {
        ((u32 *)params.out)[index + i] = values[i];
    }
    cluster_arrive();
    cluster_wait();
}
