/*
 * Small kernels, each with one defect, and what the emulator must say of it. A case begins with
 *
 *     //! NAME: KIND[/KIND...], THREADS threads[, MANY of N][; WORDS]
 *
 * KIND is a report's kind (several where the schedule decides), or `none`: a kernel without a
 * defect. WORDS stand in the report's text. MANY: `clusters of N` blocks, one of them; `grid of N`
 * blocks; `chain of N` launches, the second and later ones early, of one block, two, and so on, so
 * that gridDim.x tells them apart. The line that ends in HERE is the one the report must name. The
 * kernel's parameter is the address of 4096 ints, 0, 1, 2, ...; its shared memory is 16 KB and of
 * two regions: LEFT, 8192 bytes from 0 on, and RIGHT, 8180 from 8192 on. Word 4000 of the data is
 * forbidden.
 */
//! unordered store and load: race, 64 threads; no barrier orders the two
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    data[threadIdx.x] = ((int *)arena)[threadIdx.x ^ 32]; /* HERE */
}

//! ordered store and load: none, 64 threads
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    __syncthreads();
    data[threadIdx.x] = ((int *)arena)[threadIdx.x ^ 32];
}

//! store over another's load: race, 64 threads; read by
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    int *const words = (int *)arena;
    words[threadIdx.x] = 1;
    __syncthreads();
    data[threadIdx.x] = words[threadIdx.x ^ 32];
    words[threadIdx.x] = 2; /* HERE */
}

//! store over a load of two: race, 64 threads; read by
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    int *const words = (int *)arena;
    words[threadIdx.x] = 1;
    __syncthreads();
    data[threadIdx.x] = words[0];
    __syncwarp(0xffffffffu);
    if (threadIdx.x == 0) {
        words[0] = 2; /* HERE */
    }
}

//! a warp's barrier orders its lanes: none, 32 threads
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    int *const words = (int *)arena;
    words[threadIdx.x] = 1;
    __syncwarp(0xffffffffu);
    data[threadIdx.x] = words[threadIdx.x ^ 1];
    __syncwarp(0xffffffffu);
    words[threadIdx.x] = 2;
}

//! a shuffle orders nothing: race, 32 threads
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    int *const words = (int *)arena;
    words[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
    data[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 0, 1) + words[threadIdx.x ^ 1]; /* HERE */
}

//! bytes beside each other do not race: none, 64 threads
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    arena[threadIdx.x] = (unsigned char)threadIdx.x;
    data[threadIdx.x] = arena[threadIdx.x];
}

//! nobody wrote it: uninitialized, 32 threads; RIGHT + 4
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[threadIdx.x] = ((int *)(arena + 8192))[1]; /* HERE */
}

//! past the arena: bounds, 32 threads; outside the plan's map
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[4096 + data[0]] = 1; /* HERE */
}

//! from one region into the next: bounds, 32 threads; beyond the region's end
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    *(long long *)(arena + 16368 + 8 * data[0]) = 1; /* HERE */
}

//! past a buffer: bounds, 32 threads; past the end of the data
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[4096 + threadIdx.x] = 1; /* HERE */
}

//! a range that must not be touched: forbidden, 32 threads; must not be touched
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[0] = data[4000]; /* HERE */
}

//! one location of device memory from two threads: race, 64 threads; nothing orders the two
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[threadIdx.x % 32] = 1; /* HERE */
}

//! an index past a register array: bounds, 32 threads
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    int registers[4] = {1, 2, 3, 4};
    data[threadIdx.x] = registers[data[4] + (int)threadIdx.x / 32]; /* HERE */
}

//! a pointer past a register array: bounds, 32 threads
//@use common/base.cuh
DEVICE int fifth(const int *values) {
    return values[4]; /* HERE */
}
KERNEL void KERNEL_NAME(int *data) {
    int registers[4] = {1, 2, 3, 4};
    data[threadIdx.x] = fifth(registers);
}

//! a misaligned load: alignment, 32 threads
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    data[threadIdx.x] = (int)*(const long long *)(arena + 4 + (threadIdx.x / 32)); /* HERE */
}

//! a signed overflow: arithmetic, 32 threads; overflows its signed type
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[threadIdx.x] = (data[0] + 0x7fffffff) * 2; /* HERE */
}

//! a wild address: bounds, 32 threads; no device memory
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    *(volatile int *)(8192 + (u64)data[0]) = 1; /* HERE */
}

//! no end: time, 32 threads
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    volatile int turns = 0;
    while (turns >= 0) {
        turns = turns == 1000 ? 0 : turns + 1;
    }
    data[0] = turns;
}

//! a lane leaves before the others' barrier: deadlock, 32 threads; others have left the kernel
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x == 5) {
        return;
    }
    __syncwarp(0xffffffffu); /* HERE */
    data[threadIdx.x] = 1;
}

//! lanes part: convergence, 32 threads; __ballot_sync
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x < 16) {
        data[threadIdx.x] = (int)__ballot_sync(0xffffffffu, 1);
    } else {
        __syncwarp(0xffffffffu);
    }
}

//! halves of a warp, each with its mask: none, 32 threads
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x < 16) {
        data[threadIdx.x] = (int)__ballot_sync(0xffffu, 1);
    } else {
        data[threadIdx.x] = (int)__ballot_sync(0xffff0000u, 1);
    }
    __syncwarp(0xffffffffu);
}

//! a lane outside its own mask: convergence, 32 threads; does not name the lane itself
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[threadIdx.x] = (int)__ballot_sync(1u, 1); /* HERE */
}

//! a mask that names no lane: convergence, 32 threads; does not name the lane itself
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[threadIdx.x] = 1;
    __syncwarp(0u); /* HERE */
}

