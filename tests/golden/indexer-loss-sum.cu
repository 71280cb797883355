/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_loss_sum --arch sm_90a
 *
 * spec     indexer_loss_sum
 * arch     sm_90a
 * variant  sum
 * kernel   smelt_indexer_loss_sum
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   SUMS_OFFSET                      0      128  each warp's sum
 *   SHARED_BYTES                   128  of 232448 that a block may have on sm_90a
 * launch
 *   1024 threads a block, 1 block resident per multiprocessor, at most 64 registers a thread
 */

enum {
    THREADS = 1024,                 /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once, at least */
    DEPENDENT_LAUNCH = 1,           /* 1: may begin before the kernel ahead of it has ended */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    SUMS_OFFSET = 0,                /* each warp's sum */
    SHARED_BYTES = 128,             /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_loss_sum

#line 1 "templates/common/base.cuh"
/* Names every part uses: short integer types, function kinds, the shared-memory arena. */

typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifdef __cplusplus
#define KERNEL extern "C" __global__
#else
#define KERNEL __global__
#endif
#define DEVICE static __device__ __forceinline__

/* The one dynamic shared-memory array. The plan's *_OFFSET constants are byte offsets into it. */
extern __shared__ __align__(1024) unsigned char arena[];

DEVICE int minimum(int a, int b) {
    return a < b ? a : b;
}

DEVICE int maximum(int a, int b) {
    return a > b ? a : b;
}

#line 2 "templates/common/warp_sums.cuh"

/* The sum and the maximum of a float of each lane, the same bits in all of them. By whole warps. */

DEVICE float warp_sum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

DEVICE float warp_maximum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

#line 3 "templates/common/block_sums.cuh"

/*
 * The sum and the maximum of a float of each thread, the same bits in all of them, in an order that
 * THREADS alone fixes. `warps`: a float of each warp, in shared memory. block_begin by all threads;
 * a barrier; block_sum or block_maximum by whole warps.
 */

/* `own`: the same in all lanes of a warp. */
DEVICE void block_begin(float *warps, float own) {
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = own;
    }
}

DEVICE float block_sum(const float *warps) {
    const int lane = (int)threadIdx.x % 32;
    return warp_sum(lane < THREADS / 32 ? warps[lane] : 0.0f);
}

DEVICE float block_maximum(const float *warps) {
    const int lane = (int)threadIdx.x % 32;
    return warp_maximum(warps[lane < THREADS / 32 ? lane : 0]);
}

#line 2 "templates/ptx/grid.cuh"

/* Lets the next kernel of the stream start, when all blocks have said so or ended; nothing is
 * promised about this one's results (PTX ISA, "griddepcontrol"). Without effect where the launch
 * did not ask for it. */
DEVICE void grid_launch_dependents(void) {
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

/* Waits until the kernels before this one in the stream are complete and their results visible. */
DEVICE void grid_wait(void) {
    asm volatile("griddepcontrol.wait;" : : : "memory");
}

#line 1 "templates/indexer_loss_sum.params.h"
/*
 * Arguments of the indexer_loss_sum kernel. Included by the host code and, by the generator, by the
 * CUDA source: plain C types only.
 */
struct indexer_loss_sum_params {
    const float *losses; /* [queries] */
    float *loss;         /* one number */
    int queries;
};

#line 5 "templates/indexer_loss_sum.cu"
/*
 * The indexer's loss out of those of the queries. Meaning: include/smelt/indexer_loss.h.
 *
 * Grid: one block. Thread i adds up the losses of the queries i, i + THREADS, ... in that order;
 * then the threads are added up: the number of queries alone fixes the order. A query gives a few
 * bytes here and kilobytes to the kernel before this one: it takes no time.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_loss_sum_params params) {
    if (DEPENDENT_LAUNCH) {
        grid_wait();
    }
    float sum = 0.0f;
#pragma unroll 8
    for (i64 query = threadIdx.x; query < params.queries; query += THREADS) {
        sum += params.losses[query];
    }
    float *const warps = (float *)(arena + SUMS_OFFSET);
    block_begin(warps, warp_sum(sum));
    __syncthreads();
    sum = block_sum(warps);
    if (threadIdx.x == 0) {
        *params.loss = sum;
    }
}
