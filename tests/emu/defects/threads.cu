/* Threads of a block: order, barriers, bounds of accesses, arithmetic. ../defects.c describes the
 * format. */
//@use ptx/atomic.cuh
//@use ptx/named_barrier.cuh
//@use ptx/shared.cuh

//! unordered store and load: race, 64 threads; no barrier orders the two
((int *)arena)[threadIdx.x] = 1;
data[threadIdx.x] = ((int *)arena)[threadIdx.x ^ 32]; /* HERE */

//! ordered store and load: none, 64 threads
((int *)arena)[threadIdx.x] = 1;
__syncthreads();
data[threadIdx.x] = ((int *)arena)[threadIdx.x ^ 32];

//! store over another's load: race, 64 threads; read by
int *const words = (int *)arena;
words[threadIdx.x] = 1;
__syncthreads();
data[threadIdx.x] = words[threadIdx.x ^ 32];
words[threadIdx.x] = 2; /* HERE */

//! store over a load of two: race, 64 threads; read by
int *const words = (int *)arena;
words[threadIdx.x] = 1;
__syncthreads();
data[threadIdx.x] = words[0];
__syncwarp(0xffffffffu);
if (threadIdx.x == 0) {
    words[0] = 2; /* HERE */
}

//! a warp's barrier orders its lanes: none, 32 threads
int *const words = (int *)arena;
words[threadIdx.x] = 1;
__syncwarp(0xffffffffu);
data[threadIdx.x] = words[threadIdx.x ^ 1];
__syncwarp(0xffffffffu);
words[threadIdx.x] = 2;