//! a warp misses the block's barrier: deadlock, 64 threads; 32 of 64 threads have come
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x < 32) {
        __syncthreads(); /* HERE */
    }
    data[threadIdx.x] = 1;
}

//! an aligned barrier at two places of a warp: convergence, 64 threads; at two places
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x % 2 == 0) {
        __syncthreads();
        data[threadIdx.x] = 1;
    } else {
        __syncthreads();
        data[threadIdx.x] = 2;
    }
}

//! two counts at one barrier: barrier, 96 threads; where others came with
//@use ptx/named_barrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    barrier_sync(1, threadIdx.x < 32 ? 64 : 96);
    data[threadIdx.x] = 1;
}

//! an arrival without a wait orders one way: none, 64 threads
//@use ptx/named_barrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    int *const words = (int *)arena;
    if (threadIdx.x < 32) {
        words[threadIdx.x] = 1;
        barrier_arrive(1, 64);
    } else {
        barrier_sync(1, 64);
        data[threadIdx.x] = words[threadIdx.x - 32];
    }
}

//! who only arrived knows nothing: race, 64 threads
//@use ptx/named_barrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    int *const words = (int *)arena;
    words[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        barrier_arrive(1, 64);
        data[threadIdx.x] = words[threadIdx.x]; /* HERE */
    } else {
        words[threadIdx.x - 32] = 1;
        barrier_sync(1, 64);
    }
}

//! a copy that nobody waited for: unwaited, 32 threads; no wait covers it
//@use ptx/cp_async.cuh
KERNEL void KERNEL_NAME(int *data) {
    cp_async_16(shared_address(16 * threadIdx.x), data, 16);
    cp_async_commit();
    cp_async_wait_1();
    data[threadIdx.x + 64] = ((int *)arena)[4 * threadIdx.x]; /* HERE */
    cp_async_wait_0();
}

//! a copy that its issuer waited for: none, 32 threads
//@use ptx/cp_async.cuh
KERNEL void KERNEL_NAME(int *data) {
    cp_async_16(shared_address(16 * threadIdx.x), data, 16);
    cp_async_commit();
    cp_async_wait_0();
    data[threadIdx.x + 64] = ((int *)arena)[4 * threadIdx.x];
}

//! a copy that only its issuer waited for: race, 32 threads; a cp.async of
//@use ptx/cp_async.cuh
KERNEL void KERNEL_NAME(int *data) {
    cp_async_16(shared_address(16 * threadIdx.x), data, 16);
    cp_async_commit();
    cp_async_wait_0();
    data[threadIdx.x + 64] = ((int *)arena)[4 * (threadIdx.x ^ 1)]; /* HERE */
}

//! a copy without its commit: unwaited, 32 threads
//@use ptx/cp_async.cuh
KERNEL void KERNEL_NAME(int *data) {
    cp_async_16(shared_address(16 * threadIdx.x), data, 16);
    cp_async_wait_0();
    data[threadIdx.x + 64] = ((int *)arena)[4 * threadIdx.x]; /* HERE */
    cp_async_commit();
    cp_async_wait_0();
}

//! a store to where a copy goes: unwaited, 32 threads
//@use ptx/cp_async.cuh
KERNEL void KERNEL_NAME(int *data) {
    cp_async_16(shared_address(16 * threadIdx.x), data, 16);
    cp_async_commit();
    ((int *)arena)[4 * threadIdx.x] = 1; /* HERE */
    cp_async_wait_0();
}

//! a copy to a misaligned address: alignment, 32 threads
//@use ptx/cp_async.cuh
KERNEL void KERNEL_NAME(int *data) {
    cp_async_16(shared_address(8 + 16 * threadIdx.x), data, 16); /* HERE */
    cp_async_commit();
    cp_async_wait_0();
}

//! a copy left behind: leftover, 32 threads; did not wait for
//@use ptx/cp_async.cuh
KERNEL void KERNEL_NAME(int *data) {
    cp_async_16(shared_address(16 * threadIdx.x), data, 16); /* HERE */
    cp_async_commit();
}

//! copies that arrive at an mbarrier: none, 64 threads
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 full = shared_address(8192);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 32);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        cp_async_16(shared_address(16 * threadIdx.x), data, 16);
        cp_async_arrive_noinc(full);
    } else {
        mbarrier_wait(full, 0);
        data[threadIdx.x + 64] = ((int *)arena)[4 * (threadIdx.x - 32)];
    }
}

//! their arrival does not order plain stores: race, 64 threads
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 full = shared_address(8192);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 32);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        cp_async_16(shared_address(16 * threadIdx.x), data, 16);
        ((int *)(arena + 4096))[threadIdx.x] = 1;
        cp_async_arrive_noinc(full);
    } else {
        mbarrier_wait(full, 0);
        data[threadIdx.x + 64] = ((int *)(arena + 4096))[threadIdx.x - 32]; /* HERE */
    }
}

//! a wait for the wrong parity: unwaited/race/uninitialized, 64 threads
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 full = shared_address(8192);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 32);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        cp_async_16(shared_address(16 * threadIdx.x), data, 16);
        cp_async_arrive_noinc(full);
        mbarrier_wait(full, 0);
    } else {
        mbarrier_wait(full, 1);
        data[threadIdx.x + 64] = ((int *)arena)[4 * (threadIdx.x - 32)]; /* HERE */
    }
}

//! an mbarrier used before its initialisation is known: race/barrier, 64 threads; mbarrier.arrive at LEFT
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(0), 64);
    }
    if (threadIdx.x < 32) {
        __syncwarp(0xffffffffu);
    }
    mbarrier_arrive(shared_address(0)); /* HERE */
    data[threadIdx.x] = 1;
}

//! no mbarrier there: barrier, 32 threads; no mbarrier was initialised
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    mbarrier_arrive(shared_address(0)); /* HERE */
    data[threadIdx.x] = 1;
}

