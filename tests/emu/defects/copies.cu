/* Asynchronous copies: cp.async, mbarriers, bulk copies and stores, and waits for them.
 * ../defects.c describes the format. */
//@use ptx/bulk.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/policy.cuh
//@use ptx/prefetch.cuh
//@use ptx/proxy.cuh
//@use ptx/tensor.cuh

/* Initialises a barrier. */
DEVICE u32 begin_barrier(u32 arrivals) {
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(8192), arrivals);
        mbarrier_fence_init();
    }
    __syncthreads();
    return shared_address(8192);
}

/* Begins a load to LEFT; returns its barrier, which expects `expected` bytes. */
DEVICE u32 begin_load(const int *data, u32 bytes, u32 expected) {
    const u32 full = shared_address(8192);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(full, expected);
        bulk_load(shared_address(0), data, bytes, full);
    }
    __syncthreads();
    return full;
}

/* Writes LEFT, for bulk stores. */
DEVICE void begin_store() {
    ((int *)arena)[threadIdx.x] = 1;
    fence_proxy_async();
    __syncthreads();
}

DEVICE void store(int *data) {
    bulk_store(data, shared_address(0), 128);
    bulk_commit();
}

//! a copy that nobody waited for: unwaited, 32 threads; no wait covers it
cp_async_16(shared_address(16 * threadIdx.x), data, 16);
cp_async_commit();
cp_async_wait(1);
data[threadIdx.x + 64] = ((int *)arena)[4 * threadIdx.x]; /* HERE */
cp_async_wait(0);

//! a copy that its issuer waited for: none, 32 threads
cp_async_16(shared_address(16 * threadIdx.x), data, 16);
cp_async_commit();
cp_async_wait(0);
data[threadIdx.x + 64] = ((int *)arena)[4 * threadIdx.x];

//! a copy that only its issuer waited for: race, 32 threads; a cp.async of
cp_async_16(shared_address(16 * threadIdx.x), data, 16);
cp_async_commit();
cp_async_wait(0);
data[threadIdx.x + 64] = ((int *)arena)[4 * (threadIdx.x ^ 1)]; /* HERE */

//! a copy without its commit: unwaited, 32 threads
cp_async_16(shared_address(16 * threadIdx.x), data, 16);
cp_async_wait(0);
data[threadIdx.x + 64] = ((int *)arena)[4 * threadIdx.x]; /* HERE */
cp_async_commit();
cp_async_wait(0);

//! a store to where a copy goes: unwaited, 32 threads
cp_async_16(shared_address(16 * threadIdx.x), data, 16);
cp_async_commit();
((int *)arena)[4 * threadIdx.x] = 1; /* HERE */
cp_async_wait(0);

//! a copy to a misaligned address: alignment, 32 threads
cp_async_16(shared_address(8 + 16 * threadIdx.x), data, 16); /* HERE */
cp_async_commit();
cp_async_wait(0);

//! a copy left behind: leftover, 32 threads; did not wait for
cp_async_16(shared_address(16 * threadIdx.x), data, 16); /* HERE */
cp_async_commit();

//! copies that arrive at an mbarrier: none, 64 threads
const u32 full = begin_barrier(32);
if (threadIdx.x < 32) {
    cp_async_16(shared_address(16 * threadIdx.x), data, 16);
    cp_async_arrive_noinc(full);
} else {
    mbarrier_wait(full, 0);
    data[threadIdx.x + 64] = ((int *)arena)[4 * (threadIdx.x - 32)];
}

//! their arrival does not order plain stores: race, 64 threads
const u32 full = begin_barrier(32);
if (threadIdx.x < 32) {
    cp_async_16(shared_address(16 * threadIdx.x), data, 16);
    ((int *)(arena + 4096))[threadIdx.x] = 1;
    cp_async_arrive_noinc(full);
} else {
    mbarrier_wait(full, 0);
    data[threadIdx.x + 64] = ((int *)(arena + 4096))[threadIdx.x - 32]; /* HERE */
}

//! a wait for the wrong parity: unwaited/race/uninitialized, 64 threads
const u32 full = begin_barrier(32);
if (threadIdx.x < 32) {
    cp_async_16(shared_address(16 * threadIdx.x), data, 16);
    cp_async_arrive_noinc(full);
    mbarrier_wait(full, 0);
} else {
    mbarrier_wait(full, 1);
    data[threadIdx.x + 64] = ((int *)arena)[4 * (threadIdx.x - 32)]; /* HERE */
}

//! an mbarrier used before its initialisation is known: race/barrier, 64 threads; mbarrier.arrive at LEFT
if (threadIdx.x == 0) {
    mbarrier_init(shared_address(0), 64);
}
if (threadIdx.x < 32) {
    __syncwarp(0xffffffffu);
}
mbarrier_arrive(shared_address(0)); /* HERE */
data[threadIdx.x] = 1;

//! no mbarrier there: barrier, 32 threads; no mbarrier was initialised
mbarrier_arrive(shared_address(0)); /* HERE */
data[threadIdx.x] = 1;

//! one arrival too many: barrier, 32 threads; misses only
if (threadIdx.x == 0) {
    mbarrier_init(shared_address(0), 3);
    mbarrier_arrive_count(shared_address(0), 4); /* HERE */
}
data[threadIdx.x] = 1;

//! one arrival too few: deadlock, 64 threads; 1 of 64 arrivals
if (threadIdx.x == 0) {
    mbarrier_init(shared_address(0), 64);
}
__syncthreads();
if (threadIdx.x != 0) {
    mbarrier_arrive(shared_address(0));
}
mbarrier_wait(shared_address(0), 0); /* HERE */
data[threadIdx.x] = 1;