//! a shuffle orders nothing: race, 32 threads
int *const words = (int *)arena;
words[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
data[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 0, 1) + words[threadIdx.x ^ 1]; /* HERE */

//! bytes beside each other do not race: none, 64 threads
arena[threadIdx.x] = (unsigned char)threadIdx.x;
data[threadIdx.x] = arena[threadIdx.x];

//! nobody wrote it: uninitialized, 32 threads; RIGHT + 4
data[threadIdx.x] = ((int *)(arena + 8192))[1]; /* HERE */

//! past the arena: bounds, 32 threads; outside the plan's map
((int *)arena)[4096 + data[0]] = 1; /* HERE */

//! from one region into the next: bounds, 32 threads; beyond the region's end
*(long long *)(arena + 16368 + 8 * data[0]) = 1; /* HERE */

//! past a buffer: bounds, 32 threads; past the end of the data
data[4096 + threadIdx.x] = 1; /* HERE */

//! a range that must not be touched: forbidden, 32 threads; must not be touched
data[0] = data[4000]; /* HERE */

//! one location of device memory from two threads: race, 64 threads; nothing orders the two
data[threadIdx.x % 32] = 1; /* HERE */

//! an index past a register array: bounds, 32 threads
int registers[4] = {1, 2, 3, 4};
data[threadIdx.x] = registers[data[4] + (int)threadIdx.x / 32]; /* HERE */

//! a pointer past a register array: bounds, 32 threads
DEVICE int fifth(const int *values) {
    return values[4]; /* HERE */
}
KERNEL void KERNEL_NAME(int *data) {
    int registers[4] = {1, 2, 3, 4};
    data[threadIdx.x] = fifth(registers);
}

//! a misaligned load: alignment, 32 threads
((int *)arena)[threadIdx.x] = 1;
data[threadIdx.x] = (int)*(const long long *)(arena + 4 + (threadIdx.x / 32)); /* HERE */

//! a signed overflow: arithmetic, 32 threads; overflows its signed type
data[threadIdx.x] = (data[0] + 0x7fffffff) * 2; /* HERE */

//! a wild address: bounds, 32 threads; not device memory
*(volatile int *)(8192 + (u64)data[0]) = 1; /* HERE */

//! no end: time, 32 threads
volatile int turns = 0;
while (turns >= 0) {
    turns = turns == 1000 ? 0 : turns + 1;
}
data[0] = turns;

//! a lane leaves before the others' barrier: deadlock, 32 threads; others have exited
if (threadIdx.x == 5) {
    return;
}
__syncwarp(0xffffffffu); /* HERE */
data[threadIdx.x] = 1;

//! lanes part: convergence, 32 threads; __ballot_sync
if (threadIdx.x < 16) {
    data[threadIdx.x] = (int)__ballot_sync(0xffffffffu, 1);
} else {
    __syncwarp(0xffffffffu);
}

//! halves of a warp, each with its mask: none, 32 threads
if (threadIdx.x < 16) {
    data[threadIdx.x] = (int)__ballot_sync(0xffffu, 1);
} else {
    data[threadIdx.x] = (int)__ballot_sync(0xffff0000u, 1);
}
__syncwarp(0xffffffffu);

//! a lane outside its own mask: convergence, 32 threads; does not name the lane itself
data[threadIdx.x] = (int)__ballot_sync(1u, 1); /* HERE */

//! a mask that names no lane: convergence, 32 threads; does not name the lane itself
data[threadIdx.x] = 1;
__syncwarp(0u); /* HERE */

//! a warp misses the block's barrier: deadlock, 64 threads; 32 of 64 threads have arrived
if (threadIdx.x < 32) {
    __syncthreads(); /* HERE */
}
data[threadIdx.x] = 1;

//! an aligned barrier at two locations of a warp: convergence, 64 threads; at two locations
if (threadIdx.x % 2 == 0) {
    __syncthreads();
    data[threadIdx.x] = 1;
} else {
    __syncthreads();
    data[threadIdx.x] = 2;
}

//! two counts at one barrier: barrier, 96 threads; others arrived with
barrier_sync(1, threadIdx.x < 32 ? 64 : 96);
data[threadIdx.x] = 1;

//! an arrival without a wait orders one way: none, 64 threads
int *const words = (int *)arena;
if (threadIdx.x < 32) {
    words[threadIdx.x] = 1;
    barrier_arrive(1, 64);
} else {
    barrier_sync(1, 64);
    data[threadIdx.x] = words[threadIdx.x - 32];
}

//! who only arrived knows nothing: race, 64 threads
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

//! a store over what another thread reads: race, 64 threads; read by
data[64 + threadIdx.x] = data[threadIdx.x];
__syncwarp(0xffffffffu);
data[threadIdx.x ^ 32] = 1; /* HERE */

//! a store over what another thread read before a barrier: none, 64 threads
data[64 + threadIdx.x] = data[threadIdx.x];
__syncthreads();
data[threadIdx.x ^ 32] = 1;

//! shared words changed by atomics, read behind a barrier: none, 64 threads
u32 *const words = (u32 *)arena;
words[threadIdx.x] = 0;
__syncthreads();
atomic_add_shared(shared_address(4 * (threadIdx.x % 4)), 1);
atomic_or_shared(shared_address(128 + 4 * (threadIdx.x % 4)), 1u << threadIdx.x % 32);
__syncthreads();
data[threadIdx.x] = (int)words[threadIdx.x];

//! the same, without the barrier ahead of them: race, 64 threads; atomic operation
u32 *const words = (u32 *)arena;
words[threadIdx.x] = 0;
atomic_add_shared(shared_address(4 * (threadIdx.x ^ 32)), 1); /* HERE */
__syncthreads();
data[threadIdx.x] = (int)words[threadIdx.x];

//! the same, without the one behind them: race, 64 threads; no barrier orders the two
u32 *const words = (u32 *)arena;
words[threadIdx.x] = 0;
__syncthreads();
atomic_add_shared(shared_address(4 * (threadIdx.x ^ 32)), 1);
data[threadIdx.x] = (int)words[threadIdx.x]; /* HERE */

//! an atomic of a word that was never written: uninitialized, 32 threads; atomic operation
data[threadIdx.x] = (int)atomic_or_shared(shared_address(4 * threadIdx.x), 1); /* HERE */

//! an atomic beyond a region: bounds, 32 threads; outside the plan's map
data[threadIdx.x] = (int)atomic_add_shared(shared_address(8192 + 8180), 1); /* HERE */

//! a byte each: none, 64 threads
((unsigned char *)data)[threadIdx.x] = 1;

//! a byte for every two: race, 64 threads; nothing orders the two
((unsigned char *)data)[threadIdx.x % 32 * 2] = 1; /* HERE */

//! a byte in another's word: race, 64 threads; nothing orders the two
if (threadIdx.x < 32) {
    ((unsigned char *)data)[4 * threadIdx.x + 1] = 1; /* HERE */
} else {
    data[threadIdx.x - 32] = 1;
}