//! one arrival too many: barrier, 32 threads; misses only
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(0), 3);
        mbarrier_arrive_count(shared_address(0), 4); /* HERE */
    }
    data[threadIdx.x] = 1;
}

//! one arrival too few: deadlock, 64 threads; 1 of 64 arrivals
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(0), 64);
    }
    __syncthreads();
    if (threadIdx.x != 0) {
        mbarrier_arrive(shared_address(0));
    }
    mbarrier_wait(shared_address(0), 0); /* HERE */
    data[threadIdx.x] = 1;
}

//! a plain store into an mbarrier: barrier, 32 threads; where an mbarrier lives
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(0), 1);
        ((int *)arena)[1] = 0; /* HERE */
    }
    data[threadIdx.x] = 1;
}

//! two phases missed: barrier, 32 threads; the parity cannot tell them apart
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 barrier = shared_address(0);
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_arrive(barrier);
        mbarrier_arrive(barrier);
        mbarrier_wait(barrier, 1); /* HERE */
    }
    data[threadIdx.x] = 1;
}

//! a bulk load, waited for: none, 64 threads
//@use ptx/bulk.cuh
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 full = shared_address(8192);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(full, 1024);
        bulk_load(shared_address(0), data, 1024, full);
    }
    __syncthreads();
    mbarrier_wait(full, 0);
    data[threadIdx.x + 512] = ((int *)arena)[threadIdx.x];
}

//! a bulk load, not waited for: unwaited/race, 64 threads; a bulk copy
//@use ptx/bulk.cuh
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 full = shared_address(8192);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(full, 1024);
        bulk_load(shared_address(0), data, 1024, full);
    }
    __syncthreads();
    data[threadIdx.x + 512] = ((int *)arena)[threadIdx.x]; /* HERE */
}

//! a bulk load with too many bytes expected: deadlock, 64 threads; 16 bytes to come
//@use ptx/bulk.cuh
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 full = shared_address(8192);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(full, 1040);
        bulk_load(shared_address(0), data, 1024, full);
    }
    __syncthreads();
    mbarrier_wait(full, 0); /* HERE */
    data[threadIdx.x + 512] = ((int *)arena)[threadIdx.x];
}

//! a bulk load on a barrier the async proxy does not know: proxy, 32 threads; fence.mbarrier_init
//@use ptx/bulk.cuh
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 full = shared_address(8192);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_arrive_expect(full, 1024);
        bulk_load(shared_address(0), data, 1024, full); /* HERE */
        mbarrier_wait(full, 0);
    }
}

//! a bulk load of 8 bytes: illegal, 32 threads; not a multiple of 16
//@use ptx/bulk.cuh
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 full = shared_address(8192);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_fence_init();
        bulk_load(shared_address(0), data, 8, full); /* HERE */
    }
}

//! a prefetch past a buffer: bounds, 32 threads; which has 16384
//@use ptx/prefetch.cuh
KERNEL void KERNEL_NAME(int *data) {
    prefetch_l2(data, 1024);
    prefetch_l2(data + 3968, 1024); /* HERE */
}

//! a prefetch of 8 bytes: illegal, 32 threads; not a multiple of 16
//@use ptx/prefetch.cuh
KERNEL void KERNEL_NAME(int *data) {
    prefetch_l2(data, 8); /* HERE */
}

//! a bulk load over what is still read: race/barrier, 64 threads
//@use ptx/bulk.cuh
//@use ptx/mbarrier.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 full = shared_address(8192);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(full, 256);
        bulk_load(shared_address(0), data, 256, full);
    }
    __syncthreads();
    mbarrier_wait(full, 0);
    data[threadIdx.x + 512] = ((int *)arena)[threadIdx.x];
    __syncwarp(0xffffffffu);
    if (threadIdx.x == 32) {
        mbarrier_arrive_expect(full, 256);
        bulk_load(shared_address(0), data, 256, full);
    }
    if (threadIdx.x >= 32) {
        mbarrier_wait(full, 1);
    }
}

//! a bulk store of what no proxy fence covers: proxy, 32 threads; no fence.proxy.async
//@use ptx/bulk.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(data, shared_address(0), 128); /* HERE */
        bulk_commit();
        bulk_wait_0();
    }
}

//! a bulk store, fenced by the writers: none, 32 threads
//@use ptx/bulk.cuh
//@use ptx/proxy.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(data, shared_address(0), 128);
        bulk_commit();
        bulk_wait_0();
    }
}

//! a bulk store, fenced by who starts it: none, 32 threads
//@use ptx/bulk.cuh
//@use ptx/proxy.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        fence_proxy_async();
        bulk_store(data, shared_address(0), 128);
        bulk_commit();
        bulk_wait_0();
    }
}

//! a fence before the barrier by another thread: proxy, 64 threads
//@use ptx/bulk.cuh
//@use ptx/proxy.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    if (threadIdx.x >= 32) {
        fence_proxy_async();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(data, shared_address(0), 128); /* HERE */
        bulk_commit();
        bulk_wait_0();
    }
}

//! a store after the fence: proxy, 32 threads; no fence.proxy.async
//@use ptx/bulk.cuh
//@use ptx/proxy.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x < 8) {
        fence_proxy_async();
        ((int *)arena)[threadIdx.x] = 1;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(data, shared_address(0), 32); /* HERE */
        bulk_commit();
        bulk_wait_0();
    }
}

//! a store into a bulk store's source: overwritten, 32 threads; may still be reading
//@use ptx/bulk.cuh
//@use ptx/proxy.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(data, shared_address(0), 128);
        bulk_commit();
        bulk_wait_read_1();
        ((int *)arena)[0] = 2; /* HERE */
        bulk_wait_0();
    }
}