//! a plain store into an mbarrier: barrier, 32 threads; overlaps an mbarrier
if (threadIdx.x == 0) {
    mbarrier_init(shared_address(0), 1);
    ((int *)arena)[1] = 0; /* HERE */
}
data[threadIdx.x] = 1;

//! two phases missed: barrier, 32 threads; the parity cannot distinguish them
const u32 barrier = shared_address(0);
if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    mbarrier_arrive(barrier);
    mbarrier_arrive(barrier);
    mbarrier_wait(barrier, 1); /* HERE */
}
data[threadIdx.x] = 1;

//! a bulk load, waited for: none, 64 threads
const u32 full = begin_load(data, 1024, 1024);
mbarrier_wait(full, 0);
data[threadIdx.x + 512] = ((int *)arena)[threadIdx.x];

//! a bulk load, not waited for: unwaited/race, 64 threads; a bulk copy
begin_load(data, 1024, 1024);
data[threadIdx.x + 512] = ((int *)arena)[threadIdx.x]; /* HERE */

//! a bulk load with too many bytes expected: deadlock, 64 threads; 16 bytes
const u32 full = begin_load(data, 1024, 1040);
mbarrier_wait(full, 0); /* HERE */
data[threadIdx.x + 512] = ((int *)arena)[threadIdx.x];

//! a bulk load on a barrier the async proxy does not know: proxy, 32 threads; fence.mbarrier_init
const u32 full = shared_address(8192);
if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_arrive_expect(full, 1024);
    bulk_load(shared_address(0), data, 1024, full); /* HERE */
    mbarrier_wait(full, 0);
}

//! a bulk load of 8 bytes: illegal, 32 threads; not a multiple of 16
const u32 full = shared_address(8192);
if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_fence_init();
    bulk_load(shared_address(0), data, 8, full); /* HERE */
}

//! a prefetch past a buffer: bounds, 32 threads; which has 16384
prefetch_l2(data, 1024);
prefetch_l2(data + 3968, 1024); /* HERE */

//! a prefetch of 8 bytes: illegal, 32 threads; not a multiple of 16
prefetch_l2(data, 8); /* HERE */

//! a bulk load over what is still read: race/barrier, 64 threads
const u32 full = begin_load(data, 256, 256);
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

//! a bulk store of what no proxy fence covers: proxy, 32 threads; no fence.proxy.async
((int *)arena)[threadIdx.x] = 1;
__syncthreads();
if (threadIdx.x == 0) {
    bulk_store(data, shared_address(0), 128); /* HERE */
    bulk_commit();
    bulk_wait(0);
}

//! a bulk store, fenced by the writers: none, 32 threads
begin_store();
if (threadIdx.x == 0) {
    store(data);
    bulk_wait(0);
}

//! a bulk store, fenced by who starts it: none, 32 threads
((int *)arena)[threadIdx.x] = 1;
__syncthreads();
if (threadIdx.x == 0) {
    fence_proxy_async();
    store(data);
    bulk_wait(0);
}

//! a fence before the barrier by another thread: proxy, 64 threads
((int *)arena)[threadIdx.x] = 1;
if (threadIdx.x >= 32) {
    fence_proxy_async();
}
__syncthreads();
if (threadIdx.x == 0) {
    bulk_store(data, shared_address(0), 128); /* HERE */
    bulk_commit();
    bulk_wait(0);
}

//! a store after the fence: proxy, 32 threads; no fence.proxy.async
if (threadIdx.x < 8) {
    fence_proxy_async();
    ((int *)arena)[threadIdx.x] = 1;
}
__syncthreads();
if (threadIdx.x == 0) {
    bulk_store(data, shared_address(0), 32); /* HERE */
    bulk_commit();
    bulk_wait(0);
}

//! a store into a bulk store's source: overwritten, 32 threads; may still be reading
begin_store();
if (threadIdx.x == 0) {
    store(data);
    bulk_wait_read(1);
    ((int *)arena)[0] = 2; /* HERE */
    bulk_wait(0);
}

//! a bulk store left behind: leftover, 32 threads; before its bulk store
begin_store();
if (threadIdx.x == 0) {
    bulk_store(data, shared_address(0), 128); /* HERE */
    bulk_commit();
}

//! a read of what a bulk store writes, waited for: none, 64 threads
begin_store();
if (threadIdx.x == 0) {
    store(data);
    bulk_wait(0);
}
__syncthreads();
data[64 + threadIdx.x] = data[threadIdx.x % 32];

//! the same, not waited for: unwaited, 64 threads; bulk store
begin_store();
if (threadIdx.x == 0) {
    store(data);
}
__syncthreads();
data[64 + threadIdx.x] = data[threadIdx.x % 32]; /* HERE */
if (threadIdx.x == 0) {
    bulk_wait(0);
}

//! the same, waited for its reading alone: unwaited, 64 threads; bulk store
begin_store();
if (threadIdx.x == 0) {
    store(data);
    bulk_wait_read(0);
}
__syncthreads();
data[64 + threadIdx.x] = data[threadIdx.x % 32]; /* HERE */

//! a cache policy cut to 32 bits: illegal, 32 threads; not a cache policy
const u32 policy = (u32)policy_evict_first(), full = shared_address(8192);
if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    tensor_load_3d_hint(shared_address(0), data, full, 0, 0, 0, policy); /* HERE */
}
