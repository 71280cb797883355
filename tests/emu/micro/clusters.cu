//@use micro/params.h
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh
/*
 * Blocks of a cluster reach into each other: block r gives its values to block r + 1 (round). 64
 * threads a block, `count` blocks a cluster; a and out are four words a thread.
 *
 * Shared memory: MINE and THEIRS, 16 bytes a thread; BARRIER, two of 8 bytes.
 */

enum {
    LOADS = 0,      /* plain loads from the neighbour */
    STORES = 1,     /* plain stores to it */
    ASYNC_4 = 2,    /* st.async of 4 bytes */
    ASYNC_16 = 3,   /* st.async of 16 bytes */
    ARRIVALS = 4,   /* stores, then an arrival from every thread of the cluster's other blocks */
    GIVEN_BACK = 5, /* st.async of 16 bytes, again and again into the same place */

    THREADS = 64,
    TILE_BYTES = THREADS * 16
};

/* Each round a thread gives four words to its fellow in block `to`, once that one has given back
 * the place, and takes those that came from block `from`. */
DEVICE void give_back(const struct micro_params *params, u32 *values, u32 full, u32 to, u32 from) {
    const u32 place = shared_address((u32)THEIRS_OFFSET + threadIdx.x * 16u);
    const u32 *const theirs = (const u32 *)(arena + THEIRS_OFFSET) + 4 * threadIdx.x;
    const u32 empty = full + 8u;
    for (int round = 0; round < 4; ++round) {
        u32 read = 0;
        mbarrier_wait_given_back(empty, (round & 1) ^ 1);
        if (threadIdx.x == 0 && round > 0) {
            mbarrier_arrive_expect(full, TILE_BYTES);
        }
        cluster_store_async_16(cluster_address(place, to), values, cluster_address(full, to));
        mbarrier_wait_cluster(full, round & 1);
        for (u32 i = 0; i < 4; ++i) {
            values[i] = theirs[i] + i;
            read |= values[i];
        }
        /* The address depends on what was read: `count` is not negative. */
        mbarrier_give_back_remote(cluster_address(empty, from) +
                                  (read & (u32)(params->count >> 31)));
    }
}

DEVICE void arrive_everywhere(const struct micro_params *params, u32 barrier) {
    for (u32 rank = 0; rank < (u32)params->count; ++rank) {
        if (rank != cluster_rank()) {
            mbarrier_arrive_remote(cluster_address(barrier, rank));
        }
    }
}

/* Gives this thread's four words to block `to`. */
DEVICE void give(const struct micro_params *params, const u32 *values, u32 barrier, u32 to) {
    const u32 place = shared_address((u32)THEIRS_OFFSET + threadIdx.x * 16u);
    const u32 there = cluster_address(place, to), remote = cluster_address(barrier, to);
    if (params->form == STORES || params->form == ARRIVALS) {
        for (u32 i = 0; i < 4; ++i) {
            cluster_store_32(there + 4 * i, values[i]);
        }
    } else if (params->form == ASYNC_4) {
        for (u32 i = 0; i < 4; ++i) {
            cluster_store_async_4(there + 4 * i, values[i], remote);
        }
    } else if (params->form == ASYNC_16) {
        cluster_store_async_16(there, values, remote);
    }
}

/* Takes four words from what this block was given. */
DEVICE void take(const struct micro_params *params, u32 *values, u32 barrier, u32 from) {
    const u32 *const theirs = (const u32 *)(arena + THEIRS_OFFSET) + 4 * threadIdx.x;
    if (params->form >= ASYNC_4) {
        mbarrier_wait_cluster(barrier, 0);
    }
    for (u32 i = 0; i < 4; ++i) {
        const u32 place = shared_address((u32)MINE_OFFSET + threadIdx.x * 16u + 4 * i);
        values[i] =
            params->form == LOADS ? cluster_load_32(cluster_address(place, from)) : theirs[i];
    }
}

KERNEL void KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    const u32 blocks = (u32)params.count, rank = cluster_rank();
    const u32 barrier = shared_address(BARRIER_OFFSET);
    const u32 index = (blockIdx.x * THREADS + threadIdx.x) * 4u;
    u32 *const mine = (u32 *)(arena + MINE_OFFSET) + 4 * threadIdx.x;
    u32 values[4];
    for (u32 i = 0; i < 4; ++i) {
        values[i] = ((const u32 *)params.a)[index + i];
        mine[i] = values[i];
    }
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, params.form == ARRIVALS ? (params.count - 1) * THREADS : 1);
        mbarrier_init(barrier + 8u, THREADS);
        mbarrier_fence_init();
        if (params.form != ARRIVALS && params.form >= ASYNC_4) {
            mbarrier_arrive_expect(barrier, TILE_BYTES);
        }
    }
    cluster_arrive();
    cluster_wait();
    if (params.form == GIVEN_BACK) {
        give_back(&params, values, barrier, (rank + 1) % blocks, (rank + blocks - 1) % blocks);
    }
    give(&params, values, barrier, (rank + 1) % blocks);
    if (params.form == ARRIVALS) {
        arrive_everywhere(&params, barrier);
    }
    if (params.form == STORES) {
        cluster_arrive();
        cluster_wait();
    }
    if (params.form != GIVEN_BACK) {
        take(&params, values, barrier, (rank + blocks - 1) % blocks);
    }
    for (u32 i = 0; i < 4; ++i) {
        ((u32 *)params.out)[index + i] = values[i];
    }
    cluster_arrive();
    cluster_wait();
}