//! a bulk store left behind: leftover, 32 threads; before its bulk store
//@use ptx/bulk.cuh
//@use ptx/proxy.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(data, shared_address(0), 128); /* HERE */
        bulk_commit();
    }
}

//! a product: none, 128 threads
//@use common/descriptor.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    fence_proxy_async();
    __syncthreads();
    const u64 a = shared_descriptor(shared_address(0), 16, 1024, 128);
    const u64 b = shared_descriptor(shared_address(8192), 16, 1024, 128);
    wgmma_fence();
    wgmma_ss_n8_t00(d, a, b, 0);
    wgmma_commit();
    wgmma_wait_0();
    data[threadIdx.x] = (int)d[0];
}

//! rows of A from the warpgroup's other warps: race/proxy, 128 threads
//@use common/descriptor.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    fence_proxy_async();
    __syncthreads();
    /* Each warp fills the 16 rows that its own part of the product needs. */
    for (int i = (int)threadIdx.x % 32; i < 512; i += 32) {
        ((int *)arena)[threadIdx.x / 32 * 512 + i] = 0;
    }
    fence_proxy_async();
    __syncwarp(0xffffffffu);
    const u64 a = shared_descriptor(shared_address(0), 16, 1024, 128);
    const u64 b = shared_descriptor(shared_address(8192), 16, 1024, 128);
    wgmma_fence();
    wgmma_ss_n8_t00(d, a, b, 0); /* HERE */
    wgmma_commit();
    wgmma_wait_0();
    data[threadIdx.x] = (int)d[0];
}

//! a product of what no proxy fence covers: proxy, 128 threads; no fence.proxy.async
//@use common/descriptor.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    __syncthreads();
    const u64 a = shared_descriptor(shared_address(0), 16, 1024, 128);
    const u64 b = shared_descriptor(shared_address(8192), 16, 1024, 128);
    wgmma_fence();
    wgmma_ss_n8_t00(d, a, b, 0); /* HERE */
    wgmma_commit();
    wgmma_wait_0();
    data[threadIdx.x] = (int)d[0];
}

//! accumulators read before the wait: registers, 128 threads; a read of the accumulators
//@use common/descriptor.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    fence_proxy_async();
    __syncthreads();
    const u64 a = shared_descriptor(shared_address(0), 16, 1024, 128);
    const u64 b = shared_descriptor(shared_address(8192), 16, 1024, 128);
    wgmma_fence();
    wgmma_ss_n8_t00(d, a, b, 0);
    wgmma_commit();
    data[threadIdx.x] = (int)d[0]; /* HERE */
    wgmma_wait_0();
}

//! accumulators set without a fence: registers, 128 threads; after the last wgmma.fence
//@use common/descriptor.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    fence_proxy_async();
    __syncthreads();
    const u64 a = shared_descriptor(shared_address(0), 16, 1024, 128);
    const u64 b = shared_descriptor(shared_address(8192), 16, 1024, 128);
    wgmma_fence();
    for (int i = 0; i < 4; ++i) {
        d[i] = (float)data[i];
    }
    wgmma_ss_n8_t00(d, a, b, 1); /* HERE */
    wgmma_commit();
    wgmma_wait_0();
    data[threadIdx.x + 64] = (int)d[0];
}

//! no fence at all: registers, 128 threads; without any wgmma.fence
//@use common/descriptor.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    fence_proxy_async();
    __syncthreads();
    const u64 a = shared_descriptor(shared_address(0), 16, 1024, 128);
    const u64 b = shared_descriptor(shared_address(8192), 16, 1024, 128);
    wgmma_ss_n8_t00(d, a, b, 0); /* HERE */
    wgmma_commit();
    wgmma_wait_0();
    data[threadIdx.x] = (int)d[0];
}

//! A's registers changed before the wait: registers, 128 threads; a write of A's registers
//@use common/descriptor.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_rs.cuh n = 8, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    u32 a[4] = {0, 0, 0, 0};
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    fence_proxy_async();
    __syncthreads();
    const u64 b = shared_descriptor(shared_address(8192), 16, 1024, 128);
    wgmma_fence();
    wgmma_rs_n8_t00(d, a, b, 0);
    wgmma_commit();
    a[0] = (u32)data[1]; /* HERE */
    wgmma_wait_0();
    data[threadIdx.x + 64] = (int)d[0] + (int)a[0];
}

//! more matrices than the array has registers: bounds, 32 threads; of which the array has 2
//@use ptx/ldmatrix.cuh
//@use ptx/shared.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 a[6];
    ((int *)arena)[threadIdx.x] = 0;
    __syncwarp(0xffffffffu);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        ldmatrix_x4(&a[4 * i], shared_address(threadIdx.x % 8 * 16)); /* HERE */
    }
    data[threadIdx.x] = (int)a[0];
}

//! A's registers loaded after the fence: registers, 128 threads; after the last wgmma.fence
//@use common/descriptor.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_rs.cuh n = 8, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    u32 a[4];
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    fence_proxy_async();
    __syncthreads();
    const u64 b = shared_descriptor(shared_address(8192), 16, 1024, 128);
    wgmma_fence();
    ldmatrix_x4(a, shared_address(threadIdx.x % 32 * 16));
    wgmma_rs_n8_t00(d, a, b, 0); /* HERE */
    wgmma_commit();
    wgmma_wait_0();
    data[threadIdx.x] = (int)d[0];
}

//! an operand overwritten before the wait: overwritten, 128 threads; may still be reading
//@use common/descriptor.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    fence_proxy_async();
    __syncthreads();
    const u64 a = shared_descriptor(shared_address(0), 16, 1024, 128);
    const u64 b = shared_descriptor(shared_address(8192), 16, 1024, 128);
    wgmma_fence();
    wgmma_ss_n8_t00(d, a, b, 0);
    wgmma_commit();
    if (threadIdx.x == 0) {
        ((int *)arena)[0] = 1; /* HERE */
    }
    wgmma_wait_0();
    data[threadIdx.x] = (int)d[0];
}

