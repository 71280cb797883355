/* Launches that begin before the previous one has ended. ../defects.c describes the format. */
//@use ptx/grid.cuh
//@use ptx/memory.cuh

/* The first launch of a chain writes. */
DEVICE bool is_later(int *data) {
    if (gridDim.x == 1) {
        data[threadIdx.x] = 1;
    }
    return gridDim.x > 1;
}

/* The second launch waits for it before it lets the third begin. */
DEVICE bool is_third(int *data) {
    if (is_later(data) && gridDim.x == 2) {
        grid_wait();
        grid_launch_dependents();
    }
    return gridDim.x > 2;
}

//! a read before the wait for the kernel that wrote: race, 32 threads, chain of 2; earlier launch
grid_launch_dependents();
if (is_later(data)) {
    const int before = data[threadIdx.x]; /* HERE */
    grid_wait();
    data[64 + 32 * blockIdx.x + threadIdx.x] = before;
}

//! a read after it: none, 32 threads, chain of 2
grid_launch_dependents();
if (is_later(data)) {
    grid_wait();
    data[64 + 32 * blockIdx.x + threadIdx.x] = data[threadIdx.x];
}

//! a read after another thread's wait: race, 64 threads, chain of 2; earlier launch
if (is_later(data)) {
    if (threadIdx.x == 0) {
        grid_wait();
    }
    if (threadIdx.x >= 32) {
        data[64 + 64 * blockIdx.x + threadIdx.x] = data[threadIdx.x]; /* HERE */
    }
}

//! a read after another thread's wait and a barrier: none, 64 threads, chain of 2
if (is_later(data)) {
    if (threadIdx.x == 0) {
        grid_wait();
    }
    __syncthreads();
    data[64 + 64 * blockIdx.x + threadIdx.x] = data[threadIdx.x];
}

//! a write over what the kernel ahead may yet write: race, 32 threads, chain of 2; earlier launch
if (blockIdx.x == 0) {
    data[threadIdx.x] = 1; /* HERE */
}
grid_wait();

//! the third kernel needs the first's alone, the second waited before it let go: none, 32 threads, chain of 3
if (is_third(data)) {
    data[64 + 32 * blockIdx.x + threadIdx.x] = (int)load_l2_32(&data[threadIdx.x]);
    grid_wait();
}

//! the same, through L1: stale, 32 threads, chain of 3; did not wait
if (is_third(data)) {
    data[64 + 32 * blockIdx.x + threadIdx.x] = data[threadIdx.x]; /* HERE */
    grid_wait();
}

//! the same, through L1 by a wrapper's load: stale, 32 threads, chain of 3; when this one began
if (is_third(data)) {
    u32 words[4];
    load_read_only_16(words, &data[4 * (threadIdx.x % 8)]); /* HERE */
    data[64 + 32 * blockIdx.x + threadIdx.x] = (int)words[0];
    grid_wait();
}

//! the same, through L1 after its own wait: none, 32 threads, chain of 3
if (is_third(data)) {
    grid_wait();
    data[64 + 32 * blockIdx.x + threadIdx.x] = data[threadIdx.x];
}

//! a read-only load of what was written while it ran, after its own wait: stale, 32 threads, chain of 3; when this one began
if (is_third(data)) {
    grid_wait();
    u32 words[4];
    load_read_only_16(words, &data[4 * (threadIdx.x % 8)]); /* HERE */
    data[64 + 32 * blockIdx.x + threadIdx.x] = (int)words[0];
}

//! a plain read of what was there before the first of the chain: none, 32 threads, chain of 3
grid_launch_dependents();
if (gridDim.x == 1) {
    data[threadIdx.x] = data[1024 + threadIdx.x];
} else {
    data[64 * gridDim.x + 32 * blockIdx.x + threadIdx.x] = data[1024 + threadIdx.x];
    grid_wait();
}

//! a read-only load of what the kernel writes: stale, 32 threads; writes itself
u32 words[4];
data[threadIdx.x] = 1;
__syncwarp(0xffffffffu);
load_read_only_16(words, &data[4 * (threadIdx.x % 8)]); /* HERE */
data[64 + threadIdx.x] = (int)words[0];

//! the same, but the second lets go first: race, 32 threads, chain of 3; earlier launch
if (gridDim.x == 1) {
    data[threadIdx.x] = 1;
} else if (gridDim.x == 2) {
    grid_launch_dependents();
    grid_wait();
} else {
    data[64 + 32 * blockIdx.x + threadIdx.x] = data[threadIdx.x]; /* HERE */
    grid_wait();
}

//! the same, but one block of the second does not wait: race, 32 threads, chain of 3; earlier launch
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

//! the last kernel may end before the first: race, 32 threads, chain of 2; may end before earlier
if (is_later(data)) {
    data[64 + 32 * blockIdx.x + threadIdx.x] = 2;
}

//! a store over what the kernel ahead may yet read: race, 32 threads, chain of 2; read by an earlier launch
grid_launch_dependents();
if (gridDim.x == 1) {
    data[64 + threadIdx.x] = data[threadIdx.x];
} else if (blockIdx.x == 0) {
    data[threadIdx.x] = 1; /* HERE */
}
grid_wait();

//! the same, after the wait: none, 32 threads, chain of 2
grid_launch_dependents();
grid_wait();
if (gridDim.x == 1) {
    data[64 + threadIdx.x] = data[threadIdx.x];
} else if (blockIdx.x == 0) {
    data[threadIdx.x] = 1;
}
