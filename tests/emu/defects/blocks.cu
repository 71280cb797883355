/* Blocks of a grid: what orders them, counters between them. How a case is written: ../defects.c.
 */
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

//! read by two blocks, then written by the later one: race, 32 threads, grid of 2; earlier block
//@use common/base.cuh
KERNEL void KERNEL_NAME(int *data) {
    data[64 + 32 * blockIdx.x + threadIdx.x] = data[threadIdx.x];
    if (blockIdx.x == 1) {
        data[threadIdx.x] = 1; /* HERE */
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

//! an addition over what an earlier block reads: race, 32 threads, grid of 2; read by an earlier block
//@use ptx/reduce.cuh
KERNEL void KERNEL_NAME(int *data) {
    if (blockIdx.x == 0) {
        data[64 + threadIdx.x] = data[threadIdx.x];
    } else {
        reduce_add_f32((float *)&data[threadIdx.x], 1.0f); /* HERE */
    }
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