//! an operand overwritten when only one warp has waited: race/overwritten, 128 threads
//@use common/descriptor.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    fence_proxy_async();
    __syncthreads();
    const u64 a = shared_descriptor(shared_address(0), 16, 1024, 128);
    const u64 b = shared_descriptor(shared_address(8192), 16, 1024, 128);
    wgmma_fence();
    wgmma_ss_n8_t00(d, a, b, 0);
    wgmma_commit();
    wgmma_wait_0();
    if (threadIdx.x >= 96) {
        __syncwarp(0xffffffffu);
        ((int *)(arena + 8192))[threadIdx.x - 96] = 1;
    }
    data[threadIdx.x] = (int)d[0];
}

//! a product without its commit: registers, 128 threads
//@use common/descriptor.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    fence_proxy_async();
    __syncthreads();
    const u64 a = shared_descriptor(shared_address(0), 16, 1024, 128);
    const u64 b = shared_descriptor(shared_address(8192), 16, 1024, 128);
    wgmma_fence();
    wgmma_ss_n8_t00(d, a, b, 0);
    wgmma_wait_0();
    data[threadIdx.x] = (int)d[0]; /* HERE */
}

//! a warp with another descriptor: convergence, 128 threads; than its warpgroup did
//@use common/descriptor.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 0
KERNEL void KERNEL_NAME(int *data) {
    float d[4];
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
    fence_proxy_async();
    __syncthreads();
    const u64 a = shared_descriptor(shared_address(0), 16, 1024, 128);
    const u64 b = shared_descriptor(shared_address(8192 + threadIdx.x / 96 * 1024), 16, 1024, 128);
    wgmma_fence();
    wgmma_ss_n8_t00(d, a, b, 0); /* HERE */
    wgmma_commit();
    wgmma_wait_0();
    data[threadIdx.x] = (int)d[0];
}

//! registers beyond the pool: deadlock, 512 threads
//@use ptx/registers.cuh
KERNEL void KERNEL_NAME(int *data) {
    registers_increase(160); /* HERE */
    data[threadIdx.x] = 1;
}

//! registers moved: none, 512 threads
//@use ptx/registers.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x < 128) {
        registers_decrease(24);
    } else {
        registers_increase(160);
    }
    data[threadIdx.x] = 1;
}

//! registers that fit the multiprocessor, but not the block's share: deadlock, 384 threads
//@use ptx/registers.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x < 128) {
        registers_decrease(32);
    } else {
        registers_increase(240); /* HERE */
    }
    data[threadIdx.x] = 1;
}

//! a warp without its warpgroup's registers: convergence, 512 threads; by setmaxnreg
//@use ptx/registers.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x < 96) {
        registers_decrease(24);
    }
    data[threadIdx.x] = 1;
}

//! an increase that is a decrease: illegal, 512 threads; setmaxnreg.inc to 64
//@use ptx/registers.cuh
KERNEL void KERNEL_NAME(int *data) {
    registers_increase(64); /* HERE */
    data[threadIdx.x] = 1;
}

//! a neighbour's memory before the cluster's barrier: race, 32 threads, clusters of 2
//@use ptx/cluster.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    const u32 other = cluster_address(shared_address(4 * threadIdx.x), cluster_rank() ^ 1u);
    data[threadIdx.x + 32 * blockIdx.x] = (int)cluster_load_32(other); /* HERE */
    cluster_arrive();
    cluster_wait();
}

//! a neighbour's memory after the cluster's barrier: none, 32 threads, clusters of 2
//@use ptx/cluster.cuh
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
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh
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

//! a store to a neighbour, counted on the own barrier: illegal, 32 threads, clusters of 2; beside the destination
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh
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

//! a neighbour's arrival, acquired for the block only: barrier, 32 threads, clusters of 2; of the block's scope
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh
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
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh
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

//! a neighbour's memory too soon: race, 32 threads, clusters of 2; not known to have begun
//@use ptx/cluster.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 there = cluster_address(shared_address(4 * threadIdx.x), cluster_rank() ^ 1u);
    cluster_store_32(there, 1); /* HERE */
    cluster_arrive();
    cluster_wait();
    data[threadIdx.x + 32 * blockIdx.x] = ((int *)arena)[threadIdx.x];
}

//! a neighbour's memory that may have ended: race, 32 threads, clusters of 2; end
//@use ptx/cluster.cuh
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
//@use ptx/cluster.cuh
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

//! a read before the wait for the kernel that wrote: race, 32 threads, chain of 2; earlier launch
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    grid_launch_dependents();
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else {
        const int before = data[threadIdx.x]; /* HERE */
        grid_wait();
        data[64 + 32 * blockIdx.x + threadIdx.x] = before;
    }
}

//! a read after it: none, 32 threads, chain of 2
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    grid_launch_dependents();
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else {
        grid_wait();
        data[64 + 32 * blockIdx.x + threadIdx.x] = data[threadIdx.x];
    }
}

//! a read after another thread's wait: race, 64 threads, chain of 2; earlier launch
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else {
        if (threadIdx.x == 0) {
            grid_wait();
        }
        if (threadIdx.x >= 32) {
            data[64 + 64 * blockIdx.x + threadIdx.x] = data[threadIdx.x]; /* HERE */
        }
    }
}

//! a read after another thread's wait and a barrier: none, 64 threads, chain of 2
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else {
        if (threadIdx.x == 0) {
            grid_wait();
        }
        __syncthreads();
        data[64 + 64 * blockIdx.x + threadIdx.x] = data[threadIdx.x];
    }
}

//! a write over what the kernel ahead may yet write: race, 32 threads, chain of 2; earlier launch
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (blockIdx.x == 0) {
        data[threadIdx.x] = 1; /* HERE */
    }
    grid_wait();
}

//! the third kernel needs the first's alone, the second waited before it let go: none, 32 threads, chain of 3
//@use ptx/grid.cuh
//@use ptx/memory.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else if (gridDim.x == 2) {
        grid_wait();
        grid_launch_dependents();
    } else {
        data[64 + 32 * blockIdx.x + threadIdx.x] = (int)load_l2_32(&data[threadIdx.x]);
        grid_wait();
    }
}

//! the same, through L1: stale, 32 threads, chain of 3; did not wait
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else if (gridDim.x == 2) {
        grid_wait();
        grid_launch_dependents();
    } else {
        data[64 + 32 * blockIdx.x + threadIdx.x] = data[threadIdx.x]; /* HERE */
        grid_wait();
    }
}

//! the same, through L1 by a wrapper's load: stale, 32 threads, chain of 3; when this one began
//@use ptx/grid.cuh
//@use ptx/memory.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else if (gridDim.x == 2) {
        grid_wait();
        grid_launch_dependents();
    } else {
        u32 words[4];
        load_read_only_16(words, &data[4 * (threadIdx.x % 8)]); /* HERE */
        data[64 + 32 * blockIdx.x + threadIdx.x] = (int)words[0];
        grid_wait();
    }
}

//! the same, through L1 after its own wait: none, 32 threads, chain of 3
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else if (gridDim.x == 2) {
        grid_wait();
        grid_launch_dependents();
    } else {
        grid_wait();
        data[64 + 32 * blockIdx.x + threadIdx.x] = data[threadIdx.x];
    }
}

//! a read-only load of what was written while it ran, after its own wait: stale, 32 threads, chain of 3; when this one began
//@use ptx/grid.cuh
//@use ptx/memory.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else if (gridDim.x == 2) {
        grid_wait();
        grid_launch_dependents();
    } else {
        grid_wait();
        u32 words[4];
        load_read_only_16(words, &data[4 * (threadIdx.x % 8)]); /* HERE */
        data[64 + 32 * blockIdx.x + threadIdx.x] = (int)words[0];
    }
}

//! a plain read of what was there before the first of the chain: none, 32 threads, chain of 3
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    grid_launch_dependents();
    if (gridDim.x == 1) {
        data[threadIdx.x] = data[1024 + threadIdx.x];
    } else {
        data[64 * gridDim.x + 32 * blockIdx.x + threadIdx.x] = data[1024 + threadIdx.x];
        grid_wait();
    }
}

//! a read-only load of what the kernel writes: stale, 32 threads; writes itself
//@use ptx/memory.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 words[4];
    data[threadIdx.x] = 1;
    __syncwarp(0xffffffffu);
    load_read_only_16(words, &data[4 * (threadIdx.x % 8)]); /* HERE */
    data[64 + threadIdx.x] = (int)words[0];
}

//! the same, but the second lets go first: race, 32 threads, chain of 3; earlier launch
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else if (gridDim.x == 2) {
        grid_launch_dependents();
        grid_wait();
    } else {
        data[64 + 32 * blockIdx.x + threadIdx.x] = data[threadIdx.x]; /* HERE */
        grid_wait();
    }
}

//! the same, but one block of the second does not wait: race, 32 threads, chain of 3; earlier launch
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else if (gridDim.x == 2) {
        if (blockIdx.x == 0) {
            grid_wait();
        }
    } else {
        data[64 + 32 * blockIdx.x + threadIdx.x] = data[threadIdx.x]; /* HERE */
        grid_wait();
    }
}

//! the last kernel may end before the first: race, 32 threads, chain of 2; end after
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    } else {
        data[64 + 32 * blockIdx.x + threadIdx.x] = 2;
    }
}

//! a block's results behind a counter: none, 32 threads, grid of 3
//@use ptx/counter.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const counter = (u32 *)&data[1024];
    if (blockIdx.x < 2) {
        data[32 * blockIdx.x + threadIdx.x] = 1;
        __syncwarp(0xffffffffu);
        if (threadIdx.x == 0) {
            counter_add(counter, 1);
        }
    } else {
        while (counter_read(counter) < 1024 + 2) {
        }
        data[64 + threadIdx.x] = data[threadIdx.x] + data[32 + threadIdx.x];
    }
}

//! the same, without a look at the number: race, 32 threads, grid of 3; earlier block
//@use ptx/counter.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const counter = (u32 *)&data[1024];
    if (blockIdx.x < 2) {
        data[32 * blockIdx.x + threadIdx.x] = 1;
        __syncwarp(0xffffffffu);
        if (threadIdx.x == 0 && blockIdx.x == 0) {
            counter_add(counter, 1);
        }
    } else {
        counter_read(counter);
        data[64 + threadIdx.x] = data[threadIdx.x] + data[32 + threadIdx.x]; /* HERE */
    }
}

//! the same, one addition too few waited for: race, 32 threads, grid of 3; earlier block
//@use ptx/counter.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const counter = (u32 *)&data[1024];
    if (blockIdx.x < 2) {
        if (blockIdx.x == 1) {
            counter_add(counter, 1);
        }
        data[32 * blockIdx.x + threadIdx.x] = 1;
        __syncwarp(0xffffffffu);
        if (blockIdx.x == 0) {
            counter_add(counter, 1);
        }
    } else {
        while (counter_read(counter) < 1024 + 64) {
        }
        data[64 + threadIdx.x] = data[threadIdx.x] + data[32 + threadIdx.x]; /* HERE */
    }
}

//! released by one lane before the warp met: race, 32 threads, grid of 2; earlier block
//@use ptx/counter.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const counter = (u32 *)&data[1024];
    if (blockIdx.x == 0) {
        data[threadIdx.x] = 1;
        if (threadIdx.x == 0) {
            counter_add(counter, 1);
        }
    } else {
        while (counter_read(counter) < 1024 + 1) {
        }
        data[64 + threadIdx.x] = data[threadIdx.x]; /* HERE */
    }
}

//! one thread waits, a barrier tells the others: none, 64 threads, grid of 2
//@use ptx/counter.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const counter = (u32 *)&data[1024];
    if (blockIdx.x == 0) {
        data[threadIdx.x] = 1;
        __syncthreads();
        if (threadIdx.x == 0) {
            counter_add(counter, 1);
        }
    } else {
        if (threadIdx.x == 0) {
            while (counter_read(counter) < 1024 + 1) {
            }
        }
        __syncthreads();
        data[64 + threadIdx.x] = data[threadIdx.x];
    }
}

//! one thread waits, nothing tells the others: race, 64 threads, grid of 2; earlier block
//@use ptx/counter.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const counter = (u32 *)&data[1024];
    if (blockIdx.x == 0) {
        data[threadIdx.x] = 1;
        __syncthreads();
        if (threadIdx.x == 0) {
            counter_add(counter, 1);
        }
    } else {
        if (threadIdx.x == 0) {
            while (counter_read(counter) < 1024 + 1) {
            }
        }
        data[64 + threadIdx.x] = data[threadIdx.x]; /* HERE */
    }
}

//! handed on by a block between: none, 32 threads, grid of 3
//@use ptx/counter.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const first = (u32 *)&data[1024], *const second = (u32 *)&data[1025];
    if (blockIdx.x == 0) {
        data[threadIdx.x] = 1;
        counter_add(first, 1);
    } else if (blockIdx.x == 1) {
        while (counter_read(first) < 1024 + 32) {
        }
        counter_add(second, 1);
    } else {
        while (counter_read(second) < 1025 + 32) {
        }
        data[64 + threadIdx.x] = data[threadIdx.x];
    }
}

//! handed on by a block that did not wait: race, 32 threads, grid of 3; earlier block
//@use ptx/counter.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const first = (u32 *)&data[1024], *const second = (u32 *)&data[1025];
    if (blockIdx.x == 0) {
        data[threadIdx.x] = 1;
        counter_add(first, 1);
    } else if (blockIdx.x == 1) {
        counter_add(second, 1);
    } else {
        while (counter_read(second) < 1025 + 32) {
        }
        data[64 + threadIdx.x] = data[threadIdx.x]; /* HERE */
    }
}

//! written again after the addition: race, 32 threads, grid of 2; earlier block
//@use ptx/counter.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const counter = (u32 *)&data[1024];
    if (blockIdx.x == 0) {
        counter_add(counter, 1);
        data[threadIdx.x] = 1;
    } else {
        while (counter_read(counter) < 1024 + 32) {
        }
        data[64 + threadIdx.x] = data[threadIdx.x]; /* HERE */
    }
}

//! waits for an addition that never comes: deadlock, 32 threads, grid of 2; ld.acquire
//@use ptx/counter.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const counter = (u32 *)&data[1024];
    if (blockIdx.x == 0) {
        counter_add(counter, 1);
    } else {
        while (counter_read(counter) < 1024 + 33) { /* HERE */
        }
    }
}

//! a store over what an earlier block reads: race, 32 threads, grid of 2; read by an earlier block
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (blockIdx.x == 0) {
        data[64 + threadIdx.x] = data[threadIdx.x];
    } else {
        data[threadIdx.x] = 1; /* HERE */
    }
}

//! a store over what an earlier block read, behind a counter: none, 32 threads, grid of 2
//@use ptx/counter.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const counter = (u32 *)&data[1024];
    if (blockIdx.x == 0) {
        data[64 + threadIdx.x] = data[threadIdx.x];
        counter_add(counter, 1);
    } else {
        while (counter_read(counter) < 1024 + 32) {
        }
        data[threadIdx.x] = 1;
    }
}

//! a store over what another thread reads: race, 64 threads; read by
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[64 + threadIdx.x] = data[threadIdx.x];
    __syncwarp(0xffffffffu);
    data[threadIdx.x ^ 32] = 1; /* HERE */
}

//! a store over what another thread read before a barrier: none, 64 threads
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[64 + threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x ^ 32] = 1;
}

//! an addition over what an earlier block reads: race, 32 threads, grid of 2; read by an earlier block
//@use ptx/reduce.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (blockIdx.x == 0) {
        data[64 + threadIdx.x] = data[threadIdx.x];
    } else {
        reduce_add_f32((float *)&data[threadIdx.x], 1.0f); /* HERE */
    }
}

//! a store over what the kernel ahead may yet read: race, 32 threads, chain of 2; read by an earlier launch
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    grid_launch_dependents();
    if (gridDim.x == 1) {
        data[64 + threadIdx.x] = data[threadIdx.x];
    } else if (blockIdx.x == 0) {
        data[threadIdx.x] = 1; /* HERE */
    }
    grid_wait();
}

//! the same, after the wait: none, 32 threads, chain of 2
//@use ptx/grid.cuh
KERNEL void KERNEL_NAME(int *data) {
    grid_launch_dependents();
    grid_wait();
    if (gridDim.x == 1) {
        data[64 + threadIdx.x] = data[threadIdx.x];
    } else if (blockIdx.x == 0) {
        data[threadIdx.x] = 1;
    }
}

//! a read of what a bulk store writes, waited for: none, 64 threads
//@use ptx/bulk.cuh
//@use ptx/proxy.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(data, shared_address(0), 128);
        bulk_commit();
        bulk_wait_0();
    }
    __syncthreads();
    data[64 + threadIdx.x] = data[threadIdx.x % 32];
}

//! the same, not waited for: unwaited, 64 threads; bulk store
//@use ptx/bulk.cuh
//@use ptx/proxy.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(data, shared_address(0), 128);
        bulk_commit();
    }
    __syncthreads();
    data[64 + threadIdx.x] = data[threadIdx.x % 32]; /* HERE */
    if (threadIdx.x == 0) {
        bulk_wait_0();
    }
}

//! the same, waited for its reading alone: unwaited, 64 threads; bulk store
//@use ptx/bulk.cuh
//@use ptx/proxy.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((int *)arena)[threadIdx.x] = 1;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(data, shared_address(0), 128);
        bulk_commit();
        bulk_wait_read_0();
    }
    __syncthreads();
    data[64 + threadIdx.x] = data[threadIdx.x % 32]; /* HERE */
}

//! a bulk reduction released when complete: none, 32 threads, grid of 2
//@use ptx/bulk.cuh
//@use ptx/counter.cuh
//@use ptx/proxy.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const counter = (u32 *)&data[1024];
    if (blockIdx.x == 0) {
        ((int *)arena)[threadIdx.x] = 1;
        fence_proxy_async();
        __syncwarp(0xffffffffu);
        if (threadIdx.x == 0) {
            bulk_reduce_add_f32(data, shared_address(0), 128);
            bulk_commit();
            bulk_wait_0();
            counter_add(counter, 1);
        }
    } else {
        while (counter_read(counter) < 1024 + 1) {
        }
        data[64 + threadIdx.x] = data[threadIdx.x];
    }
}

//! the same, released before: race, 32 threads, grid of 2; earlier block
//@use ptx/bulk.cuh
//@use ptx/counter.cuh
//@use ptx/proxy.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const counter = (u32 *)&data[1024];
    if (blockIdx.x == 0) {
        ((int *)arena)[threadIdx.x] = 1;
        fence_proxy_async();
        __syncwarp(0xffffffffu);
        if (threadIdx.x == 0) {
            bulk_reduce_add_f32(data, shared_address(0), 128);
            bulk_commit();
            bulk_wait_read_0();
            counter_add(counter, 1);
        }
    } else {
        while (counter_read(counter) < 1024 + 1) {
        }
        data[64 + threadIdx.x] = data[threadIdx.x]; /* HERE */
    }
}

//! shared words changed by atomics, read behind a barrier: none, 64 threads
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const words = (u32 *)arena;
    words[threadIdx.x] = 0;
    __syncthreads();
    atomic_add_shared(shared_address(4 * (threadIdx.x % 4)), 1);
    atomic_or_shared(shared_address(128 + 4 * (threadIdx.x % 4)), 1u << threadIdx.x % 32);
    __syncthreads();
    data[threadIdx.x] = (int)words[threadIdx.x];
}

//! the same, without the barrier ahead of them: race, 64 threads; atomic operation
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const words = (u32 *)arena;
    words[threadIdx.x] = 0;
    atomic_add_shared(shared_address(4 * (threadIdx.x ^ 32)), 1); /* HERE */
    __syncthreads();
    data[threadIdx.x] = (int)words[threadIdx.x];
}

//! the same, without the one behind them: race, 64 threads; no barrier orders the two
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
KERNEL void KERNEL_NAME(int *data) {
    u32 *const words = (u32 *)arena;
    words[threadIdx.x] = 0;
    __syncthreads();
    atomic_add_shared(shared_address(4 * (threadIdx.x ^ 32)), 1);
    data[threadIdx.x] = (int)words[threadIdx.x]; /* HERE */
}

//! an atomic of a word that was never written: uninitialized, 32 threads; atomic operation
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[threadIdx.x] = (int)atomic_or_shared(shared_address(4 * threadIdx.x), 1); /* HERE */
}

//! an atomic beyond a region: bounds, 32 threads; outside the plan's map
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[threadIdx.x] = (int)atomic_add_shared(shared_address(8192 + 8180), 1); /* HERE */
}

//! blocks that count in one word: none, 32 threads, grid of 3
//@use ptx/atomic.cuh
KERNEL void KERNEL_NAME(int *data) {
    reduce_add_global((u32 *)&data[1024], 1);
    reduce_add_global((u32 *)&data[0], 1);
}

//! a block reads a word that another counts in: race, 32 threads, grid of 2; nothing orders the two
//@use ptx/atomic.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (blockIdx.x == 0) {
        reduce_add_global((u32 *)&data[0], 1);
    } else {
        data[64 + threadIdx.x] = data[0]; /* HERE */
    }
}

//! a byte each: none, 64 threads
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((unsigned char *)data)[threadIdx.x] = 1;
}

//! a byte for every two: race, 64 threads; nothing orders the two
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    ((unsigned char *)data)[threadIdx.x % 32 * 2] = 1; /* HERE */
}

//! a byte in another's word: race, 64 threads; nothing orders the two
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (threadIdx.x < 32) {
        ((unsigned char *)data)[4 * threadIdx.x + 1] = 1; /* HERE */
    } else {
        data[threadIdx.x - 32] = 1;
    }
}

//! a cache policy cut to 32 bits: illegal, 32 threads; no cache policy
//@use ptx/bulk.cuh
//@use ptx/mbarrier.cuh
//@use ptx/policy.cuh
//@use ptx/tensor.cuh
KERNEL void KERNEL_NAME(int *data) {
    const u32 policy = (u32)policy_evict_first();
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(8192), 1);
        tensor_load_2d_hint(shared_address(0), data, shared_address(8192), 0, 0, policy); /* HERE */
    }
}
